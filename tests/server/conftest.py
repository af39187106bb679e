"""What all tests of the server share."""

import os
import sys

import pytest

from serving import Path, Server, model

TEMPLATE = Path(__file__).parent / "tools.jinja"


@pytest.fixture
def say(capfd):
    """Prints a figure, also where all goes well."""

    def print_it(text):
        with capfd.disabled():
            print(f"\n  {text}", end="", file=sys.stderr)

    return print_it


STORIES = "stories13m-q4_0"
# Models that people trained, in the folder that SPEC_RUN_REAL_MODELS names, and what stands before a text.
REAL = {
    "SmolLM2-135M-Instruct.Q4_1": "",
    "gemma-3-270m-q4_k_m": "<bos>",
    "qwen2.5-coder-1.5b-instruct-q4_k_m": "",
}


@pytest.fixture(scope="module", params=[STORIES, *REAL])
def talker(request):
    """A server for who has its key. Stories' has a template that knows tools; of the others each has its own."""
    flags = ["--parallel", 4, "--kv-unified", "--api-key", "secret", "--alias", "stories", "-c", 8192]
    if request.param == STORIES:
        path, begins = model(STORIES), "<s> "
        flags += ["--chat-template-file", TEMPLATE]
    else:
        path = Path(os.environ.get("SPEC_RUN_REAL_MODELS", "")) / f"{request.param}.gguf"
        if not path.exists():
            pytest.skip(f"NOT RUN on {request.param}: SPEC_RUN_REAL_MODELS names no folder with it")
        begins = REAL[request.param]
    with Server(path, *flags) as server:
        server.begins = begins
        yield server
