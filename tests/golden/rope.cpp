// rope.json: what llama.cpp makes of the fixtures' prompts with its flags for RoPE and YaRN. For each model and its flags there, built
// against the library of llama-cpp-python 0.3.36:
//
//     rope archs/MODEL.gguf "TOKEN TOKEN .." FLAGS
//
// The tokens are `prompt` in archs/MODEL.json. It prints the likeliest tokens behind them.

#include "llama.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cmath>
#include <vector>
#include <algorithm>
#include <string>
#include <sstream>
int main(int argc,char**argv){
  llama_log_set([](ggml_log_level,const char*,void*){},nullptr);
  auto mp=llama_model_default_params(); mp.n_gpu_layers=0;
  llama_model*m=llama_model_load_from_file(argv[1],mp);
  std::vector<llama_token> ids; { std::stringstream ss(argv[2]); int x; while(ss>>x) ids.push_back(x);} 
  auto cp=llama_context_default_params(); cp.n_ctx=128; cp.n_threads=1; cp.n_threads_batch=1; cp.type_k=cp.type_v=GGML_TYPE_F32; cp.flash_attn_type=LLAMA_FLASH_ATTN_TYPE_DISABLED;
  for(int i=3;i+1<argc;i+=2){ std::string k=argv[i],v=argv[i+1];
    if(k=="--rope-scaling") cp.rope_scaling_type= v=="none"?LLAMA_ROPE_SCALING_TYPE_NONE: v=="linear"?LLAMA_ROPE_SCALING_TYPE_LINEAR:LLAMA_ROPE_SCALING_TYPE_YARN;
    else if(k=="--rope-scale") cp.rope_freq_scale=1.0f/std::stof(v);
    else if(k=="--rope-freq-base") cp.rope_freq_base=std::stof(v);
    else if(k=="--rope-freq-scale") cp.rope_freq_scale=std::stof(v);
    else if(k=="--yarn-orig-ctx") cp.yarn_orig_ctx=std::stoi(v);
    else if(k=="--yarn-ext-factor") cp.yarn_ext_factor=std::stof(v);
    else if(k=="--yarn-attn-factor") cp.yarn_attn_factor=std::stof(v);
    else if(k=="--yarn-beta-slow") cp.yarn_beta_slow=std::stof(v);
    else if(k=="--yarn-beta-fast") cp.yarn_beta_fast=std::stof(v);
    else return 3; }
  auto*ctx=llama_init_from_model(m,cp);
  auto b=llama_batch_get_one(ids.data(),ids.size());
  if(llama_decode(ctx,b)) return 2;
  int n=llama_vocab_n_tokens(llama_model_get_vocab(m)); const float*l=llama_get_logits_ith(ctx,-1);
  double mx=-1e30; for(int i=0;i<n;i++) mx=std::max(mx,(double)l[i]); double s=0; for(int i=0;i<n;i++) s+=exp(l[i]-mx); double z=mx+log(s);
  std::vector<int> o(n); for(int i=0;i<n;i++)o[i]=i; std::partial_sort(o.begin(),o.begin()+6,o.end(),[&](int a,int c){return l[a]>l[c];});
  printf("{\"top\": ["); for(int i=0;i<6;i++) printf("%s[%d, %.5f]",i?", ":"",o[i],l[o[i]]-z); printf("]}\n");
}
