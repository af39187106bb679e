// llama.cpp's embeddings of texts, as JSON:   judge MODEL POOLING 1,2,3 ...   (tokens of a text in each argument)
// and its tokens:   judge MODEL tokenize TEXT ...
// Built against llama.cpp:
//   g++ -O1 -std=c++17 -I$L/include -I$L/ggml/include judge.cpp -L$B -lllama -lggml -lggml-base -Wl,-rpath,$B -o judge
#include "llama.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>
int main(int argc, char ** argv) {
    llama_log_set([](ggml_log_level l, const char * s, void *) { if (l >= GGML_LOG_LEVEL_ERROR) fputs(s, stderr); }, nullptr);
    llama_backend_init();
    llama_model_params mp = llama_model_default_params(); mp.n_gpu_layers = 0; mp.use_extra_bufts = false;
    llama_model * model = llama_model_load_from_file(argv[1], mp);
    if (!model) return 1;
    if (!strcmp(argv[2], "tokenize")) {
        const llama_vocab * v = llama_model_get_vocab(model);
        for (int a = 3; a < argc; a++) { std::vector<llama_token> t(strlen(argv[a]) + 16); int n = llama_tokenize(v, argv[a], strlen(argv[a]), t.data(), t.size(), true, true); for (int i = 0; i < n; i++) printf("%d%s", t[i], i + 1 < n ? "," : "\n"); }
        return 0;
    }
    llama_context_params cp = llama_context_default_params();
    cp.n_ctx = 2048; cp.n_batch = 2048; cp.n_ubatch = 2048; cp.n_threads = 1; cp.n_threads_batch = 1; cp.embeddings = true; cp.n_seq_max = 1;
    cp.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED; cp.type_k = GGML_TYPE_F32; cp.type_v = GGML_TYPE_F32;
    cp.pooling_type = (enum llama_pooling_type) atoi(argv[2]);
    printf("[");
    for (int a = 3; a < argc; a++) {
        std::vector<llama_token> ids; std::stringstream ss(argv[a]); std::string id;
        while (std::getline(ss, id, ',')) ids.push_back(atoi(id.c_str()));
        llama_context * ctx = llama_init_from_model(model, cp);
        if (!ctx) return 1;
        llama_batch b = llama_batch_init(ids.size(), 0, 1);
        for (size_t i = 0; i < ids.size(); i++) { b.token[i] = ids[i]; b.pos[i] = i; b.n_seq_id[i] = 1; b.seq_id[i][0] = 0; b.logits[i] = 1; }
        b.n_tokens = ids.size();
        if (llama_decode(ctx, b)) { fprintf(stderr, "decode\n"); return 1; }
        int pool = llama_pooling_type(ctx), n = pool == 4 ? llama_model_n_cls_out(model) : llama_model_n_embd_out(model);
        printf("%s[", a > 3 ? ",\n" : "");
        for (size_t i = 0; i < (pool == 0 ? ids.size() : 1); i++) {
            const float * e = pool == 0 ? llama_get_embeddings_ith(ctx, i) : llama_get_embeddings_seq(ctx, 0);
            printf("%s[", i ? "," : "");
            for (int j = 0; j < n; j++) printf("%s%.6g", j ? "," : "", e[j]);
            printf("]");
        }
        printf("]");
        llama_free(ctx);
    }
    printf("]\n");
}
