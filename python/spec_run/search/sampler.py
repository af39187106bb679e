"""Which mask to try next: one near the best that are known."""

from __future__ import annotations

import random
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

from .study import Settings, mask_of, params_of, settings_of

#: Of so many good masks one is changed.
PARENTS = 8
#: Before so many trials have ended, all is guesswork.
FEWEST = 4
#: Masks that were tried already are passed over, so often.
ATTEMPTS = 50


class NearTheBest(optuna.samplers.BaseSampler):
    """Changes one of the best masks a little, crosses two of them, or skips what alone did least harm.

    A mask is a choice for each sublayer, and good ones lie near each other: what a tree of Parzen estimators has to learn
    from many trials, this begins with. Any number of workers may ask; none waits for another.
    """

    def __init__(self, seed: int | None = None):
        self._random = random.Random(seed)

    def reseed_rng(self) -> None:
        self._random.seed()

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return dict(settings_of(study).space())

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        settings = settings_of(study)
        known = study.get_trials(deepcopy=False)
        judged = [one for one in known if one.state == TrialState.COMPLETE and one.params]
        if len(judged) < FEWEST:
            return {}
        judged.sort(key=lambda one: -(one.value or 0.0))
        tried = {mask_of(settings, one.params) for one in known}
        best = [mask_of(settings, one.params) for one in judged[:PARENTS]]
        spared = by_harm(settings, judged)
        mask = best[0]
        for _ in range(ATTEMPTS):
            mask = self._another(best, spared, settings)
            if mask not in tried:
                break
        return params_of(settings, mask)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._random.choice(settings_of(study).space()[param_name].choices)

    def _another(self, best: list[str], spared: list[int], settings: Settings) -> str:
        draw = self._random.random()
        # The better, the likelier.
        parent = best[min(int(self._random.expovariate(0.5)), len(best) - 1)]
        if draw < 0.15 and len(best) > 1:
            return "".join(map(self._random.choice, zip(parent, self._random.choice(best))))
        if draw < 0.35 and spared:
            # As many as the parent leaves out, and a few more or less, of those that are missed least.
            count = sum(letter != "r" for letter in parent) + self._random.randint(-3, 3)
            skipped = set(spared[: max(count, 1)])
            return "".join("s" if i in skipped else "r" for i in range(len(parent)))
        mask = list(parent)
        movable = [i for i, moves in enumerate(settings.movable) if moves == "1"]
        for _ in range(1 + min(int(self._random.expovariate(1.0)), 3)):
            running = [i for i in movable if mask[i] == "r"]
            left_out = [i for i in movable if mask[i] != "r"]
            if running and left_out and self._random.random() < 0.4:
                one, other = self._random.choice(running), self._random.choice(left_out)
                mask[one], mask[other] = mask[other], mask[one]
            else:
                one = self._random.choice(movable)
                others = [state for state in f"r{settings.states_of(one)}" if state != mask[one]]
                mask[one] = self._random.choice(others)
        return settings.fitting("".join(mask))


def by_harm(settings: Settings, judged: list[FrozenTrial]) -> list[int]:
    """Sublayers that were skipped by themselves, the one that was missed least first."""
    alone = {}
    for one in judged:
        mask = mask_of(settings, one.params)
        if mask.count("r") == len(mask) - 1 and "s" in mask:
            alone[mask.index("s")] = one.user_attrs.get("agreement", 0.0)
    return sorted(alone, key=lambda sublayer: -alone[sublayer])
