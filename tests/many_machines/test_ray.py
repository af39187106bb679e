"""examples/python/ray_shards.py on a local Ray gives what one run gives. tests/many_machines/run starts it."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ["-f", str(ROOT / "models/stories-val.txt"), "-c", "64", "--chunks", "5", "-t", "1", "--skip-mlp", "3,4"]


def printed(command, folder):
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_shards_by_ray_are_the_whole_run(tmp_path):
    assert shutil.which("spec-run"), "spec-run is not on the PATH: tests/many_machines/run puts it there"
    example = [sys.executable, str(ROOT / "examples/python/ray_shards.py"), "3", *FLAGS]
    whole = printed(["spec-run", "perplexity", *FLAGS], tmp_path)
    assert "(5 chunks, 155 tokens)" in whole
    assert printed(example, tmp_path) == whole
    assert len((tmp_path / "shards.jsonl").read_text().splitlines()) == 5


def test_a_shard_that_fails_is_an_error(tmp_path):
    example = [sys.executable, str(ROOT / "examples/python/ray_shards.py"), "2"]
    result = subprocess.run([*example, "-f", "no/such/file"], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode != 0 and not (tmp_path / "shards.jsonl").read_text()
