"""An Optuna study of your own: how many attentions and MLPs to leave out, by how little each is missed.

A `Judge` reads the text once; each trial is a pass over the judged positions. `python examples/python/study.py [MODEL.gguf] [TRIALS]`
"""

import sys

import optuna

from spec_run import Judge, Model, write_masks

model = Model.open(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].endswith(".gguf") else Model.embedded()
trials = int(sys.argv[-1]) if sys.argv[-1].isdigit() else 60
optuna.logging.set_verbosity(optuna.logging.WARNING)

judge = Judge(model, positions=512)
costs = judge.measure_costs(seconds=1.0)
n = 2 * model.n_layer


def skipping(sublayers: list[int]) -> str:
    """A letter for each sublayer: even ones are attentions, odd ones MLPs."""
    return "".join("s" if i in sublayers else "r" for i in range(n))


alone = {i: judge.score(skipping([i]))["agreement"] for i in range(n)}
attentions, mlps = (sorted(range(start, n, 2), key=lambda i: -alone[i]) for start in (0, 1))


def objective(trial: optuna.Trial) -> float:
    attn = trial.suggest_int("attentions left out", 0, model.n_layer)
    mlp = trial.suggest_int("MLPs left out", 0, model.n_layer)
    mask = skipping(attentions[:attn] + mlps[:mlp])
    trial.set_user_attr("mask", mask)
    return judge.speed(mask, judge.score(mask)["agreement"], costs)[0]


study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=1))
study.optimize(objective, n_trials=trials)
best = study.best_trial
print(f"{best.params}: predicted speedup {best.value:.2f}")

mask = judge.mask(best.user_attrs["mask"])
proof = judge.prove(best.user_attrs["mask"], judge.cost(best.user_attrs["mask"], costs), costs)
print(f"on text that no trial has seen: {proof[:100]}…")
write_masks("study-skips.json", model, {"study": mask})
print("spec-run --draft-skip study-skips.json")
