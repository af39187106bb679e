"""The command line of the search: `python -m spec_run.search --help`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

try:
    import optuna
except ModuleNotFoundError:
    sys.exit("spec_run.search: optuna is missing: pip install 'spec-run[search]'")

from .. import Model, __version__, read_masks
from .._native import Judge
from .export import export
from .sampler import NearTheBest
from .study import Settings, StudyError, begin_or_join, check, open_storage
from .worker import EndSignal, pruner, work


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m spec_run.search", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="worker|export")
    worker = commands.add_parser("worker", help="judge masks of a study; run as many as there are machines")
    worker.add_argument("--trials", type=positive, metavar="N", help="end after so many masks")
    worker.add_argument("--time", type=float, metavar="SECONDS", help="end after so long")
    worker.add_argument("--seed", type=int, help="of this worker's choice of masks")
    worker.add_argument("--sampler", choices=["near", "tpe"], default="near", help="how masks are chosen [near]")
    worker.add_argument("--no-prune", action="store_true", help="judge every mask on all positions")
    worker.add_argument("--enqueue", metavar="FILE", help="a file of masks to try first, as spec-run search writes it")
    export = commands.add_parser("export", help="prove and measure the best masks, and write them to a file")
    export.add_argument("-o", "--output", default="skips.json", metavar="FILE", help="[skips.json]")
    export.add_argument("--force", action="store_true", help="overwrite it if it is there")
    export.add_argument("--masks", type=positive, default=8, metavar="N", help="the most masks to write [8]")
    export.add_argument("--time", type=float, default=20.0, metavar="SECONDS", help="for measuring speeds [20]")
    for command in (worker, export):
        command.add_argument("--study", required=True, metavar="NAME")
        command.add_argument("--storage", required=True, metavar="URL", help="postgresql://user@host/db, or FILE.journal on one machine")
        command.add_argument("-m", "--model", metavar="FILE", help="[the small model that comes along]")
        command.add_argument("-f", "--file", metavar="FILE", help="the text to judge on [one that the model writes itself]")
        command.add_argument("--positions", type=positive, default=1024, metavar="N", help="to judge on, half of them held out [1024]")
        command.add_argument("--chunk", type=positive, default=256, metavar="N", help="tokens of a piece of the text [256]")
        command.add_argument("--draft-max", type=positive, default=8, metavar="N", help="the longest draft that is predicted [8]")
        command.add_argument("--threads", type=int, metavar="N")
        command.add_argument("--isa", metavar="NAME", help="scalar, avx2 or avx512: the judgements are the same")
        command.add_argument("--device", metavar="NAME", help="cpu, auto, or a GPU [cpu]")
    return parser


class Interrupted(Exception):
    """By a signal, of this number."""


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: 1 or more")
    return number


def open_judge(args: argparse.Namespace) -> tuple[Model, Judge, Settings]:
    model = Model.embedded() if args.model is None else Model.open(args.model)
    tokens = None
    if args.file is not None:
        text = Path(args.file).read_bytes().decode(errors="replace")
        tokens = model.tokenize(text, add_special=False)
    judge = Judge(
        model,
        tokens,
        positions=args.positions,
        chunk=args.chunk,
        draft_max=args.draft_max,
        threads=args.threads,
        isa=args.isa,
        device=args.device,
    )
    settings = Settings(
        model=model.name,
        fingerprint=model.fingerprint,
        text=judge.fingerprint,
        version=__version__,
        positions=args.positions,
        draft_max=args.draft_max,
        states=judge.states,
        movable="".join("1" if moves else "0" for moves in judge.movable),
    )
    return model, judge, settings


def run_worker(args: argparse.Namespace) -> None:
    storage = open_storage(args.storage)
    model, judge, settings = open_judge(args)
    known = read_masks(args.enqueue, model) if args.enqueue else []
    first = [settings.fitting(judge.letters(mask)) for _, mask in known]
    sampler: Any = NearTheBest(args.seed)
    if args.sampler == "tpe":
        sampler = optuna.samplers.TPESampler(seed=args.seed, multivariate=True)
    how: Any = optuna.pruners.NopPruner() if args.no_prune else pruner()
    study, _ = begin_or_join(args.study, storage, settings, judge, sampler=sampler, pruner=how, masks=first)
    say(f"{model.name}: {judge.device}; {judge.positions} positions; study {args.study}")
    with EndSignal() as ended:
        done = work(study, judge, settings, trials=args.trials, seconds=args.time, ended=ended)
    if ended.by is not None:
        raise Interrupted(ended.by)
    best = max((t.value for t in study.get_trials(deepcopy=False) if t.value is not None), default=None)
    say(f"{done} masks judged here" + (f"; best so far {best:.3f}" if best is not None else ""))


def run_export(args: argparse.Namespace) -> None:
    if os.path.exists(args.output) and not args.force:
        raise StudyError(f"{args.output}: is there already; --force overwrites it")
    storage = open_storage(args.storage)
    try:
        study = optuna.load_study(study_name=args.study, storage=storage)
    except KeyError:
        raise StudyError(f"study {args.study}: the storage has none of this name") from None
    model, judge, settings = open_judge(args)
    check(study, settings)
    for one in export(study, settings, judge, model, args.output, masks=args.masks, seconds=args.time):
        measured = one["measured"].get("speedup")
        times = f", measured {measured:.2f}" if measured else ""
        print(
            f"{one['name']}: agreement {one['agreement']:.3f}, cost {one['cost']:.2f}, "
            f"predicted {one['predicted']['speedup']:.2f}{times}"
        )
    say(f"{args.output} written: spec-run --draft-skip {args.output}")


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    args = arguments().parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    # Optuna says so of each of its newer parts.
    import warnings

    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    try:
        run_worker(args) if args.command == "worker" else run_export(args)
    except KeyboardInterrupt:
        sys.exit(130)
    except Interrupted as interrupted:
        say("interrupted: what was judged is in the study")
        sys.exit(128 + interrupted.args[0])
    except (StudyError, ValueError, OSError) as error:
        sys.exit(f"spec_run.search: {error}")
    except optuna.exceptions.StorageInternalError as error:
        line = str(error.__cause__ or error).strip().splitlines()[0]
        sys.exit(f"spec_run.search: the storage failed: {line}")


if __name__ == "__main__":
    main()
