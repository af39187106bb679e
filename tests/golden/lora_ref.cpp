// The log-probabilities after a prompt, by llama.cpp with adapters and control vectors:
//   lora_ref MODEL.gguf TOKEN,TOKEN,.. [--lora FILE SCALE]... [--vector FIRST LAST N_EMBD FILE.f32]
// FILE.f32 has the vectors of layers 1.. as floats. Output: JSON, a list for the last token.
#include "llama.h"
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

static bool quiet(float, void *) { return true; }

int main(int argc, char ** argv) {
    llama_log_set([](ggml_log_level l, const char * s, void *) { if (l >= GGML_LOG_LEVEL_ERROR) fputs(s, stderr); }, nullptr);
    llama_backend_init();
    llama_model_params mp = llama_model_default_params();
    mp.progress_callback = quiet; mp.use_extra_bufts = false; mp.n_gpu_layers = 0;
    llama_model * model = llama_model_load_from_file(argv[1], mp);
    if (!model) return 1;
    std::vector<llama_token> ids;
    for (char * t = strtok(argv[2], ","); t; t = strtok(nullptr, ",")) ids.push_back(atoi(t));
    llama_context_params cp = llama_context_default_params();
    cp.n_ctx = 512; cp.n_batch = 512; cp.n_ubatch = 64; cp.n_threads = 1; cp.n_threads_batch = 1;
    cp.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED; cp.type_k = GGML_TYPE_F32; cp.type_v = GGML_TYPE_F32;
    std::vector<llama_adapter_lora *> loras; std::vector<float> scales; std::vector<float> vectors;
    int first = 0, last = 0, n_embd = 0;
    for (int i = 3; i < argc;) {
        if (!strcmp(argv[i], "--lora")) {
            llama_adapter_lora * a = llama_adapter_lora_init(model, argv[i + 1]);
            if (!a) return 1;
            loras.push_back(a); scales.push_back(atof(argv[i + 2])); i += 3;
        } else {
            first = atoi(argv[i + 1]); last = atoi(argv[i + 2]); n_embd = atoi(argv[i + 3]);
            FILE * f = fopen(argv[i + 4], "rb"); float x;
            while (fread(&x, 4, 1, f) == 1) vectors.push_back(x);
            fclose(f); i += 5;
        }
    }
    llama_context * ctx = llama_init_from_model(model, cp);
    if (!ctx) return 1;
    if (!loras.empty() && llama_set_adapters_lora(ctx, loras.data(), loras.size(), scales.data())) return 1;
    if (n_embd && llama_set_adapter_cvec(ctx, vectors.data(), vectors.size(), n_embd, first, last)) return 1;
    if (llama_decode(ctx, llama_batch_get_one(ids.data(), ids.size()))) return 1;
    const int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    const float * l = llama_get_logits_ith(ctx, -1);
    double top = -1e30; for (int i = 0; i < n_vocab; i++) top = std::fmax(top, l[i]);
    double sum = 0; for (int i = 0; i < n_vocab; i++) sum += std::exp(l[i] - top);
    for (int i = 0; i < n_vocab; i++) printf("%s%.6g", i ? "," : "[", l[i] - top - std::log(sum));
    printf("]\n");
}
