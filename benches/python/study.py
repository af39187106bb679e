"""A study with two workers beside `spec-run search`, each given the same time; then the best mask of each, in turns.

    python benches/python/study.py [--minutes 5] [--program target/release/spec-run]

Needs the package `spec_run[postgresql]` and Debian's PostgreSQL. One worker is killed in the middle and begun again; it has AVX2 only.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python/tests"))

from postgres import postgres  # noqa: E402

from spec_run import Judge, Model, read_masks  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--minutes", type=float, default=5.0)
parser.add_argument("--program", default=ROOT / "target/release/spec-run")
args = parser.parse_args()
seconds = 60 * args.minutes
text = ROOT / "models/stories-val.txt"
folder = Path(tempfile.mkdtemp())


def study() -> Path:
    out, began = folder / "study.json", time.monotonic()
    with postgres() as url:
        same = ["--study", "s", "--storage", url, "-f", str(text)]
        alone = [sys.executable, "-m", "spec_run.search", "worker", *same]
        # Costs are those of the machine when it does nothing else.
        subprocess.run([*alone, "--trials", "1"], check=True)
        worker = [*alone, "--threads", "1"]
        # What an export takes, and a little.
        judging = seconds - 45 - (time.monotonic() - began)
        first = subprocess.Popen([*worker, "--time", str(judging)])
        second = subprocess.Popen([*worker, "--time", str(judging), "--isa", "avx2"])
        time.sleep(judging / 3)
        second.kill()
        second.wait()
        left = 2 * judging / 3
        second = subprocess.Popen([*worker, "--time", str(left), "--isa", "avx2"])
        assert first.wait() == 0 and second.wait() == 0
        export = [sys.executable, "-m", "spec_run.search", "export", *same, "-o", str(out), "--masks", "4", "--time", "12"]
        subprocess.run(export, check=True)
    print(f"study: {time.monotonic() - began:.0f} s, {json.loads(out.read_text())['provenance']['trials']} masks judged")
    return out


def search() -> Path:
    out, began = folder / "search.json", time.monotonic()
    # About so long it looks, and about as long again it times and proves.
    command = [args.program, "search", "-f", text, "-o", out, "--time", str(seconds / 2), "-q", "--json"]
    said = json.loads(subprocess.run(list(map(str, command)), check=True, capture_output=True).stdout)
    print(f"search: {time.monotonic() - began:.0f} s, {said['evaluated']} masks judged")
    return out


model = Model.embedded()
files = {"study": study(), "search": search()}
# Other positions than those of either search, and both masks in turns.
tokens = model.tokenize(text.read_text(), add_special=False)
judge = Judge(model, tokens[len(tokens) // 2 :], positions=2048, chunk=256)
costs = judge.measure_costs(judge.states)
letters = {name: judge.letters(read_masks(path, model)[0][1]) for name, path in files.items()}
steps = dict(zip(letters, judge.time_steps(list(letters.values()))))
proofs = {name: judge.prove(mask, steps[name], costs) for name, mask in letters.items()}
measured = judge.measure([(letters[name], proofs[name]) for name in letters], costs, 40.0)
for name, one in zip(letters, map(json.loads, measured)):
    agreement = json.loads(proofs[name])["agreement"]
    print(
        f"{name}: {letters[name]}: agreement {agreement:.3f} on {judge.held_out} other positions, a step costs {steps[name]:.3f}, "
        f"{one['tok_s']:.0f} tokens per second, {one['speedup']:.3f} times plain decoding"
    )
