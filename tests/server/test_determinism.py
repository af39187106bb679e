"""The same request gives the same text alone and among 16, with drafts: by the check that llama-server was measured with."""

import re
import subprocess
import sys
import time

import pytest

from serving import SHARED, Server, needed

CLIENTS, ROUNDS = 16, 2


@pytest.mark.parametrize("kind", ["q4_0", "q4_k", "q8_0", "f16"])
def test_no_text_differs_under_load(kind, say):
    check = needed(SHARED / "server/det.py")
    flags = ("--parallel", CLIENTS, "--kv-unified", "-c", 8192, "--metrics")
    began = time.monotonic()
    with Server(f"stories13m-{kind}", *flags) as server:
        command = [sys.executable, check, server.url, CLIENTS, ROUNDS]
        made = subprocess.run(map(str, command), capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
        drafted = server.metrics()["spec_decode_num_accepted_tokens_total"]
    said = re.findall(r"temperature (\S+): differs under load: (\d+) of (\d+)", made.stdout)
    assert [int(total) for _, _, total in said] == [CLIENTS * ROUNDS] * 2, made.stdout
    assert all(differ == "0" for _, differ, _ in said), made.stdout
    # Without drafts it would prove less.
    assert drafted > 100
    tokens = 200 * 2 * CLIENTS * (1 + ROUNDS)
    say(f"{kind}: 0 of {2 * CLIENTS * ROUNDS} texts differ; {drafted:.0f} of {tokens} tokens drafted, {time.monotonic() - began:.0f} s")
