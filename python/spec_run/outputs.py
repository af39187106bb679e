"""What becomes of a text, by vLLM's names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._native import Ended, Model, Text


@dataclass
class Logprob:
    """How likely a token was in its place."""

    logprob: float
    #: 1 for the likeliest; None where it is not among those that were asked for.
    rank: int | None
    decoded_token: str


@dataclass
class CompletionOutput:
    """A text."""

    index: int
    text: str
    token_ids: list[int]
    #: The sum over all tokens, if log-probabilities were asked for.
    cumulative_logprob: float | None
    #: At each place the likeliest tokens and the chosen one.
    logprobs: list[dict[int, Logprob]] | None
    #: stop, length, or abort.
    finish_reason: str
    #: The text that ended it, if one of `SamplingParams.stop` did.
    stop_reason: str | None
    #: With it the text can be had again.
    seed: int
    #: Tokens of the prompt that were in the cache.
    num_cached_tokens: int
    prefill_seconds: float
    decode_seconds: float
    _report: str = field(repr=False)

    @property
    def report(self) -> dict[str, Any]:
        """What drafting did, as `spec-run --json` says it: by source and by place, with times and the speedup."""
        report: dict[str, Any] = json.loads(self._report)
        return report


@dataclass
class RequestOutput:
    """A prompt and the texts that were made for it."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    #: None at the first token, which has nothing before it.
    prompt_logprobs: list[dict[int, Logprob] | None] | None
    outputs: list[CompletionOutput]
    finished: bool = True


@dataclass
class Score:
    """How likely a text is."""

    token_ids: list[int]
    #: Of each token but the first.
    logprobs: NDArray[np.float32]
    #: The likeliest token in each of these places, and its log-probability.
    likeliest: NDArray[np.uint32]
    likeliest_logprobs: NDArray[np.float32]

    @property
    def total(self) -> float:
        """The log-probability of the whole text, in nats."""
        return float(self.logprobs.astype(np.float64).sum())

    @property
    def perplexity(self) -> float:
        return float(np.exp(-self.total / len(self.logprobs)))


class Stream:
    """The pieces of a text as they come; `output` has the whole when they have ended."""

    output: CompletionOutput | None

    def __init__(self, model: Model, text: Text, logprobs: int | None):
        self._model, self._text, self._logprobs = model, text, logprobs
        self.output = None

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self.output is not None:
            raise StopIteration
        said = self._text.next()
        if isinstance(said, str):
            return said
        self.output = completion(self._model, said, 0, self._logprobs)
        raise StopIteration

    def close(self) -> None:
        """Ends the text with the tokens that are there."""
        self._text.cancel()


def completion(model: Model, ended: Ended, index: int, logprobs: int | None) -> CompletionOutput:
    scores = ended.logprobs
    return CompletionOutput(
        index=index,
        text=ended.text,
        token_ids=ended.tokens,
        cumulative_logprob=sum(score[0] for score in scores) if logprobs is not None else None,
        logprobs=places(model, ended.tokens, scores, logprobs) if logprobs is not None else None,
        finish_reason=ended.finish_reason,
        stop_reason=ended.stopped_by,
        seed=ended.seed,
        num_cached_tokens=ended.cached_tokens,
        prefill_seconds=ended.prefill_seconds,
        decode_seconds=ended.decode_seconds,
        _report=ended.report,
    )


def places(
    model: Model, tokens: list[int], scores: list[tuple[float, list[tuple[int, float]]]], most: int
) -> list[dict[int, Logprob]]:
    """At each place the `most` likeliest tokens, and the one that is there."""

    def logprob(token: int, value: float, rank: int | None) -> Logprob:
        return Logprob(value, rank, model.piece(token).decode(errors="replace"))

    def place(token: int, value: float, likely: list[tuple[int, float]]) -> dict[int, Logprob]:
        ranked = {other: rank for rank, (other, _) in enumerate(likely, 1)}
        found = {token: logprob(token, value, ranked.get(token))}
        found.update((other, logprob(other, v, ranked[other])) for other, v in likely[:most])
        return found

    return [place(token, value, likely) for token, (value, likely) in zip(tokens, scores)]


@dataclass
class EmbeddingOutput:
    """A vector that stands for a text; with pooling none, one for each token."""

    embedding: NDArray[np.float32]


@dataclass
class EmbeddingRequestOutput:
    """A text and its vector."""

    request_id: str
    outputs: EmbeddingOutput
    prompt_token_ids: list[int]


@dataclass
class ScoringOutput:
    """How well two texts fit."""

    score: float


@dataclass
class ScoringRequestOutput:
    """Two texts, read as one, and how well they fit."""

    request_id: str
    outputs: ScoringOutput
    prompt_token_ids: list[int]
