"""What tests share. They need the package installed, and the program beside it: SPEC_RUN, or target/release/spec-run."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from spec_run import Model

# It asks llama-cpp-python, which is not needed otherwise.
collect_ignore = ["llama_cpp_scores.py"]

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("SPEC_RUN", ROOT / "target/release/spec-run"))
STORIES = ROOT / "models/stories-val.txt"


def built(path):
    """What the tests' `run` script builds; a test that lacks it fails, and says what to do."""
    if not path.exists():
        pytest.fail(f"{path} is missing: python/tests/run builds it")
    return path


def program(*args, input=None):
    """What the program says, from JSON."""
    command = [str(built(PROGRAM)), *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, input=input)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return json.loads(done.stdout)


@pytest.fixture(scope="session")
def model():
    return Model.embedded()


@pytest.fixture
def say(capsys):
    """Prints a figure, whatever pytest does with output."""

    def printed(line):
        with capsys.disabled():
            print(f"\n  {line}", end="")

    return printed
