"""A worker: takes a mask of the study, judges it, writes down what it is worth, and takes the next."""

from __future__ import annotations

import signal
import time
from typing import Any

import optuna
from optuna.trial import TrialState

from .._native import Judge
from .study import Settings, costs_of, mask_of

#: Parts of the text; after each a mask that is clearly worse than the best is given up.
PARTS = 8


class EndSignal:
    """Hears that a worker is to end. A storage must not be left in the middle of something, so that the worker ends
    where it looks; a second signal ends it at once."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.by: int | None = None
        self._before: list[Any] = []

    def __enter__(self) -> EndSignal:
        self._before = [signal.signal(one, self._hear) for one in self.SIGNALS]
        return self

    def __exit__(self, *_: object) -> None:
        for one, before in zip(self.SIGNALS, self._before):
            signal.signal(one, before)

    def _hear(self, number: int, _: object) -> None:
        if self.by is not None:
            raise KeyboardInterrupt
        self.by = number


class GivenUp(Exception):
    """A trial in the middle of which its worker had to end."""


class Objective:
    """The speedup that a mask's drafts are worth: by their agreement with the full model, and the study's costs."""

    def __init__(self, judge: Judge, settings: Settings, costs: str, ended: EndSignal | None = None):
        self.judge, self.settings, self.costs, self.ended = judge, settings, costs, ended or EndSignal()
        ends = [judge.positions * (i + 1) // PARTS for i in range(PARTS)]
        self.parts = list(zip([0, *ends], ends))

    def __call__(self, trial: optuna.Trial) -> float:
        params = {
            name: trial.suggest_categorical(name, distribution.choices)
            for name, distribution in self.settings.space().items()
        }
        mask = mask_of(self.settings, params)
        agreed, began = 0.0, time.monotonic()
        for part, (start, stop) in enumerate(self.parts):
            if self.ended.by is not None:
                raise GivenUp
            agreement = self.judge.score(mask, start, stop)["agreement"]
            agreed += agreement * (stop - start)
            trial.report(self.judge.speed(mask, agreement, self.costs)[0], part)
            # What masks do by themselves is asked of them all: it leads the rest.
            if part + 1 < PARTS and sum(letter != "r" for letter in mask) > 1 and trial.should_prune():
                raise optuna.TrialPruned
        agreement = agreed / self.judge.positions
        trial.set_user_attr("agreement", agreement)
        trial.set_user_attr("cost", self.judge.cost(mask, self.costs))
        trial.set_user_attr("seconds", round(time.monotonic() - began, 4))
        trial.set_user_attr("device", self.judge.device)
        return self.judge.speed(mask, agreement, self.costs)[0]


def work(
    study: optuna.Study,
    judge: Judge,
    settings: Settings,
    *,
    trials: int | None = None,
    seconds: float | None = None,
    ended: EndSignal | None = None,
) -> int:
    """Judges masks until there were `trials` of this worker, or the `seconds` are over, or a signal has `ended` it. Says how
    many."""
    ended = ended or EndSignal()
    done = 0

    def look(_: optuna.Study, trial: Any) -> None:
        nonlocal done
        done += trial.state != TrialState.FAIL
        if ended.by is not None:
            study.stop()

    objective = Objective(judge, settings, costs_of(study), ended)
    study.optimize(objective, n_trials=trials, timeout=seconds, callbacks=[look], catch=(GivenUp,))
    return done


def pruner() -> optuna.pruners.BasePruner:
    """For means over parts of one text; it needs SciPy."""
    return optuna.pruners.WilcoxonPruner(p_threshold=0.1, n_startup_steps=3)
