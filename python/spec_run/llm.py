"""Texts and scores of a model, as users of vLLM know them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Union, overload

import numpy as np

from ._native import Embedder, Engine, Evaluator, Job, Model, RunLayers, Text
from .masks import Mask
from .outputs import (
    CompletionOutput,
    EmbeddingOutput,
    EmbeddingRequestOutput,
    RequestOutput,
    Score,
    ScoringOutput,
    ScoringRequestOutput,
    Stream,
    completion,
    places,
)
from .params import SamplingParams
from .sweep import Sweep, agreement

#: A text, its tokens, or a dict with `prompt` or `prompt_token_ids`.
Prompt = Union[str, Sequence[int], Mapping[str, Any]]
#: From the tokens of a text to those that may come next.
Proposer = Callable[[list[int]], Iterable[int]]


class LLM:
    """A model that makes and scores texts, several at once.

    A text depends on its prompt, the settings and the seed alone: not on what else is made, on drafts, or on the cache.

    >>> llm = LLM()
    >>> [out.outputs[0].text for out in llm.generate(["Tom had a", "The sun"], SamplingParams(temperature=0, max_tokens=3))]
    [' big red car', ' was shining bright']
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | Model | None = None,
        *,
        texts: int = 8,
        drafts: bool = True,
        masks: Mapping[str, RunLayers] | None = None,
        proposers: Mapping[str, Proposer] | None = None,
        **settings: Any,
    ):
        """Opens a GGUF file; without one, the small model that comes along.

        `texts` at once at most. It drafts with masks that suit the model, or with `masks` instead, and with
        `proposers`, functions that guess how a text goes on. `settings` are those of `Context`: `n_ctx` (cells for all
        texts together), `threads`, `device`, `gpu_layers`, `key_type`, `value_type`, `isa`, `loras`, `control_vectors` and so on.
        """
        if isinstance(model, Model):
            self.model = model
        else:
            self.model = Model.embedded() if model is None else Model.open(os.fspath(model))
        self._settings = settings
        self._evaluators: dict[int, Evaluator] = {}
        self._embedders: dict[str | None, Embedder] = {}
        self._texts = texts
        self._made = 0
        self._engine: Engine | None = None
        if self.model.writes_text:
            self._engine = Engine(
                self.model,
                texts=texts,
                drafts=drafts,
                masks=None if masks is None else list(masks.items()),
                proposers=list((proposers or {}).items()),
                **settings,
            )

    @property
    def engine(self) -> Engine:
        """What makes texts."""
        if self._engine is None:
            raise ValueError(f"{self.model.name} makes embeddings, not text: see `LLM.embed`")
        return self._engine

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        mask: Mask | None = None,
        loras: Sequence[float] | None = None,
    ) -> list[RequestOutput]:
        """Makes texts, in the order of the prompts. Under a `mask` they are the masked model's, without drafts. `loras` says
        how much of each of the adapters they have that the model was opened with; without it, as was said there."""
        several = _several(prompts)
        params = _each(sampling_params or SamplingParams(), len(several))
        asked: list[tuple[str | None, list[int], SamplingParams, list[Text]]] = []
        try:
            for prompt, one in zip(several, params):
                given, tokens = self._tokens(prompt)
                jobs = (Job(tokens, **{"mask": mask, "loras": loras, **one.settings(index)}) for index in range(one.n))
                asked.append((given, tokens, one, [self.engine.submit(job) for job in jobs]))
            return [self._output(*request) for request in asked]
        except BaseException:
            for *_, texts in asked:
                for text in texts:
                    text.cancel()
            raise

    def stream(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        *,
        mask: Mask | None = None,
        loras: Sequence[float] | None = None,
    ) -> Stream:
        """The pieces of a text as they come.

        >>> story = LLM().stream("Once upon a time", SamplingParams(temperature=0, max_tokens=6))
        >>> "".join(story)
        ', there was a little girl'
        >>> story.output.finish_reason
        'length'
        """
        params = sampling_params or SamplingParams()
        _, tokens = self._tokens(prompt)
        job = Job(tokens, **{"mask": mask, "loras": loras, "streams": True, **params.settings()})
        return Stream(self.model, self.engine.submit(job), params.logprobs)

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]] | Sequence[Sequence[Mapping[str, Any]]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        mask: Mask | None = None,
        loras: Sequence[float] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        thinking: bool = True,
    ) -> list[RequestOutput]:
        """Answers a conversation, or several, by the model's own chat template, or by one that is given: its name, as
        `chatml`, or its text. A template is a program out of a file: it runs here, within bounds of work."""
        several = messages if messages and not isinstance(messages[0], Mapping) else [messages]
        told = None if tools is None else json.dumps(list(tools))
        texts = [
            self.model.render_chat(
                json.dumps(list(one)),
                told,
                template=chat_template,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                thinking=thinking,
            )
            for one in several
        ]
        prompts = [{"prompt": text, "prompt_token_ids": self.model.prompt_tokens(text)} for text in texts]
        return self.generate(prompts, sampling_params, mask=mask, loras=loras)

    def embed(
        self, prompts: Prompt | Sequence[Prompt], *, pooling: str | None = None, normalize: bool = True
    ) -> list[EmbeddingRequestOutput]:
        """Vectors that stand for texts; of length 1 unless `normalize` is false. `pooling` is none, mean, cls, last or
        rank; without it as the model's file says, or mean. The first call with a pooling loads the weights for it.

        >>> one, other = LLM().embed(["Once upon a time", "The sun"])
        >>> len(one.outputs.embedding)
        256
        """
        several = [self._tokens(prompt, parse_special=True) for prompt in _several(prompts)]
        embedder = self._embedder(pooling)
        made: list[EmbeddingRequestOutput] = []
        for (_, tokens), vectors in zip(several, embedder.embed([tokens for _, tokens in several])):
            if normalize and embedder.pooling != "rank":
                lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
                vectors = (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)
            vector = vectors if embedder.pooling == "none" else vectors[0]
            self._made += 1
            made.append(EmbeddingRequestOutput(str(self._made - 1), EmbeddingOutput(vector), tokens))
        return made

    def _embedder(self, pooling: str | None) -> Embedder:
        if pooling not in self._embedders:
            settings = {name: value for name, value in self._settings.items() if name != "sequences"}
            self._embedders[pooling] = Embedder(self.model, pooling=pooling, **settings)
        return self._embedders[pooling]

    def _ranks(self, questions: Sequence[str], answers: Sequence[str]) -> list[ScoringRequestOutput]:
        if len(questions) == 1:
            questions = [questions[0]] * len(answers)
        if len(questions) != len(answers):
            raise ValueError(f"{len(questions)} texts for {len(answers)} others: give one, or as many as others")
        embedder = self._embedder("rank")
        pairs = [embedder.pair(question, answer) for question, answer in zip(questions, answers)]
        made: list[ScoringRequestOutput] = []
        for tokens, scores in zip(pairs, embedder.embed(pairs)):
            self._made += 1
            made.append(ScoringRequestOutput(str(self._made - 1), ScoringOutput(float(scores[0][0])), tokens))
        return made

    @overload
    def score(  # type: ignore[overload-overlap]  # A list of texts is told from one of masks by what is in it.
        self, texts: str | Sequence[str], others: str | Sequence[str], /
    ) -> list[ScoringRequestOutput]: ...
    @overload
    def score(self, texts: Sequence[Prompt]) -> list[Score]: ...
    @overload
    def score(self, texts: Sequence[Prompt], masks: Sequence[Mask | None]) -> list[list[Score]]: ...
    def score(self, texts: Any, masks: Any = None) -> Any:
        """How likely texts are, token by token; with `masks`, a list for each of them. With texts in the second place, how well
        each of these answers the first, or the one in its place: for models that were made to rank.

        >>> good, bad = LLM().score(["Once upon a time", "Once upon a toe"])
        >>> good.total > bad.total
        True
        """
        if isinstance(masks, str) or masks and all(isinstance(other, str) for other in masks):
            others = [masks] if isinstance(masks, str) else list(masks)
            return self._ranks([texts] if isinstance(texts, str) else list(texts), others)
        tokens = [self._tokens(text)[1] for text in texts]
        scored = [self._scores(tokens, [0] * len(tokens), mask) for mask in (masks or [None])]
        return scored if masks is not None else scored[0]

    def loglikelihoods(
        self, requests: Sequence[tuple[list[int], list[int]]], mask: Mask | None = None
    ) -> list[tuple[float, bool]]:
        """How likely it is that each context goes on with its continuation, and whether each token of it is the
        likeliest. What contexts have in common is evaluated once.

        Log-probabilities are added as the server writes them: the shortest decimal of each.
        """
        tokens = [context + continuation for context, continuation in requests]
        scores = self._scores(tokens, [len(context) for context, _ in requests], mask)
        return [
            (sum(float(str(one)) for one in score.logprobs), bool((score.logprobs == score.likeliest_logprobs).all()))
            for score in scores
        ]

    def agreement(
        self,
        text: str | list[int],
        masks: Mapping[str, RunLayers] | Iterable[RunLayers],
        *,
        chunk: int = 512,
        chunks: int | None = None,
    ) -> Sweep:
        """A text under masks, beside the full model: see `spec_run.agreement`. The first call loads the weights for it,
        beside those for texts; later ones with the same `chunk` do not."""
        if chunk not in self._evaluators:
            settings = {name: value for name, value in self._settings.items() if name not in ("n_ctx", "sequences")}
            self._evaluators = {chunk: Evaluator(self.model, chunk=chunk, **settings)}
        return agreement(self._evaluators[chunk], text, masks, chunks=chunks)

    def _tokens(self, prompt: Prompt, parse_special: bool = False) -> tuple[str | None, list[int]]:
        text: Any = prompt.get("prompt") if isinstance(prompt, Mapping) else prompt
        if isinstance(prompt, Mapping) and "prompt_token_ids" in prompt:
            return text, list(prompt["prompt_token_ids"])
        if isinstance(text, str):
            return text, self.model.tokenize(text, parse_special=parse_special)
        if text is None:
            raise ValueError("a prompt is a text, tokens, or a dict with `prompt` or `prompt_token_ids`")
        return None, list(text)

    def _output(
        self, prompt: str | None, tokens: list[int], params: SamplingParams, texts: list[Text]
    ) -> RequestOutput:
        ended = [text.result() for text in texts]
        outputs: list[CompletionOutput] = [
            completion(self.model, one, index, params.logprobs) for index, one in enumerate(ended)
        ]
        prompt_logprobs: list[Any] | None = None
        if params.prompt_logprobs is not None:
            scored = places(self.model, tokens[1:], ended[0].scored, params.prompt_logprobs)
            prompt_logprobs = [None, *scored]
        self._made += 1
        return RequestOutput(str(self._made - 1), prompt, tokens, prompt_logprobs, outputs)

    def _scores(self, texts: list[list[int]], begins: list[int], mask: Mask | None) -> list[Score]:
        """Of each text the tokens from a place on. A text whose beginning another one has waits for it."""
        scores: list[Score | None] = [None] * len(texts)
        for wave in _waves(texts, begins, self._texts):
            jobs = [
                (i, self.engine.submit(Job(texts[i], max_tokens=0, logprobs=1, scores_from=begins[i], mask=mask)))
                for i in wave
            ]
            try:
                for i, job in jobs:
                    scored = job.result().scored
                    scores[i] = Score(
                        texts[i],
                        np.array([score for score, _ in scored], np.float32),
                        np.array([likely[0][0] for _, likely in scored], np.uint32),
                        np.array([likely[0][1] for _, likely in scored], np.float32),
                    )
            except BaseException:
                for _, job in jobs:
                    job.cancel()
                raise
        return [score for score in scores if score is not None]


def _waves(texts: list[list[int]], begins: list[int], most: int) -> Iterable[list[int]]:
    """What is evaluated together: texts with the same beginning come after the first of them, from whose cells they
    go on."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for i, (text, begin) in enumerate(zip(texts, begins)):
        shared = tuple(text[: max(begin - 1, 0)])
        # Nothing in common.
        groups.setdefault(shared if shared else (-1, i), []).append(i)
    several = list(groups.values())
    for start in range(0, len(several), most):
        part = several[start : start + most]
        yield [group[0] for group in part]
        if rest := [i for group in part for i in group[1:]]:
            yield rest


def _several(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    if isinstance(prompts, (str, Mapping)):
        return [prompts]
    several: list[Any] = list(prompts)
    is_one = bool(several) and all(isinstance(one, (int, np.integer)) for one in several)
    return [several] if is_one else several


def _each(params: SamplingParams | Sequence[SamplingParams], count: int) -> Sequence[SamplingParams]:
    if isinstance(params, SamplingParams):
        return [params] * count
    if len(params) != count:
        raise ValueError(f"{len(params)} SamplingParams for {count} prompts: give one, or as many as prompts")
    return params
