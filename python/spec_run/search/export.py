"""From a study to a file of masks: the best are proved on text that no trial has seen, timed, and measured."""

from __future__ import annotations

import json
from typing import Any

import optuna
from optuna.trial import TrialState

from .._native import Judge, Model
from ..masks import write_masks
from .study import Settings, StudyError, judged, mask_of


def finalists(study: optuna.Study, settings: Settings, judge: Judge, costs: str, most: int) -> list[str]:
    """The best mask, and the best of each of several costs: a bold draft is of use where a cautious one is not.

    What drafts agree in is the same everywhere; what that is worth depends on the machine, and so on `costs`.
    """
    agreement = {
        mask_of(settings, trial.params): float(trial.user_attrs.get("agreement", 0.0))
        for trial in judged(study)
        if trial.params
    }
    worth = {mask: judge.speed(mask, found, costs)[0] for mask, found in agreement.items()}
    best = sorted(worth, key=lambda mask: (-worth[mask], mask))
    chosen = best[: max(most // 2, 1)]
    # Of masks that leave out as much, the closest; the boldest first.
    closest: dict[int, str] = {}
    for mask in sorted(agreement, key=lambda mask: agreement[mask]):
        closest[sum(letter != "r" for letter in mask)] = mask
    others = [closest[count] for count in sorted(closest, reverse=True) if count and closest[count] not in chosen]
    room = min(most - len(chosen), len(others))
    return chosen + [others[i * len(others) // room] for i in range(room)]


def export(
    study: optuna.Study,
    settings: Settings,
    judge: Judge,
    model: Model,
    path: str,
    *,
    masks: int = 8,
    seconds: float = 20.0,
) -> list[dict[str, Any]]:
    """Writes the file, and says what is in it: for this machine, whose passes are timed. The judge ends with it."""
    costs = judge.measure_costs(settings.states)
    chosen = finalists(study, settings, judge, costs, masks)
    if not chosen:
        raise StudyError(f"study {study.study_name}: no mask has been judged yet; let a worker run")
    steps = judge.time_steps(chosen, seconds / 4)
    proofs = [judge.prove(mask, step, costs) for mask, step in zip(chosen, steps)]

    def predicted(proof: str, mask: str) -> float:
        return float(json.loads(judge.described(mask, proof, costs, None))["predicted"]["speedup"])

    ranked = sorted(zip(chosen, proofs), key=lambda one: -predicted(one[1], one[0]))
    # Texts that end at once measure nothing.
    measured: list[Any] = judge.measure(ranked, costs, seconds) or [None] * len(ranked)
    known = [
        json.loads(judge.described(mask, proof, costs, one)) for (mask, proof), one in zip(ranked, measured)
    ]
    names = ["best", *(f"cost {of_mask['cost']:.2f}" for of_mask in known[1:])]
    names = [name if name not in names[:i] else f"{name} ({i})" for i, name in enumerate(names)]
    provenance = {
        "version": settings.version,
        "study": study.study_name,
        "trials": len(judged(study, TrialState.COMPLETE, TrialState.PRUNED)),
        "text": settings.text,
        "positions": settings.positions,
        "model": {"name": settings.model, "fingerprint": settings.fingerprint},
        "device": judge.device,
    }
    found = {name: (judge.mask(mask), of_mask) for name, (mask, _), of_mask in zip(names, ranked, known)}
    write_masks(path, model, found, provenance)
    return [{"name": name, "mask": mask, **of_mask} for name, (mask, _), of_mask in zip(names, ranked, known)]
