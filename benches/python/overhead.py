"""What Python adds: 256 tokens by `LLM.generate`, and by the program, in turns; without drafts, which differ from run to run.

    python benches/python/overhead.py [-m MODEL.gguf] [--rounds 15] [--program target/release/spec-run]
"""

import argparse
import json
import statistics
import subprocess
import time
from pathlib import Path

from spec_run import LLM, SamplingParams

parser = argparse.ArgumentParser()
parser.add_argument("-m", "--model")
parser.add_argument("--rounds", type=int, default=15)
parser.add_argument("--program", default=Path(__file__).resolve().parents[2] / "target/release/spec-run")
args = parser.parse_args()

PROMPT, TOKENS = "Once upon a time", 256
llm = LLM(args.model, drafts=False, texts=1)
params = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True)
command = [str(args.program), "-p", PROMPT, "-n", str(TOKENS), "--temp", "0", "--ignore-eos", "--draft", "none", "--json"]
command += ["-m", args.model] if args.model else []


def python() -> float:
    began = time.perf_counter()
    out = llm.generate(PROMPT, params)[0].outputs[0]
    assert len(out.token_ids) == TOKENS
    return time.perf_counter() - began


def program() -> float:
    """Without loading the model: as the report says it."""
    said = json.loads(subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL).stdout)
    assert said["generated"] == TOKENS
    return float(said["seconds"])


python(), program()
pairs = [(python(), program()) for _ in range(args.rounds)]
ratio = statistics.median(p / q for p, q in pairs)
best = [min(column) for column in zip(*pairs)]
print(f"{TOKENS} tokens: generate() takes {ratio:.3f} of the program's time (median of {args.rounds}), best against best {best[0] / best[1]:.3f}")
