"""Perplexity by spec-run beside llama.cpp's on the same files, windows and tokens.

    python benches/peer/perplexity.py [--spec-run PROGRAM] [--ctx N] [--chunks N] [--quantize TYPE]
        [--cache-type-k TYPE] [--cache-type-v TYPE] TEXT FILE.gguf..

Windows are llama-perplexity's: consecutive ones, the first token of each replaced by the one that begins a text where the
vocabulary asks for it, the second half counted. Keys and values are of the same types on both sides, f16 if nothing is
said; llama.cpp has flash attention where values are in blocks, because it needs it there. With --quantize, each file is
first written by llama.cpp's quantizer in that type (as Q8_0), to a temporary one.
"""

import argparse
import ctypes
import json
import math
import os
import subprocess
import sys
import tempfile

import numpy
from llama_cpp import llama_cpp as lib


def tokens_of(vocab, text):
    size = len(text) + 16
    out = (lib.llama_token * size)()
    n = lib.llama_tokenize(vocab, text, len(text), out, size, True, False)
    assert n >= 0, n
    return list(out[:n])


# As ggml.h numbers them.
CACHE_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "iq4_nl": 20, "bf16": 30}


def theirs(path, text, n_ctx, chunks, types):
    params = lib.llama_model_default_params()
    # Its matrices in the order of the file: what it makes of them for AMX fails on some virtual machines.
    params.use_extra_bufts = False
    model = lib.llama_model_load_from_file(path.encode(), params)
    if not model:
        sys.exit(f"{path}: llama.cpp cannot load it")
    vocab = lib.llama_model_get_vocab(model)
    params = lib.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = n_ctx
    params.n_threads = params.n_threads_batch = 2
    params.type_k, params.type_v = (CACHE_TYPES[name] for name in types)
    if types[1] not in ("f32", "f16", "bf16"):
        params.flash_attn_type = lib.LLAMA_FLASH_ATTN_TYPE_ENABLED
    context = lib.llama_init_from_model(model, params)
    n_vocab = lib.llama_vocab_n_tokens(vocab)
    tokens = tokens_of(vocab, text)
    batch = lib.llama_batch_init(n_ctx, 0, 1)
    loss, count = 0.0, 0
    for start in range(0, min(chunks, len(tokens) // n_ctx) * n_ctx, n_ctx):
        window = tokens[start : start + n_ctx]
        first = lib.llama_vocab_bos(vocab) if lib.llama_vocab_get_add_bos(vocab) else window[0]
        lib.llama_memory_clear(lib.llama_get_memory(context), True)
        for i, token in enumerate([first] + window[1:]):
            batch.token[i], batch.pos[i] = token, i
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
            batch.logits[i] = i >= n_ctx // 2
        batch.n_tokens = n_ctx
        if lib.llama_decode(context, batch) != 0:
            sys.exit(f"{path}: llama_decode failed")
        for i in range(n_ctx // 2, n_ctx - 1):
            row = numpy.ctypeslib.as_array(lib.llama_get_logits_ith(context, i), (n_vocab,)).astype(numpy.float64)
            row -= row.max()
            loss += math.log(numpy.exp(row).sum()) - row[window[i + 1]]
            count += 1
    lib.llama_free(context)
    lib.llama_model_free(model)
    return math.exp(loss / count), count


def ours(program, path, text, n_ctx, chunks, types):
    command = [program, "perplexity", "-m", path, "-f", text, "-c", str(n_ctx), "--chunks", str(chunks), "--json"]
    command += ["-ctk", types[0], "-ctv", types[1]]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return json.loads(result.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spec-run", default="target/release/spec-run")
    parser.add_argument("--ctx", type=int, default=128)
    parser.add_argument("--chunks", type=int, default=16)
    parser.add_argument("--quantize", help="a type of llama.cpp's quantizer")
    parser.add_argument("--cache-type-k", choices=CACHE_TYPES, default="f16")
    parser.add_argument("--cache-type-v", choices=CACHE_TYPES, default="f16")
    parser.add_argument("text")
    parser.add_argument("files", nargs="+")
    args = parser.parse_args()
    silence = lib.llama_log_callback(lambda level, text, data: None)
    lib.llama_log_set(silence, ctypes.c_void_p(0))
    lib.llama_backend_init()
    text = open(args.text, "rb").read()
    types = (args.cache_type_k, args.cache_type_v)
    print("| file | llama.cpp | spec-run | off by |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for path in args.files:
            name = os.path.basename(path)
            if args.quantize:
                params = lib.llama_model_quantize_default_params()
                params.ftype = getattr(lib, f"LLAMA_FTYPE_MOSTLY_{args.quantize.upper()}")
                quantized = os.path.join(folder, name)
                if lib.llama_model_quantize(path.encode(), quantized.encode(), ctypes.byref(params)) != 0:
                    sys.exit(f"{path}: llama.cpp cannot quantize it")
                path = quantized
            reference, count = theirs(path, text, args.ctx, args.chunks, types)
            result = ours(args.spec_run, path, args.text, args.ctx, args.chunks, types)
            assert result["tokens"] == count, (result["tokens"], count)
            off = result["ppl"] / reference - 1
            print(f"| {name} | {reference:.4f} | {result['ppl']:.4f} | {100 * off:+.3f} % |", flush=True)


if __name__ == "__main__":
    main()
