"""A text under several masks, each beside the full model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._native import Evaluator, Model, RunLayers


@dataclass
class MaskScore:
    """A mask beside the full model."""

    mask: RunLayers
    #: Perplexity under the mask, and its standard error.
    ppl: float
    stderr: float
    #: The standard error of the difference to the full model's; None of a single chunk.
    delta_stderr: float | None
    #: Share of places where the first choice is the full model's.
    agreement: float
    #: Chance that sampling accepts a token drawn under the mask.
    overlap: float
    #: KL divergence from the full model, in nats.
    kl: float
    #: Share of places where a draft's first token is accepted: it sees the full model's keys and values.
    acceptance: float
    #: Bytes of weights that a pass reads, of the full model's.
    cost: float
    #: By chunk, the mean negative log-likelihood.
    nll_by_chunk: NDArray[np.float64]


@dataclass
class Sweep:
    """The full model on a text, and masks beside it."""

    ppl: float
    stderr: float
    nll_by_chunk: NDArray[np.float64]
    #: Places that were scored.
    tokens: int
    chunks: int
    masks: dict[str, MaskScore]

    def __getitem__(self, name: str) -> MaskScore:
        return self.masks[name]

    def rows(self) -> list[dict[str, Any]]:
        """For `pandas.DataFrame`."""
        columns = ("ppl", "stderr", "delta_stderr", "agreement", "overlap", "kl", "acceptance", "cost")
        return [{"mask": name, **{c: getattr(one, c) for c in columns}} for name, one in self.masks.items()]


def agreement(
    evaluator: Evaluator | Model,
    text: str | list[int],
    masks: Mapping[str, RunLayers] | Iterable[RunLayers],
    *,
    chunks: int | None = None,
    **settings: Any,
) -> Sweep:
    """Scores a text under masks as `spec-run perplexity` does, with the same numbers.

    With a `Model` its weights are loaded for this call, and `settings` are those of `Evaluator`. Who asks again and
    again opens an `Evaluator` once.

    >>> from spec_run import Model, RunLayers
    >>> model = Model.embedded()
    >>> text = "Once upon a time there was a little girl. She had a red ball and a small dog. " * 4
    >>> found = agreement(model, text, {"exit 3": RunLayers.exit(16, 3)}, chunk=32)
    >>> found["exit 3"].ppl > found.ppl and 0 < found["exit 3"].agreement < 1
    True
    """
    if isinstance(evaluator, Model):
        evaluator = Evaluator(evaluator, **settings)
    elif settings:
        raise TypeError(f"{', '.join(settings)}: settings of an Evaluator that is open already")
    if not isinstance(masks, Mapping):
        masks = {str(mask): mask for mask in masks}
    # As the program does: what looks like a special token is text.
    tokens = evaluator.model.tokenize(text) if isinstance(text, str) else list(text)
    found = evaluator.sweep(tokens, list(masks.values()), chunks)
    by_name = {}
    for (name, mask), one in zip(masks.items(), found["masks"]):
        one["nll_by_chunk"] = np.array(one["nll_by_chunk"])
        by_name[name] = MaskScore(mask=mask, **one)
    return Sweep(**{**found, "nll_by_chunk": np.array(found["nll_by_chunk"]), "masks": by_name})
