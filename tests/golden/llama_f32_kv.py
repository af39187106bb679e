"""Writes llama_f32_kv.json: the log-probabilities that reference.json of the fixtures has, computed by llama.cpp
again without flash attention and with K/V in f32. (reference.json was computed with the defaults, where flash
attention adds up values in f16; the two lie up to 0.0064 apart.)

    pip install llama-cpp-python==0.3.36 numpy
    python3 llama_f32_kv.py ../../../shared/fixtures > llama_f32_kv.json
"""

import json
import sys

import llama_cpp as llama
import numpy as np

GGML_TYPE_F32 = 0
FLASH_ATTENTION_OFF = 0

fixtures = sys.argv[1]
reference = json.load(open(f"{fixtures}/reference.json"))
llama.llama_backend_init()


def logprobs(file, prompt_ids, tokens):
    model = llama.llama_model_load_from_file(f"{fixtures}/models/{file}".encode(), llama.llama_model_default_params())
    params = llama.llama_context_default_params()
    params.n_ctx = 512
    params.type_k = params.type_v = GGML_TYPE_F32
    params.flash_attn_type = FLASH_ATTENTION_OFF
    context = llama.llama_init_from_model(model, params)
    n_vocab = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))

    def decode(ids):
        array = (llama.llama_token * len(ids))(*ids)
        llama.llama_decode(context, llama.llama_batch_get_one(array, len(ids)))

    decode(prompt_ids)
    for token in tokens:
        row = np.ctypeslib.as_array(llama.llama_get_logits_ith(context, -1), (n_vocab,)).astype(np.float64)
        yield row - row.max() - np.log(np.exp(row - row.max()).sum())
        decode([token])
    llama.llama_free(context)
    llama.llama_model_free(model)


out = []
for entry in reference["greedy"]:
    if "f16" not in entry["model"] and "260K" not in entry["model"]:
        continue
    rows = logprobs(entry["model"], entry["prompt_ids"], entry["tokens"][: len(entry["top"])])
    top = [[[id, round(float(row[id]), 6)] for id, _ in ids] for row, ids in zip(rows, entry["top"])]
    out.append({"model": entry["model"], "prompt": entry["prompt"], "top": top})
print(json.dumps(out))
