"""What all tests of the server share."""

import sys

import pytest


@pytest.fixture
def say(capfd):
    """Prints a figure, also where all goes well."""

    def print_it(text):
        with capfd.disabled():
            print(f"\n  {text}", end="", file=sys.stderr)

    return print_it
