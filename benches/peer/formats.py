"""Decode and prefill of one model after another, spec-run and llama-bench by turns.

    python benches/peer/formats.py --llama-bench PATH --spec-run PATH [--rounds 5] 1b-q2_k.gguf 1b-iq3_s.gguf

One row of a table for each file: spec-run's figure divided by llama.cpp's, the median over the rounds, and both medians.
"""

import argparse
import json
import os
import statistics
import subprocess


def speed(program, model, args, test):
    """Tokens per second of one run."""
    command = [*program, "-m", model, "-t", str(args.threads), "-r", "1", "-o", "json", *test]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(out)[0]["avg_ts"]


def by_turns(model, args, test, rounds):
    """`ratio (ours / theirs)`."""
    ours, theirs, ratios = [], [], []
    for _ in range(rounds):
        theirs.append(speed([args.llama_bench], model, args, test))
        ours.append(speed([args.spec_run, "bench"], model, args, test))
        ratios.append(ours[-1] / theirs[-1])
    median = statistics.median
    return f"{median(ratios):.2f} ({median(ours):.3g} / {median(theirs):.3g})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-bench", required=True)
    parser.add_argument("--spec-run", default="spec-run")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("models", nargs="+")
    args = parser.parse_args()
    print("| | decode, tok/s | prefill, tok/s |\n|:--|--:|--:|", flush=True)
    for model in args.models:
        with open(model, "rb") as file:
            while file.read(1 << 24):  # into the page cache
                pass
        decode = by_turns(model, args, ["-p", "0", "-n", str(args.tokens)], args.rounds)
        prefill = by_turns(model, args, ["-n", "0", "-p", str(args.prefill)], max(args.rounds // 2, 1))
        print(f"| {os.path.basename(model)} | {decode} | {prefill} |", flush=True)


if __name__ == "__main__":
    main()
