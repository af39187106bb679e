"""lm-eval in process and over HTTP: the same scores, to the bit; and llama.cpp's, as near as the format is."""

import contextlib
import json
import os
import subprocess
import time
import urllib.request

import pytest
from conftest import PROGRAM, ROOT, built

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="0")
os.environ.setdefault("HF_HOME", str(ROOT / "target/python/hf"))

import lm_eval  # noqa: E402
from lm_eval.models.openai_completions import LocalCompletionsAPI  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

from spec_run import RunLayers  # noqa: E402
from spec_run.lm_eval import SpecRunLM  # noqa: E402

CONTEXT = 512


def evaluated(model, monkeypatch):
    """What lm-eval says of the server tests' tasks."""
    monkeypatch.chdir(ROOT)
    tasks = TaskManager(include_path=str(ROOT / "tests/server/tasks"), include_defaults=False)
    said = lm_eval.simple_evaluate(
        model=model, tasks=["stories_choice"], task_manager=tasks, bootstrap_iters=0, log_samples=True
    )
    answers = [one["resps"] for one in said["samples"]["stories_choice"]]
    return said["results"]["stories_choice"], answers


@contextlib.contextmanager
def server():
    command = [built(PROGRAM), "serve", "--port", "0", "-c", str(4 * CONTEXT), "--parallel", "4", "--no-learn", "--log-format", "none"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = next(line for line in process.stderr if "http://" in line)
            url = line[line.index("http://") :].strip()
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline:
                with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/health"):
                    break
            yield url
        finally:
            process.terminate()


def test_scores_are_the_same_in_process_and_over_http(monkeypatch, say):
    here, answers = evaluated(SpecRunLM(max_length=CONTEXT), monkeypatch)
    with server() as url:
        api = LocalCompletionsAPI(
            model="m", base_url=f"{url}/v1/completions", tokenizer_backend="remote", max_length=CONTEXT, num_concurrent=4
        )
        there, told = evaluated(api, monkeypatch)
    assert answers == told and here["acc,none"] == there["acc,none"] > 0.5
    say(f"lm-eval, {len(answers)} questions: accuracy {here['acc,none']:.3f} in process and over HTTP, all scores the same")


def test_scores_are_llama_cpps(monkeypatch, say):
    """`llama_cpp_scores.py` asked llama-cpp-python, which rounds activations to 8 bits in its own way."""
    theirs = json.loads((ROOT / "python/tests/golden/llama_cpp.json").read_text())["scores"]
    result, answers = evaluated(SpecRunLM(max_length=CONTEXT), monkeypatch)
    # Of each question, an answer with its one response for each ending.
    ours = [[one[0][0] for one in question] for question in answers]
    differences = [abs(a - b) for mine, its in zip(ours, theirs, strict=True) for a, b in zip(mine, its, strict=True)]
    questions = [json.loads(line) for line in (ROOT / "tests/server/tasks/stories_choice.jsonl").read_text().splitlines()]
    right = [scores.index(max(scores)) == one["right"] for scores, one in zip(theirs, questions)]
    say(f"{len(differences)} log-likelihoods differ from llama.cpp's by {max(differences):.4f} at most, {sum(differences) / len(differences):.4f} in the mean")
    assert result["acc,none"] == sum(right) / len(right)
    assert max(differences) < 0.15


def test_a_mask_is_evaluated(monkeypatch, say):
    full, answers = evaluated(SpecRunLM(max_length=CONTEXT), monkeypatch)
    masked, other = evaluated(SpecRunLM(exit=8, max_length=CONTEXT), monkeypatch)
    assert answers != other and masked["acc,none"] <= full["acc,none"]
    say(f"accuracy {full['acc,none']:.3f} whole, {masked['acc,none']:.3f} by 8 of 16 layers")


def test_a_text_is_made_until_a_word():
    lm = SpecRunLM(max_length=128)
    request = lambda until, most: type("Request", (), {"args": ("Once upon a time", {"until": until, "max_gen_toks": most})})()
    whole, short = lm.generate_until([request([], 30), request(["girl"], 30)])
    assert short == whole[: whole.index("girl")]


def test_rolling_windows_cover_a_text_once():
    lm = SpecRunLM(max_length=64)
    text = (ROOT / "models/stories-val.txt").read_text()[:1500]
    request = type("Request", (), {"args": (text,)})()
    (said,) = lm.loglikelihood_rolling([request])
    tokens = lm.tok_encode(text)
    size, total = 63, 0.0
    for start in range(0, len(tokens), size):
        part = tokens[start : start + size]
        before = [lm.prefix_token_id] if start == 0 else tokens[max(start + len(part) - size - 1, 0) : start]
        total += lm.llm.loglikelihoods([(before, part)])[0][0]
    assert said == pytest.approx(total, abs=1e-4)


def test_lm_evals_command_line_knows_the_model(monkeypatch, tmp_path):
    import sys

    command = [sys.executable, "-m", "spec_run.lm_eval", "run", "--model", "spec-run", "--model_args", f"exit=12,max_length={CONTEXT}"]
    command += ["--include_path", "tests/server/tasks", "--tasks", "stories_choice", "--limit", "4", "--output_path", str(tmp_path)]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert made.returncode == 0 and "stories_choice" in made.stdout, made.stderr[-2000:]
    (results,) = tmp_path.glob("**/results_*.json")
    assert "acc,none" in json.loads(results.read_text())["results"]["stories_choice"]


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="exit 17: 1 to 16 layers"):
        SpecRunLM(exit=17)
    with pytest.raises(TypeError, match="there is no setting"):
        SpecRunLM(pth="x")
    assert SpecRunLM(mask=RunLayers.exit(16, 8), max_length=64).mask == RunLayers.exit(16, 8)
