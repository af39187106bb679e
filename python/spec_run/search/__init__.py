"""A search for masks by any number of workers, on one machine or many, as an Optuna study.

    python -m spec_run.search worker --study NAME --storage postgresql://user@host/db -m model.gguf -f text.txt
    python -m spec_run.search export --study NAME --storage postgresql://user@host/db -m model.gguf -f text.txt -o skips.json

Each worker takes a mask, judges it on the study's text, and writes down what it is worth. The judgements are the same to
the bit on every machine, so trials of different workers compare exactly; the costs of passes are measured once, by whoever
begins the study.
"""

from .sampler import NearTheBest
from .study import Settings, StudyError, begin_or_join, mask_of, open_storage
from .worker import EndSignal, Objective, pruner, work
from .export import export, finalists

__all__ = [
    "EndSignal",
    "NearTheBest",
    "Objective",
    "Settings",
    "StudyError",
    "begin_or_join",
    "export",
    "finalists",
    "mask_of",
    "open_storage",
    "pruner",
    "work",
]
