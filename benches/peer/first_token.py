"""How soon the first token is there: the whole program for one token, spec-run and llama.cpp's llama-completion by turns.

Files lie in the system's cache, and each program has run once before it counts.
"""

import argparse
import statistics
import subprocess
import time
from pathlib import Path


def seconds(command):
    started = time.perf_counter()
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
    took = time.perf_counter() - started
    if ran.returncode != 0:
        raise SystemExit(f"{command[0]} ended with {ran.returncode}: {ran.stderr.decode(errors='replace')[-300:]}")
    return took


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spec-run", default="target/release/spec-run")
    parser.add_argument("--llama-completion", required=True)
    parser.add_argument("--threads", default="2")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("files", nargs="+")
    args = parser.parse_args()
    print("| | spec-run, ms | llama.cpp, ms | ratio, median of the rounds |\n|:--|--:|--:|--:|")
    for file in args.files:
        same = ["-m", file, "-p", "Hi", "-n", "1", "-t", args.threads]
        ours = [args.spec_run, *same, "--draft", "none"]
        theirs = [args.llama_completion, *same, "-no-cnv", "--no-warmup"]
        pairs = [(seconds(ours), seconds(theirs)) for _ in range(args.rounds + 1)][1:]
        a, b = (1e3 * statistics.median(side) for side in zip(*pairs))
        ratio = statistics.median(x / y for x, y in pairs)
        print(f"| {Path(file).stem} | {a:.0f} | {b:.0f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
