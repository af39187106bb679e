"""The study that workers share: where it is kept, and what it is of."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.storages import BaseStorage, JournalStorage, RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

if TYPE_CHECKING:
    from .._native import Judge

SETTINGS, COSTS, READY = "spec_run settings", "spec_run costs", "spec_run ready"
#: Seconds between signs of life of a worker, and until it counts as gone.
HEARTBEAT, GRACE = 10, 40
#: How often a trial is begun again whose worker has gone.
RETRIES = 3


class StudyError(Exception):
    """One line: what is wrong with a study or its storage, and what to do."""


@dataclass(frozen=True)
class Settings:
    """What a study is of. If any of it differs, trials cannot be compared."""

    model: str
    fingerprint: str
    #: Names the text and the positions on it.
    text: str
    version: str
    positions: int
    draft_max: int
    #: States that sublayers may go to.
    states: str
    #: By sublayer, whether there is something to skip.
    movable: str

    def space(self) -> dict[str, CategoricalDistribution]:
        """A parameter for each layer: what its attention does and what its MLP does, in a letter each. Where there is nothing
        to skip, there is nothing to choose."""
        letters = [f"r{self.states_of(sublayer)}" for sublayer in range(len(self.movable))]
        layers = zip(letters[::2], letters[1::2])
        choices = {name(i): [a + m for a in attn for m in mlp] for i, (attn, mlp) in enumerate(layers)}
        return {layer: CategoricalDistribution(of_layer) for layer, of_layer in choices.items() if len(of_layer) > 1}

    def states_of(self, sublayer: int) -> str:
        """What it can be in besides running. Attention, every even one, has no experts."""
        if self.movable[sublayer] != "1":
            return ""
        return "".join(state for state in self.states if sublayer % 2 or not state.isdigit())

    def fitting(self, mask: str) -> str:
        """The mask with those sublayers running that cannot be in the state that it says."""
        return "".join(state if state in self.states_of(i) else "r" for i, state in enumerate(mask))

    def differs_from(self, other: Settings) -> str | None:
        """What is not the same, in a line."""
        for field in fields(self):
            mine, its = getattr(self, field.name), getattr(other, field.name)
            if mine != its:
                return f"its {field.name} is {its}, here it is {mine}"
        return None


def name(layer: int) -> str:
    """Of a parameter."""
    return f"layer {layer:03}"


def mask_of(settings: Settings, params: dict[str, Any]) -> str:
    """A letter for each sublayer, as a judge reads them."""
    return "".join(params.get(name(layer), "rr") for layer in range(len(settings.movable) // 2))


def params_of(settings: Settings, mask: str) -> dict[str, str]:
    layers = {name(i): mask[2 * i : 2 * i + 2] for i in range(len(mask) // 2)}
    return {layer: layers[layer] for layer in settings.space()}


def open_storage(url: str) -> BaseStorage:
    """A database for any number of machines, or a journal file for one: `postgresql://user@host/db`, `FILE.journal`."""
    if url.startswith(("postgresql://", "postgres://", "postgresql+")):
        return open_database(url)
    if url.endswith(".journal"):
        try:
            return JournalStorage(JournalFileBackend(url))
        except OSError as error:
            raise StudyError(f"{url}: {error.strerror or error}") from None
    raise StudyError(
        f"{hidden(url)}: give postgresql://user@host/database for several machines, or FILE.journal for one"
    )


def open_database(url: str) -> BaseStorage:
    scheme, _, rest = url.partition("://")
    scheme = scheme if "+" in scheme else "postgresql+psycopg"
    for attempts_left in reversed(range(5)):
        try:
            return RDBStorage(
                f"{scheme}://{rest}",
                engine_kwargs={"pool_pre_ping": True},
                heartbeat_interval=HEARTBEAT,
                grace_period=GRACE,
                heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(max_retry=RETRIES),
            )
        except ModuleNotFoundError as error:
            raise StudyError(f"{hidden(url)}: {error.name} is missing: pip install 'spec-run[postgresql]'") from None
        except Exception as error:
            line = str(error.__cause__ or error).strip().splitlines()[0]
            # Several workers that come first at the same time make the tables, and one of them does it.
            if attempts_left == 0 or "already exists" not in line and "duplicate key" not in line:
                raise StudyError(f"{hidden(url)}: the storage cannot be reached: {line}") from None
            time.sleep(0.3)
    raise AssertionError("the last attempt raises")


def hidden(url: str) -> str:
    """Without the password."""
    scheme, at, rest = url.partition("://")
    user, found, host = rest.rpartition("@")
    return f"{scheme}{at}{user.split(':')[0]}{found}{host}"


def begin_or_join(
    study_name: str,
    storage: BaseStorage,
    settings: Settings,
    judge: Judge,
    *,
    sampler: optuna.samplers.BaseSampler | None = None,
    pruner: optuna.pruners.BasePruner | None = None,
    masks: Sequence[str] = (),
) -> tuple[optuna.Study, str]:
    """The study and its costs. Whoever comes first measures these, and has `masks` tried first, then those of
    `spec-run search`. Whoever joins adds its `masks` to those that wait."""
    how: dict[str, Any] = {"sampler": sampler, "pruner": pruner}
    try:
        study = optuna.create_study(study_name=study_name, storage=storage, direction="maximize", **how)
        begin(study, settings, judge, masks)
    except optuna.exceptions.DuplicatedStudyError:
        study = optuna.load_study(study_name=study_name, storage=storage, **how)
        join(study, settings, judge, masks)
    return study, costs_of(study)


def begin(study: optuna.Study, settings: Settings, judge: Judge, masks: Sequence[str]) -> None:
    study.set_user_attr(SETTINGS, asdict(settings))
    study.set_user_attr(COSTS, judge.measure_costs(settings.states))
    enqueue(study, settings, [*masks, *family(settings)])
    study.set_user_attr(READY, True)


def enqueue(study: optuna.Study, settings: Settings, masks: Sequence[str]) -> None:
    for mask in masks:
        study.enqueue_trial(params_of(settings, mask), skip_if_exists=True)


def join(study: optuna.Study, settings: Settings, judge: Judge, masks: Sequence[str]) -> None:
    """Waits until the study is ready. Whoever has begun it may have been killed meanwhile: then it is begun again, which
    does no harm to what is there."""
    waited = time.monotonic()
    while not study.user_attrs.get(READY):
        if time.monotonic() - waited > 2 * GRACE:
            begin(study, settings, judge, masks)
        time.sleep(0.2)
    check(study, settings)
    enqueue(study, settings, masks)


def check(study: optuna.Study, settings: Settings) -> None:
    told = study.user_attrs.get(SETTINGS)
    if not told:
        raise StudyError(f"study {study.study_name}: it is not one of spec-run's; give another name")
    known = {field.name for field in fields(Settings)}
    theirs = Settings(**{key: told.get(key) for key in known})
    if differs := settings.differs_from(theirs):
        raise StudyError(f"study {study.study_name}: {differs}; trials would not compare: give it what it is of, or another name")


def settings_of(study: optuna.Study) -> Settings:
    return Settings(**study.user_attrs[SETTINGS])


def costs_of(study: optuna.Study) -> str:
    costs: str = study.user_attrs[COSTS]
    json.loads(costs)
    return costs


def family(settings: Settings) -> list[str]:
    """What `spec-run search` begins with: each sublayer changed by itself, exits, every second layer, the middle skipped,
    and everything coarse where weights allow it."""
    n = len(settings.movable)
    layers = n // 2

    def only(state: str, changed: Any) -> str:
        return settings.fitting("".join(state if changed(i) else "r" for i in range(n)))

    masks = [only(state, lambda i, one=one: i == one) for state in settings.states for one in range(n)]
    masks += [only("s", lambda i, e=e: i // 2 >= e) for e in range(max(layers // 4, 1), layers)]
    masks += [only("s", lambda i, first=first: i // 2 % 2 == first) for first in (0, 1)]
    masks += [only("s", lambda i: layers // 4 <= i // 2 < layers - max(layers // 8, 1))]
    masks += [only("c", lambda i: True)] if "c" in settings.states else []
    return [mask for mask in dict.fromkeys(masks) if set(mask) != {"r"}]


def judged(study: optuna.Study, *states: TrialState) -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=states or (TrialState.COMPLETE,))
