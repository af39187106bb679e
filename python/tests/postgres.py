"""A PostgreSQL of one's own, from the system's package."""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest


def programs():
    """Where the server's programs are; None if it is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


@contextlib.contextmanager
def postgres():
    """A server on a port of its own; yields its URL."""
    bin = programs()
    if bin is None:
        pytest.fail("PostgreSQL is missing: python/tests/run installs it (Debian's package postgresql)")
    # It does not run as root.
    as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    folder = Path(tempfile.mkdtemp(prefix="postgres"))
    if as_user:
        shutil.chown(folder, "postgres")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def run(*command):
        subprocess.run([*as_user, *map(str, command)], check=True, capture_output=True, cwd=folder)

    run(bin / "initdb", "-D", folder / "data", "-U", "tester", "--auth=trust", "--no-sync")
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
    run(bin / "pg_ctl", "-D", folder / "data", "-l", folder / "log", "-o", options, "-w", "start")
    try:
        yield f"postgresql://tester@127.0.0.1:{port}/postgres"
    finally:
        run(bin / "pg_ctl", "-D", folder / "data", "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)
