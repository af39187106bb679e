"""What stands in examples/python runs, and says what it should."""

import re
import subprocess
import sys

import nbformat
import pytest
from conftest import ROOT
from nbclient import NotebookClient

EXAMPLES = ROOT / "examples/python"


def ran(name, *args, cwd=ROOT):
    made = subprocess.run([sys.executable, EXAMPLES / name, *args], capture_output=True, text=True, cwd=cwd)
    assert made.returncode == 0, made.stderr
    return made.stdout


def test_what_the_document_shows_runs(monkeypatch, capsys):
    """All of its Python, from top to bottom."""
    page = (ROOT / "docs/python.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
    assert len(blocks) == 6
    monkeypatch.chdir(ROOT)
    names = {}
    for block in blocks:
        exec(block, names)
    assert "Once upon a time" in capsys.readouterr().out


def test_the_notebook_of_an_ablation_runs():
    notebook = nbformat.read(EXAMPLES / "ablation.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "outputs are not kept"
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": ROOT}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 3
    assert any("without the MLPs of" in output.get("text", "") for output in outputs)


def test_a_proposer_is_right_the_second_time():
    lines = ran("proposer.py").splitlines()
    assert len(lines) == 4 and all(line.endswith("True") for line in lines)
    accepted = [int(line.split()[0]) for line in lines]
    assert accepted[2] > 50 and accepted[3] > 50


def test_a_study_of_ones_own_ends_in_a_file(tmp_path):
    said = ran("study.py", "20", cwd=tmp_path)
    assert "predicted speedup" in said and (tmp_path / "study-skips.json").exists()


def test_lm_eval_under_masks():
    lines = ran("lm_eval_mask.py").splitlines()
    told = {int(line.split()[2]): float(line.split()[5]) for line in lines if line.startswith("the first")}
    assert list(told) == [16, 12, 8, 4] and told[16] > told[4]


def test_two_quantizations_are_compared():
    models = ROOT.parent / "shared/fixtures/models"
    if not models.exists():
        pytest.skip("NOT RUN: two quantizations are compared: ../shared has the files")
    args = ["stories13m-f16.gguf", "stories13m-q8_0.gguf", "stories13m-q4_0.gguf", "stories13m-q2_k.gguf"]
    text = ROOT / "models/stories-val.txt"
    said = [ran("compare_quantizations.py", models / args[0], models / other, text) for other in args[1:]]
    divergence = [float(one.splitlines()[1].split()[2]) for one in said]
    assert 0 < divergence[0] < divergence[1] < divergence[2]
