"""The types that editors and type checkers read are those of the module."""

import subprocess
import sys
from pathlib import Path


def mypy(folder, *args):
    # Not where the package lies: what lies beside it would be taken for ours.
    made = subprocess.run([sys.executable, "-m", *args], capture_output=True, text=True, cwd=folder)
    assert made.returncode == 0, made.stdout + made.stderr


def test_the_package_is_typed(tmp_path):
    settings = Path(__file__).resolve().parents[1] / "pyproject.toml"
    mypy(tmp_path, "mypy", "--config-file", str(settings), "--cache-dir=/dev/null", "-p", "spec_run")


def test_the_stubs_are_those_of_the_module(tmp_path):
    # What pyo3 adds of its own.
    allowed = tmp_path / "allowed"
    allowed.write_text("spec_run._native.__all__\n")
    mypy(tmp_path, "mypy.stubtest", "spec_run._native", "--allowlist", str(allowed))
