"""Quantized GGUF models that draft for themselves.

>>> from spec_run import LLM, SamplingParams
>>> llm = LLM()  # the small model that comes along
>>> out = llm.generate("Once upon a time", SamplingParams(temperature=0, max_tokens=6))
>>> out[0].outputs[0].text
', there was a little girl'

`LLM` makes and scores texts. `Model`, `Context`, `Batch` and `RunLayers` are the library's own contracts: tokens in,
logits out, with a mask of what runs. `spec_run.search` looks for masks on many machines, `spec_run.lm_eval` is a model
of lm-eval.
"""

from ._native import (
    Batch,
    Context,
    Embedder,
    Engine,
    Evaluator,
    Job,
    Judge,
    Model,
    RunLayers,
    SpecRunError,
    __version__,
    read_masks,
)
from .llm import LLM
from .masks import Mask, write_masks
from .outputs import (
    CompletionOutput,
    EmbeddingOutput,
    EmbeddingRequestOutput,
    Logprob,
    RequestOutput,
    Score,
    ScoringOutput,
    ScoringRequestOutput,
    Stream,
)
from .params import SamplingParams
from .sweep import MaskScore, Sweep, agreement

__all__ = [
    "LLM",
    "Batch",
    "CompletionOutput",
    "Context",
    "Embedder",
    "EmbeddingOutput",
    "EmbeddingRequestOutput",
    "Engine",
    "Evaluator",
    "Job",
    "Judge",
    "Logprob",
    "Mask",
    "MaskScore",
    "Model",
    "RequestOutput",
    "RunLayers",
    "SamplingParams",
    "Score",
    "ScoringOutput",
    "ScoringRequestOutput",
    "SpecRunError",
    "Stream",
    "Sweep",
    "__version__",
    "agreement",
    "read_masks",
    "write_masks",
]
