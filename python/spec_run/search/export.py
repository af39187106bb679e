"""From a study to a file of masks: the best are proved on text that no trial has seen, timed, and measured."""

from __future__ import annotations

import json
from typing import Any

import optuna
from optuna.trial import TrialState

from .._native import Judge, Model
from ..masks import write_masks
from .study import Settings, StudyError, costs_of, judged, mask_of


def finalists(study: optuna.Study, settings: Settings, most: int) -> list[str]:
    """The best mask, and the best of each of several costs: a bold draft is of use where a cautious one is not."""
    by_value = sorted(judged(study), key=lambda trial: (-(trial.value or 0.0), trial.number))
    best = list(dict.fromkeys(mask_of(settings, trial.params) for trial in by_value if trial.params))
    agreement = {mask_of(settings, t.params): t.user_attrs.get("agreement", 0.0) for t in by_value if t.params}
    left_out = {mask: sum(letter != "r" for letter in mask) for mask in best}
    chosen = best[: max(most // 2, 1)]
    # Of masks that leave out as much, the closest.
    for count in sorted(set(left_out.values()), reverse=True):
        closest = max((mask for mask in best if left_out[mask] == count), key=lambda mask: agreement[mask])
        if closest not in chosen and count > 0:
            chosen.append(closest)
    spread = chosen[max(most // 2, 1) :]
    room = most - min(len(chosen), max(most // 2, 1))
    step = max(len(spread) / room, 1.0) if room else 1.0
    return chosen[: max(most // 2, 1)] + [spread[int(i * step)] for i in range(min(room, len(spread)))]


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
    """Writes the file, and says what is in it. The judge ends with it."""
    chosen = finalists(study, settings, masks)
    if not chosen:
        raise StudyError(f"study {study.study_name}: no mask has been judged yet; let a worker run")
    costs = costs_of(study)
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
