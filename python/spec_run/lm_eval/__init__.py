"""A model of lm-eval: `python -m spec_run.lm_eval --model spec-run --model_args path=model.gguf,mask=skips.json --tasks …`.

Requests with the same context evaluate it once. The log-likelihoods are those of `spec-run serve`, to the bit.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from .. import LLM, Mask, Model, RunLayers, SamplingParams



@register_model("spec-run", "spec_run")
class SpecRunLM(TemplateLM):  # type: ignore[misc]
    """`path`: a GGUF file, without it the small model that comes along. `mask`: a file of masks, of which the first is taken, or
    `exit=8` for the first 8 layers alone. `max_length`: tokens of a request at most. Other arguments are settings of `LLM`."""

    backend = "causal"

    def __init__(
        self,
        path: str | None = None,
        mask: Mask | None = None,
        exit: int | None = None,
        max_length: int | None = None,
        max_gen_toks: int = 256,
        texts: int = 8,
        batch_size: Any = None,
        device: str | None = None,
        **settings: Any,
    ):
        super().__init__()
        model = Model.embedded() if path is None else Model.open(path)
        self.max_length = int(max_length or min(model.n_ctx_train, 4096))
        self.max_gen_toks = int(max_gen_toks)
        # Room for a request each, and for what they have in common.
        settings.setdefault("n_ctx", (texts + 1) * self.max_length)
        if device is not None and not device.startswith("cuda"):
            settings["device"] = device
        self.llm = LLM(model, texts=texts, drafts=mask is None and exit is None, **settings)
        self.mask = RunLayers.exit(model.n_layer, int(exit)) if exit is not None else mask

    @property
    def eot_token_id(self) -> int:
        model = self.llm.model
        return model.eos if model.eos is not None else 0

    @property
    def prefix_token_id(self) -> int:
        model = self.llm.model
        return model.bos if model.bos is not None else self.eot_token_id

    @property
    def tokenizer_name(self) -> str:
        return self.llm.model.name

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        return self.llm.model.tokenize(string, add_special=bool(add_special_tokens))

    def tok_decode(self, tokens: Sequence[int]) -> str:
        return self.llm.model.detokenize(list(tokens))

    def apply_chat_template(self, chat_history: list[dict[str, Any]], add_generation_prompt: bool = True) -> str:
        return self.llm.model.render_chat(
            json.dumps(chat_history),
            add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt,
        )

    def _loglikelihood_tokens(
        self, requests: list[tuple[tuple[str, str] | None, list[int], list[int]]], disable_tqdm: bool = False, **_: Any
    ) -> list[tuple[float, bool]]:
        cut = [self._cut(before, after) for _key, before, after in requests]
        said = self.llm.loglikelihoods(cut, self.mask)
        for (asked, *_rest), one in zip(requests, said):
            if asked is not None:
                self.cache_hook.add_partial("loglikelihood", asked, one)
        return said

    def _cut(self, context: list[int], continuation: list[int]) -> tuple[list[int], list[int]]:
        """As long as fits, from the end; there is always a token to go on from."""
        if len(continuation) >= self.max_length:
            raise ValueError(
                f"a continuation of {len(continuation)} tokens, where a request has {self.max_length} at most: "
                "a larger max_length"
            )
        context = context or [self.prefix_token_id]
        return context[-(self.max_length - len(continuation)) :], continuation

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        windows: list[tuple[tuple[str, str] | None, list[int], list[int]]] = []
        owners: list[int] = []
        for which, request in enumerate(requests):
            rolling = get_rolling_token_windows(
                token_list=self.tok_encode(request.args[0]),
                prefix_token=self.prefix_token_id,
                max_seq_len=self.max_length - 1,
                context_len=1,
            )
            for context, continuation in map(make_disjoint_window, rolling):
                windows.append((None, context, continuation))
                owners.append(which)
        sums = [0.0] * len(requests)
        for which, (value, _) in zip(owners, self._loglikelihood_tokens(windows)):
            sums[which] += value
        for request, value in zip(requests, sums):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, value)
        return sums

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        prompts: list[dict[str, Any]] = []
        params: list[SamplingParams] = []
        for request in requests:
            text, how = request.args
            most, sampling = self._sampling(dict(how))
            tokens = self.tok_encode(text, add_special_tokens=self.llm.model.adds_bos)
            prompts.append({"prompt_token_ids": tokens[-(self.max_length - most) :]})
            params.append(sampling)
        made = [one.outputs[0].text for one in self.llm.generate(prompts, params, mask=self.mask)]
        for request, text in zip(requests, made):
            self.cache_hook.add_partial("generate_until", request.args, text)
        return made

    def _sampling(self, how: dict[str, Any]) -> tuple[int, SamplingParams]:
        """lm-eval's settings are Hugging Face's; without any, the likeliest token."""
        until = how.pop("until", None) or []
        most = int(how.pop("max_gen_toks", how.pop("max_tokens", self.max_gen_toks)))
        most = min(most, self.max_length - 1)
        sampled = how.pop("do_sample", None)
        temperature = float(how.pop("temperature", 0.0))
        names = {"top_p": float, "top_k": int, "min_p": float, "seed": int}
        settings = {name: read(how[name]) for name, read in names.items() if how.get(name) is not None}
        stop = [until] if isinstance(until, str) else list(until)
        temperature = 0.0 if sampled is False else temperature
        return most, SamplingParams(temperature=temperature, max_tokens=most, stop=stop, **settings)
