"""What all tests of the server share."""

import sys

import pytest

from serving import Path, Server

TEMPLATE = Path(__file__).parent / "tools.jinja"


@pytest.fixture
def say(capfd):
    """Prints a figure, also where all goes well."""

    def print_it(text):
        with capfd.disabled():
            print(f"\n  {text}", end="", file=sys.stderr)

    return print_it


@pytest.fixture(scope="module")
def talker():
    """A server with a template that knows tools, for who has its key."""
    flags = ("-c", 2048, "--parallel", 4, "--kv-unified", "--chat-template-file", TEMPLATE)
    with Server("stories13m-q4_0", *flags, "--api-key", "secret", "--alias", "stories") as server:
        yield server
