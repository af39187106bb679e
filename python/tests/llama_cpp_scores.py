"""What llama.cpp says of lm-eval's questions: `python llama_cpp_scores.py MODEL.gguf > golden/llama_cpp.json`.

With llama-cpp-python's bindings. Its logits of a context and an ending, token by token, are turned into log-probabilities here,
as lm-eval's own adapters do.
"""

import json
import sys
from pathlib import Path

import llama_cpp
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
questions = [json.loads(line) for line in (ROOT / "tests/server/tasks/stories_choice.jsonl").read_text().splitlines()]
llama = llama_cpp.Llama(sys.argv[1], n_ctx=512, logits_all=True, verbose=False)


def tokens(text, bos):
    return llama.tokenize(text.encode(), add_bos=bos, special=False)


def score(context, ending):
    """As lm-eval splits them: blanks at the end of the context belong to the ending."""
    stripped = context.rstrip()
    whole = tokens(stripped + context[len(stripped) :] + ending, False)
    before = tokens(stripped, False)
    llama.reset()
    llama.eval(whole)
    logits = np.array(llama.scores[: len(whole)], np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    places = range(len(before), len(whole))
    return sum(logprobs[at - 1, whole[at]] for at in places)


print(
    json.dumps(
        {
            "llama_cpp_python": llama_cpp.__version__,
            "model": Path(sys.argv[1]).name,
            "scores": [[score(one["beginning"], " " + ending) for ending in one["endings"]] for one in questions],
        },
        indent=1,
    )
)
