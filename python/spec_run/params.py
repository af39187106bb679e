"""How a text is made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class SamplingParams:
    """How tokens are chosen and when a text ends, by vLLM's names and defaults.

    With a seed a text can be had again; without one it is drawn, and `CompletionOutput.seed` says which.

    >>> SamplingParams(temperature=0, max_tokens=8).max_tokens
    8
    >>> SamplingParams(top_p=1.5)
    Traceback (most recent call last):
    ...
    ValueError: top_p 1.5: above 0, at most 1
    """

    n: int = 1
    temperature: float = 1.0
    #: 0 and -1: off.
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: "int | None" = None
    #: Texts that end the text; they are not part of it.
    stop: "str | Sequence[str]" = ()
    #: None: until the text or its room ends.
    max_tokens: "int | None" = 16
    ignore_eos: bool = False
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    #: So many of the likeliest tokens at each place; 0: only the chosen one.
    logprobs: "int | None" = None
    #: The same of the prompt.
    prompt_logprobs: "int | None" = None
    #: Of this library: the text may be drafted. It is the same either way.
    drafts: bool = True
    #: Of this library: more settings of `Job`, by their names there.
    more: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ranges = [
            ("n", self.n, self.n >= 1, "at least 1"),
            ("temperature", self.temperature, self.temperature >= 0, "0 or more"),
            ("top_k", self.top_k, self.top_k >= -1, "-1 or more"),
            ("top_p", self.top_p, 0 < self.top_p <= 1, "above 0, at most 1"),
            ("min_p", self.min_p, 0 <= self.min_p <= 1, "0 to 1"),
            ("max_tokens", self.max_tokens, self.max_tokens is None or self.max_tokens >= 0, "0 or more, or None"),
            ("logprobs", self.logprobs, (self.logprobs or 0) >= 0, "0 or more"),
            ("prompt_logprobs", self.prompt_logprobs, (self.prompt_logprobs or 0) >= 0, "0 or more"),
        ]
        for name, value, fits, limit in ranges:
            if not fits:
                raise ValueError(f"{name} {value}: {limit}")

    def settings(self, index: int = 0) -> "dict[str, Any]":
        """Settings of a `Job`, for the `index`-th of `n` texts."""
        likely = [0 if one is None else max(one, 1) for one in (self.logprobs, self.prompt_logprobs)]
        return {
            "temp": self.temperature,
            "top_k": max(self.top_k, 0),
            "top_p": self.top_p,
            "min_p": self.min_p,
            "seed": None if self.seed is None else (self.seed + index) % 2**32,
            "stop": [self.stop] if isinstance(self.stop, str) else list(self.stop),
            "max_tokens": self.max_tokens,
            "ignore_eos": self.ignore_eos,
            "repeat_penalty": self.repetition_penalty,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            # vLLM's look at the whole text.
            "repeat_last_n": 2**63 - 1,
            "logit_bias": dict(self.logit_bias),
            "logprobs": max(likely),
            "scores_from": None if self.prompt_logprobs is None else 0,
            "drafts": self.drafts,
            **self.more,
        }

    def clone(self, **changes: Any) -> "SamplingParams":
        """The same but for these."""
        return replace(self, **changes)
