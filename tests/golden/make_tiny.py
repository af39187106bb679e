"""Writes tiny/*.gguf, random models of a few thousand weights that use what the stories models do not (neox rotation,
biases, head norms, rope factors, linear and yarn scaling), and tiny/logits.json, what llama.cpp
computes for them without flash attention and with K/V in f32.

    pip install llama-cpp-python==0.3.36 gguf numpy
    python3 make_tiny.py
"""

import json
import pathlib

import gguf
import llama_cpp as llama
import numpy as np

OUT = pathlib.Path(__file__).parent / "tiny"
DIM, HEADS, KV_HEADS, FFN, VOCAB, LAYERS, CONTEXT = 32, 4, 2, 48, 64, 2, 256
TOKENS = [(7 * i + 3) % VOCAB for i in range(200)]
POSITIONS = [0, 1, 39, 120, 199]


def write(name, arch, head_dim=8, biases=False, head_norms=False, tied=False, rope_factors=False, keys=lambda w: None):
    rng = np.random.default_rng(len(name))
    writer = gguf.GGUFWriter(OUT / f"{name}.gguf", arch)
    writer.add_name(name)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(DIM)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(VOCAB)
    writer.add_tokenizer_model("none")
    if head_dim != DIM // HEADS:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    keys(writer)

    def add(tensor, *shape, scale=None, mean=0.0):
        scale = 1.5 / np.sqrt(shape[-1]) if scale is None else scale
        writer.add_tensor(tensor, (mean + scale * rng.standard_normal(shape)).astype(np.float32))

    add("token_embd.weight", VOCAB, DIM, scale=1.0)
    add("output_norm.weight", DIM, scale=0.2, mean=1.0)
    if not tied:
        add("output.weight", VOCAB, DIM)
    if rope_factors:
        writer.add_tensor("rope_freqs.weight", np.linspace(1.0, 8.0, head_dim // 2).astype(np.float32))
    for layer in range(LAYERS):
        at = f"blk.{layer}."
        add(at + "attn_norm.weight", DIM, scale=0.2, mean=1.0)
        for part, rows in (("q", HEADS * head_dim), ("k", KV_HEADS * head_dim), ("v", KV_HEADS * head_dim)):
            add(f"{at}attn_{part}.weight", rows, DIM)
            if biases:
                add(f"{at}attn_{part}.bias", rows, scale=0.5)
            if head_norms and part != "v":
                add(f"{at}attn_{part}_norm.weight", head_dim, scale=0.2, mean=1.0)
        add(at + "attn_output.weight", DIM, HEADS * head_dim)
        add(at + "ffn_norm.weight", DIM, scale=0.2, mean=1.0)
        add(at + "ffn_gate.weight", FFN, DIM)
        add(at + "ffn_up.weight", FFN, DIM)
        add(at + "ffn_down.weight", DIM, FFN)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def logits(name):
    model = llama.llama_model_load_from_file(str(OUT / f"{name}.gguf").encode(), llama.llama_model_default_params())
    params = llama.llama_context_default_params()
    params.n_ctx = CONTEXT
    params.type_k = params.type_v = 0
    params.flash_attn_type = 0
    context = llama.llama_init_from_model(model, params)
    rows = {}
    for position, token in enumerate(TOKENS):
        batch = llama.llama_batch_get_one((llama.llama_token * 1)(token), 1)
        assert llama.llama_decode(context, batch) == 0
        if position in POSITIONS:
            row = np.ctypeslib.as_array(llama.llama_get_logits_ith(context, -1), (VOCAB,))
            rows[position] = [round(float(x), 6) for x in row]
    llama.llama_free(context)
    llama.llama_model_free(model)
    return rows


def linear(w):
    w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
    w.add_rope_scaling_factor(4.0)


def yarn(w):
    w.add_rope_freq_base(1000.0)
    w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    w.add_rope_scaling_factor(4.0)
    w.add_rope_scaling_orig_ctx_len(64)


OUT.mkdir(exist_ok=True)
MODELS = {
    "llama-3-factors": dict(arch="llama", tied=True, rope_factors=True, keys=lambda w: w.add_rope_freq_base(500000.0)),
    "llama-linear": dict(arch="llama", keys=linear),
    "llama-biases": dict(arch="llama", biases=True),
    "qwen2": dict(arch="qwen2", biases=True, keys=lambda w: w.add_rope_freq_base(1e6)),
    "qwen2-yarn": dict(arch="qwen2", biases=True, tied=True, keys=yarn),
    "qwen3": dict(arch="qwen3", head_dim=16, head_norms=True, keys=lambda w: w.add_rope_freq_base(1e6)),
}
for name, options in MODELS.items():
    write(name, **options)
json.dump({name: logits(name) for name in MODELS}, open(OUT / "logits.json", "w"))
