"""llama.cpp's own tests of its server, against ours. They come with the sources of llama-cpp-python on PyPI."""

import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
from pathlib import Path

from serving import BINARY, ROOT, SHARED, model, needed

HERE = Path(__file__).parent
PLACE = ROOT / "target/server/llama.cpp"
RELEASE = "llama_cpp_python==0.3.36"
IN_SOURCES = "vendor/llama.cpp/"


def sources():
    """llama.cpp's tests and chat templates, from a download that is kept."""
    if not (PLACE / "models").exists():
        shutil.rmtree(PLACE, ignore_errors=True)
        PLACE.mkdir(parents=True)
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "llama-cpp-python", RELEASE, "-d", PLACE]
        subprocess.run(pip, check=True)
        [packed] = PLACE.glob("*.tar.gz")
        with tarfile.open(packed) as files:
            wanted = [f"{IN_SOURCES}tools/server/tests/", f"{IN_SOURCES}models/templates/"]
            for file in files:
                inner = file.name.partition("/")[2]
                if file.isfile() and inner.startswith(tuple(wanted)):
                    # The tests look for templates three folders up.
                    file.name = inner.removeprefix(IN_SOURCES).removeprefix("tools/")
                    files.extract(file, PLACE, filter="data")
        packed.unlink()
    return PLACE / "server/tests"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def longer_context():
    """stories260K as if it had been trained for 2048 tokens: four of the tests have prompts that long."""
    key = b"llama.context_length"
    data = bytearray(model("stories260K").read_bytes())
    at = data.index(key) + len(key) + 4
    assert data[at : at + 4] == (512).to_bytes(4, "little")
    data[at : at + 4] = (2048).to_bytes(4, "little")
    path = PLACE / "stories260K-2048.gguf"
    path.write_bytes(data)
    return path


# The list abbreviates the names of these.
CUT = [
    f"test_tool_call.py::test_completion_without_tool_call_fast[meta-llama-Llama-3.3-70B-Instruct-128-{choice}-{mode}]"
    for choice in ("tools1-None", "tools2-none")
    for mode in ("CompletionMode.NORMAL", "CompletionMode.STREAMED")
]


def chosen():
    """The tests to be run, which are those that llama-server itself passed with this model."""
    lines = needed(SHARED / "server/tests_218.txt").read_text().splitlines()
    return [line for line in lines if "..." not in line] + CUT


def expected():
    """Tests that may fail, and why."""
    lines = (HERE / "llama_cpp_may_fail.txt").read_text().splitlines()
    pairs = [line.split("  # ", 1) for line in lines if line and not line.startswith("#")]
    assert all(len(pair) == 2 and pair[1] for pair in pairs), "each name needs a reason"
    return dict(pairs)


def outcomes(tests, names, environment, timeout):
    """What became of each test, and all that pytest said."""
    command = [sys.executable, "-m", "pytest", "-v", "--tb=line", f"--timeout={timeout}", "-p", "no:cacheprovider", *names]
    made = subprocess.run(command, cwd=tests / "unit", env=os.environ | environment, capture_output=True, text=True)
    return dict(re.findall(r"^(test_\S+::.+?) (PASSED|FAILED|ERROR|SKIPPED)", made.stdout, re.M)), made.stdout


def judge(of, may_fail, say):
    failed = [name for name, outcome in of.items() if outcome != "PASSED"]
    say(f"{len(of) - len(failed)} of {len(of)} pass")
    for name in sorted(set(may_fail) - set(failed)):
        say(f"passes although it may fail: {name}")
    unexpected = [name for name in failed if name not in may_fail]
    assert not unexpected, "\n".join([f"{len(unexpected)} fail:", *unexpected])


def is_of_router(name):
    return name.startswith("test_router.py")


def test_llama_cpps_tests_pass(say):
    tests, model_file = sources(), longer_context()
    shutil.copyfile(needed(SHARED / "server/conftest.py"), tests / "conftest.py")
    environment = {
        "SERVER": f"{needed(BINARY)} serve",
        "MODEL": str(model_file),
        "PORT": str(free_port()),
        "LLAMA_SERVER_BIN_PATH": str(needed(SHARED / "server/wrap.sh")),
    }
    names = chosen()
    of, said = outcomes(tests, names, environment, 20)
    assert len(names) == 218
    missing = [name for name in names if name not in of]
    assert not missing, f"{len(missing)} did not run, as {missing[0]}\n{said[-2000:]}"
    judge(of, {name: why for name, why in expected().items() if not is_of_router(name)}, say)


# The models of the router's tests, which are all stories260K here.
CACHED = {
    "tinygemma3-GGUF": "tinygemma3-Q8_0.gguf",
    "test-model-stories260K": "stories260K-f32.gguf",
    "test-model-stories260K-infill": "stories260K-infill-f32.gguf",
}


def test_llama_cpps_router_tests_pass(say, tmp_path):
    tests, model_file = sources(), longer_context()
    shutil.copyfile(needed(SHARED / "server/conftest.py"), tests / "conftest.py")
    (tests / "tmp").mkdir(exist_ok=True)
    for repository, file in CACHED.items():
        place = tmp_path / f"models--ggml-org--{repository}"
        snapshot = place / "snapshots" / ("a" * 40)
        snapshot.mkdir(parents=True)
        (place / "refs").mkdir()
        (place / "refs/main").write_text(snapshot.name)
        shutil.copyfile(model_file, snapshot / file)
    # Without any model's name llama-server has all of the cache; ours wants to be told.
    start = tmp_path / "start.sh"
    start.write_text(f'#!/bin/sh\nexec {needed(BINARY)} serve --models-max 4 "$@" -t 1\n')
    start.chmod(0o755)
    environment = {
        "LLAMA_CACHE": str(tmp_path),
        "HF_HUB_OFFLINE": "1",
        "PORT": str(free_port()),
        "LLAMA_SERVER_BIN_PATH": str(start),
    }
    of, said = outcomes(tests, ["test_router.py"], environment, 60)
    assert len(of) == 17, said[-2000:]
    judge(of, {name: why for name, why in expected().items() if is_of_router(name)}, say)
