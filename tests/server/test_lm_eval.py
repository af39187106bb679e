"""lm-eval reads log-likelihoods from the server: the same bits as one token a pass by the library alone.

`examples/score.rs` is the judge: no server, no engine, no batch, no cached prefix.
"""

import json
import math
import os
import subprocess

import pytest

from serving import BINARY, ROOT, SHARED, Server, model, needed

# Before anything of Hugging Face is imported.
os.environ.update(
    HF_HOME=str(ROOT / "target/server/hf"), HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="0"
)

import lm_eval  # noqa: E402
from lm_eval.models.openai_completions import LocalCompletionsAPI  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

NAME = "stories13m-q4_k"
CONTEXT = 512


@pytest.fixture(scope="module")
def server():
    with Server(NAME, "-c", 4 * CONTEXT, "--parallel", 4) as server:
        yield server


class Watched(LocalCompletionsAPI):
    """Keeps what was asked and what came: (context, continuation, log-likelihood, was it the likeliest)."""

    def _loglikelihood_tokens(self, requests, **kwargs):
        answers = super()._loglikelihood_tokens(requests, **kwargs)
        self.heard = getattr(self, "heard", []) + [
            (tuple(before), tuple(after), *answer) for (_, before, after), answer in zip(requests, answers)
        ]
        return answers


def evaluated(server, monkeypatch, **how):
    """What lm-eval says of our tasks, and what it heard."""
    monkeypatch.chdir(ROOT)
    watched = Watched(
        model=NAME, base_url=f"{server.url}/v1/completions", tokenizer_backend="remote", max_length=CONTEXT, **how
    )
    tasks = TaskManager(include_path=str(ROOT / "tests/server/tasks"), include_defaults=False)
    said = lm_eval.simple_evaluate(
        model=watched, tasks=["stories_choice", "stories_rolling"], task_manager=tasks, bootstrap_iters=0
    )
    return said, watched.heard


class Judge:
    """Scores of token lists, each computed once."""

    def __init__(self):
        self.known = {}

    def learn(self, texts):
        new = [text for text in dict.fromkeys(texts) if text not in self.known]
        lines = "".join(json.dumps(text) + "\n" for text in new)
        program = needed(os.environ.get("SCORE", BINARY.parent / "examples/score"))
        made = subprocess.run([program, model(NAME)], input=lines, capture_output=True, text=True, check=True)
        for text, line in zip(new, made.stdout.splitlines(), strict=True):
            self.known[text] = json.loads(line)

    def __call__(self, before, after):
        score = self.known[before + after]
        place = slice(len(before) - 1, None)
        logprobs, likeliest = score["logprobs"][place], score["likeliest"][place]
        assert len(logprobs) == len(after)
        return sum(logprobs), likeliest == list(after)


@pytest.fixture(scope="module")
def judge():
    return Judge()


@pytest.mark.parametrize("how", [dict(), dict(num_concurrent=4), dict(batch_size=8)], ids=["alone", "four", "batches"])
def test_log_likelihoods_have_the_same_bits(server, judge, monkeypatch, say, how):
    said, heard = evaluated(server, monkeypatch, **how)
    judge.learn(before + after for before, after, *_ in heard)
    wrong = [one for one in heard if one[2:] != judge(*one[:2])]
    assert not wrong, f"{len(wrong)} of {len(heard)}: {wrong[0]} but {judge(*wrong[0][:2])}"
    choices, rolling = said["results"]["stories_choice"], said["results"]["stories_rolling"]
    tokens = sum(len(after) for _, after, *_ in heard)
    say(
        f"lm-eval {how or 'alone'}: {len(heard)} log-likelihoods over {tokens} tokens, all the same bits; "
        f"accuracy {choices['acc,none']:.3f}, perplexity of a word {rolling['word_perplexity,none']:.3f}"
    )
    # 64 endings, and the windows of a long text.
    text = (SHARED / "fixtures/text/stories-val.txt").read_text()[:20_000]
    long = len(server.json("/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"])
    assert len(heard) == 64 + math.ceil(long / (CONTEXT - 2)) > 70
    # What a coin with four sides would say is 0.25.
    assert choices["acc,none"] > 0.6


def test_the_tokens_of_a_text_are_as_likely_as_perplexity_finds(server):
    """The second halves of eight chunks, as `spec-run perplexity` scores them."""
    size, text = 256, needed(SHARED / "fixtures/text/stories-val.txt")
    command = [needed(BINARY), "perplexity", "-q", "--json", "-m", model(NAME), "-f", text, "-c", size, "--chunks", 8]
    said = json.loads(subprocess.run(map(str, command), capture_output=True, check=True).stdout)
    tokens = server.json("/tokenize", {"prompt": text.read_text(), "parse_special": False})["tokens"]
    chunks = [tokens[at : at + size] for at in range(0, 8 * size, size)]
    for chunk in chunks:
        chunk[0] = tokens[0]
    ask = dict(prompt=chunks, echo=True, logprobs=1, max_tokens=1, temperature=0)
    choices = server.json("/v1/completions", ask)["choices"]
    scored = [value for one in choices for value in one["logprobs"]["token_logprobs"][size // 2 + 1 : size]]
    assert len(scored) == said["tokens"]
    # `perplexity` sums before it rounds.
    assert math.exp(-sum(scored) / len(scored)) == pytest.approx(said["ppl"], rel=1e-6)


def test_a_text_that_would_end_is_scored_to_its_last_token(server):
    """lm-eval leaves the last entry out as the one that was made, also where an end of the text was."""
    prompt = server.json("/tokenize", {"prompt": "The end."})["tokens"]
    ask = dict(prompt=prompt, echo=True, logprobs=1, max_tokens=1, temperature=0, logit_bias={"2": 100})
    logprobs = server.json("/v1/completions", ask)["choices"][0]["logprobs"]
    assert len(logprobs["token_logprobs"]) == len(prompt) + 1
