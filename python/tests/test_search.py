"""Masks by many workers: judgements that are the same everywhere, and a study that outlives those who work on it."""

import json
import os
import signal
import subprocess
import sys
import time

import optuna
import pytest
from conftest import STORIES, program
from optuna.trial import TrialState
from postgres import postgres

from spec_run import Judge, Model, RunLayers, read_masks, write_masks
from spec_run.search import Settings, mask_of, open_storage
from spec_run.search.study import COSTS, family, params_of

POSITIONS = 256
SMALL = ["--positions", str(POSITIONS), "--chunk", "128", "-f", str(STORIES)]


def command(name, storage, *more):
    return [sys.executable, "-m", "spec_run.search", name, "--study", "s", "--storage", storage, *SMALL, *map(str, more)]


def run(*args, **how):
    return subprocess.run(command(*args), capture_output=True, text=True, timeout=240, **how)


def study(storage):
    return optuna.load_study(study_name="s", storage=open_storage(storage))


def begun(of):
    """Trials that a worker took: those that wait were only asked for."""
    return [trial for trial in of.trials if trial.state != TrialState.WAITING]


@pytest.fixture(scope="module")
def tokens(model):
    return model.tokenize(STORIES.read_text(), add_special=False)


def test_judgements_are_the_same_on_every_instruction_set(model, tokens):
    how = dict(positions=POSITIONS, chunk=128)
    judges = [Judge(model, tokens, **how, **more) for more in ({}, {"isa": "avx2"}, {"isa": "scalar"}, {"threads": 1})]
    assert len({judge.fingerprint for judge in judges}) == 1
    assert len({judge.device for judge in judges}) >= 3
    for mask in ("rrssrrrrrrrrsrrrrrsrrrrrrrrrrrrr", "r" * 16 + "s" * 16, "rs" * 16):
        said = [judge.score(mask) for judge in judges]
        assert said[0] == said[1] == said[2] == said[3]
    whole = judges[0].score("rs" * 16)
    halves = [judges[0].score("rs" * 16, start, stop) for start, stop in ((0, 64), (64, 128))]
    assert whole["agreement"] == sum(half["agreement"] for half in halves) / 2
    # Nothing skipped, nothing lost.
    assert judges[0].score("r" * 32)["agreement"] == 1.0


def test_a_judge_agrees_with_the_programs_search(model, tokens, tmp_path):
    """Every judgement in the journal of `spec-run search`, on the same text and positions."""
    path = tmp_path / "skips.json"
    program(
        *("search", "-f", STORIES, "-c", 128, "--positions", POSITIONS, "-o", path, "--time", 2, "--trials", 5),
        *("--masks", 4, "--json"),
    )
    judge = Judge(model, tokens, positions=POSITIONS, chunk=128)
    judged = 0
    for line in (tmp_path / "skips.json.journal").read_text().splitlines():
        entry = json.loads(line)
        assert entry.get("run", {}).get("text", judge.fingerprint) == judge.fingerprint
        if "score" in entry:
            told = entry["score"]["score"]
            count, start = told["positions"], entry["score"]["from"]
            mine = judge.score(entry["score"]["candidate"], start, start + count)
            agreed = sum(bin(word).count("1") for word in told["agreed"])
            assert (mine["agreement"], mine["overlap"], mine["kl"]) == (
                agreed / count,
                told["overlap"] / count,
                told["kl"] / count,
            )
            judged += 1
    assert judged > 20


def test_a_study_in_a_journal_goes_on_and_ends_in_a_file_of_masks(model, tmp_path):
    storage, out = str(tmp_path / "s.journal"), tmp_path / "skips.json"
    first = run("worker", storage, "--trials", 40, "--seed", 1)
    assert first.returncode == 0 and "40 masks judged here" in first.stderr, first.stderr
    again = run("worker", storage, "--trials", 10, "--seed", 2, "--isa", "avx2")
    assert again.returncode == 0, again.stderr
    kept = study(storage)
    assert len(begun(kept)) == 50
    settings = Settings(**kept.user_attrs["spec_run settings"])
    # Those of the search come first.
    tried = [mask_of(settings, trial.params) for trial in begun(kept)]
    assert tried[: len(family(settings))] == family(settings)[:50]
    # What one machine has judged, another judges the same.
    judge = Judge(model, model.tokenize(STORIES.read_text(), add_special=False), positions=POSITIONS, chunk=128, isa="scalar")
    for trial in kept.get_trials(states=(TrialState.COMPLETE,))[::9]:
        agreement = judge.score(mask_of(settings, trial.params))["agreement"]
        assert trial.user_attrs["agreement"] == pytest.approx(agreement, abs=1e-12)
        assert trial.value == pytest.approx(judge.speed(mask_of(settings, trial.params), agreement, kept.user_attrs[COSTS])[0])
    made = run("export", storage, "-o", out, "--masks", 3, "--time", 2)
    assert made.returncode == 0 and 1 < len(made.stdout.splitlines()) <= 3, made.stderr
    told = json.loads(out.read_text())
    assert told["provenance"]["study"] == "s" and told["provenance"]["trials"] == len(begun(kept))
    assert told["model"]["fingerprint"] == model.fingerprint
    assert all(mask["predicted"]["speedup"] > 0 and mask["measured"]["tok_s"] > 0 for mask in told["masks"])
    kept_again = run("export", storage, "-o", out)
    assert kept_again.returncode == 1 and "--force overwrites it" in kept_again.stderr


