"""spec-run quantize beside llama.cpp's quantizer: tensor types, errors, perplexity of both files, and time.

    LLAMA_CPP_LIB_PATH=... python benches/peer/quantize.py --spec-run PROGRAM MODEL-F16.gguf TEXT [TYPE...]

Both quantize the same file with the same threads, by turns. Perplexities are llama.cpp's of both files, so that only the
weights differ. The package `gguf` dequantizes for the errors.
"""

import argparse
import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
import time

import gguf
import numpy as np
from gguf.quants import dequantize

from perplexity import lib, theirs as perplexity

# llama.h's numbers.
TYPES = {"Q8_0": 7, "Q6_K": 18, "Q5_K_M": 17, "Q5_K_S": 16, "Q5_1": 9, "Q5_0": 8, "Q4_K_M": 15, "Q4_K_S": 14, "Q4_1": 3, "Q4_0": 2,
         "IQ4_NL": 25, "IQ4_XS": 30, "MXFP4_MOE": 38, "Q3_K_L": 13, "Q3_K_M": 12, "Q3_K_S": 11, "Q2_K": 10}


def peer(source, to, number, threads):
    params = lib.llama_model_quantize_default_params()
    params.nthread, params.ftype = threads, number
    if lib.llama_model_quantize(source.encode(), to.encode(), ctypes.byref(params)):
        raise RuntimeError("llama_model_quantize failed")


def error(source, path):
    total = 0.0
    for tensor in gguf.GGUFReader(path).tensors:
        x = source[tensor.name]
        total += ((dequantize(tensor.data, tensor.tensor_type) - dequantize(x.data, x.tensor_type)) ** 2).sum(dtype=np.float64)
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spec-run", default="spec-run")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--chunks", type=int, default=32)
    parser.add_argument("--no-perplexity", action="store_true")
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("types", nargs="*", default=list(TYPES))
    args = parser.parse_args()
    quiet = lib.llama_log_callback(lambda level, text, data: None)
    lib.llama_log_set(quiet, ctypes.c_void_p(0))
    lib.llama_backend_init()
    text = open(args.text, "rb").read()
    source = {tensor.name: tensor for tensor in gguf.GGUFReader(args.model).tensors}
    print("type | types alike | error, ratio | perplexity theirs | ours | ratio | seconds theirs | ours | ratio")
    for name in args.types:
        with tempfile.TemporaryDirectory() as folder:
            theirs, ours = os.path.join(folder, "theirs.gguf"), os.path.join(folder, "ours.gguf")
            times = [[], []]
            for _ in range(args.rounds):
                start = time.perf_counter()
                peer(args.model, theirs, TYPES[name], args.threads)
                middle = time.perf_counter()
                command = [args.spec_run, "quantize", "-q", "--force", "-t", str(args.threads), args.model, ours, name]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
                times[0].append(middle - start)
                times[1].append(time.perf_counter() - middle)
            types = [[(t.name, t.tensor_type) for t in gguf.GGUFReader(path).tensors] for path in (theirs, ours)]
            a, b = (statistics.median(t) for t in times)
            ppl = [float("nan")] * 2 if args.no_perplexity else [perplexity(path, text, 128, args.chunks)[0] for path in (theirs, ours)]
            ratio = error(source, ours) / error(source, theirs)
            print(f"{name} | {types[0] == types[1]} | {ratio:.5f} | {ppl[0]:.4f} | {ppl[1]:.4f} | {ppl[1] / ppl[0]:.5f} | "
                  f"{a:.2f} | {b:.2f} | {a / b:.2f}", flush=True)


if __name__ == "__main__":
    main()
