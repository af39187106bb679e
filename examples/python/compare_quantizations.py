"""Two files of one model, by the divergence of what they say: `python examples/python/compare_quantizations.py A.gguf B.gguf TEXT`.

`spec-run perplexity --kl-divergence-base` does the same over long texts, with files in between.
"""

import sys
from pathlib import Path

import numpy as np

from spec_run import Batch, Context, Model

first, second = (Model.open(path) for path in sys.argv[1:3])
tokens = first.tokenize(Path(sys.argv[3]).read_text())[:1024]
assert first.n_vocab == second.n_vocab, "models of one vocabulary are needed"


def logprobs(model: Model, tokens: list[int]) -> np.ndarray:
    """Of every token at every place."""
    logits = Context(model, n_ctx=len(tokens)).decode(Batch.prompt(tokens, all_logits=True)).astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


p, q = logprobs(first, tokens), logprobs(second, tokens)
divergence = (np.exp(p) * (p - q)).sum(axis=1)
same = (p.argmax(axis=1) == q.argmax(axis=1)).mean()
error = divergence.std() / np.sqrt(len(tokens))
print(f"{first.name} against {second.name}, {len(tokens)} tokens")
print(f"KL divergence {divergence.mean():.5f} ± {error:.5f}, at most {divergence.max():.4f}; same first choice {100 * same:.1f} %")