def test_a_mask_that_is_known_is_tried_as_it_is(model, tmp_path):
    storage, known = str(tmp_path / "s.journal"), tmp_path / "known.json"
    mask = RunLayers(model.n_layer).coarse_mlp([1, 2]).skip_attn(3)
    write_masks(known, model, {"known": mask})
    assert read_masks(known, model)[0][1] == mask
    assert run("worker", storage, "--trials", 1, "--enqueue", known).returncode == 0
    kept = study(storage)
    settings = Settings(**kept.user_attrs["spec_run settings"])
    assert "c" in settings.states
    tried = [mask_of(settings, trial.params) for trial in begun(kept)]
    assert tried == ["rrrcrcsr" + "r" * (2 * model.n_layer - 8)]
    # One that joins later.
    write_masks(known, model, {"another": mask.coarse_attn(4)})
    assert run("worker", storage, "--trials", 1, "--enqueue", known).returncode == 0
    waiting = [mask_of(settings, t.system_attrs["fixed_params"]) for t in study(storage).get_trials(states=(TrialState.WAITING,))]
    assert "rrrcrcsrcr" + "r" * (2 * model.n_layer - 10) in waiting


def test_attention_is_given_no_experts():
    settings = Settings("m", "f", "t", "v", 64, 8, states="4s", movable="1101")
    assert settings.space()["layer 000"].choices == ("rr", "r4", "rs", "sr", "s4", "ss")
    assert settings.space()["layer 001"].choices == ("rr", "r4", "rs")
    assert settings.fitting("44s4") == "r4r4"
    assert not any(mask[sublayer] == "4" for mask in family(settings) for sublayer in (0, 2))


@pytest.mark.parametrize(
    "storage, more, line",
    [
        ("postgresql://nobody@127.0.0.1:1/none", [], "the storage cannot be reached"),
        ("postgresql://nobody:secret@127.0.0.1:1/none", [], "nobody@127.0.0.1:1/none"),
        ("sqlite:///x.db", [], "give postgresql://user@host/database for several machines"),
        ("/no/such/folder/s.journal", [], "No such file or directory"),
        ("{}/s.journal", ["-m", "/no/such.gguf"], "/no/such.gguf"),
        ("{}/s.journal", ["--positions", "3"], "fewer than 64 tell nothing"),
        ("{}/s.journal", ["-f", "/no/such.txt"], "/no/such.txt"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(tmp_path, storage, more, line):
    made = run("worker", storage.format(tmp_path), "--trials", 1, *more)
    said = made.stderr.strip()
    assert made.returncode == 1 and line in said and "\n" not in said and "secret" not in said, said


def test_a_study_of_something_else_is_refused(tmp_path, model):
    storage = str(tmp_path / "s.journal")
    assert run("worker", storage, "--trials", 2).returncode == 0
    other = tmp_path / "other.txt"
    other.write_text(STORIES.read_text()[5000:])
    for more, line in [
        (["-f", other], "its text is"),
        (["--draft-max", "4"], "its draft_max is 8, here it is 4"),
        (["--positions", "300"], "its text is"),
    ]:
        made = run("worker", storage, "--trials", 1, *more)
        assert made.returncode == 1 and line in made.stderr and "trials would not compare" in made.stderr, made.stderr
    assert len(begun(study(storage))) == 2
    made = run("export", str(tmp_path / "none.journal"))
    assert made.returncode == 1 and "the storage has none of this name" in made.stderr


def test_workers_share_a_database_and_one_that_is_killed_loses_its_trial_only(model, tmp_path, say):
    # Another device than the first worker has, also where AVX2 is the best that the processor has.
    another = ["--isa", "avx2", "--threads", 1]
    with postgres() as url:
        both = [
            subprocess.Popen(command("worker", url, "--time", 16, *more), stderr=subprocess.PIPE, text=True)
            for more in (["--seed", 1], ["--seed", 2, *another])
        ]
        deadline = time.monotonic() + 20
        known = None
        while time.monotonic() < deadline and (known is None or len(begun(known)) < 15):
            time.sleep(0.5)
            try:
                known = study(url)
            except KeyError:
                continue
        assert known is not None and len(begun(known)) >= 15
        both[1].send_signal(signal.SIGKILL)
        both[1].wait()
        third = run("worker", url, "--time", 4, "--seed", 3, *another)
        assert third.returncode == 0, third.stderr
        said = both[0].communicate(timeout=60)[1]
        assert both[0].returncode == 0, said
        kept = study(url)
        complete = kept.get_trials(states=(TrialState.COMPLETE,))
        by_device = {trial.user_attrs["device"] for trial in complete if "device" in trial.user_attrs}
        assert len(by_device) == 2, by_device
        # The killed one's trial is all that is missing.
        running = kept.get_trials(states=(TrialState.RUNNING, TrialState.FAIL))
        assert len(running) <= 1
        values = {}
        for trial in complete:
            values.setdefault(tuple(sorted(trial.params.items())), set()).add(trial.value)
        assert all(len(of_mask) == 1 for of_mask in values.values())
        made = run("export", url, "-o", tmp_path / "skips.json", "--masks", 2, "--time", 2)
        assert made.returncode == 0, made.stderr
        say(f"{len(begun(kept))} trials of three workers on PostgreSQL, {len(complete)} whole, {len(values)} masks; {made.stdout.splitlines()[0]}")


def test_ctrl_c_keeps_what_was_judged(tmp_path):
    storage = str(tmp_path / "s.journal")
    worker = subprocess.Popen(command("worker", storage), stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        time.sleep(0.3)
        if os.path.exists(storage):
            try:
                if len(begun(study(storage))) > 10:
                    break
            except KeyError:
                continue
    worker.send_signal(signal.SIGINT)
    said = worker.communicate(timeout=30)[1]
    assert worker.returncode == 130 and "interrupted: what was judged is in the study" in said, said
    assert len(study(storage).get_trials(states=(TrialState.COMPLETE,))) > 5
