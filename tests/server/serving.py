"""A server to ask: started with some flags, watched, and told to end."""

import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
BINARY = Path(os.environ.get("SPEC_RUN", ROOT / "target/release/spec-run")).resolve()


def needed(path):
    """A path that has to be there."""
    assert Path(path).exists(), f"{path} is missing"
    return Path(path)


def model(name):
    return needed(SHARED / "fixtures/models" / f"{name}.gguf")


class Server:
    """`spec-run serve` with these flags; `with Server(...) as server`. Of a fixture by its name, a model by its path, or the
    model that is in the program."""

    def __init__(self, name, *flags, program=None, port=0):
        command = program or [needed(BINARY), "serve"]
        path = model(name) if isinstance(name, str) else name
        flags = ["--no-learn", *(["-m", path] if path else []), "--port", port, *flags]
        self.process = subprocess.Popen(
            [str(word) for word in [*command, *flags]],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        self.log = []
        self.port = None
        listening = threading.Event()
        self.reader = threading.Thread(target=self._read, args=(listening,), daemon=True)
        self.reader.start()
        assert listening.wait(60) and self.port, f"the server did not start: {self.text_of_log()}"
        self.url = f"http://127.0.0.1:{self.port}"

    def _read(self, listening):
        for line in self.process.stderr:
            line = line.decode(errors="replace").rstrip()
            self.log.append(line)
            if found := re.search(r"listening on http://[^:]+:(\d+)", line):
                self.port = int(found[1])
                listening.set()
        listening.set()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ends()

    def ends(self):
        """Ends it as a service manager would, and says so if it had ended before or left a panic in its log."""
        ended = self.process.poll()
        if ended is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(40)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise
        self.reader.join(5)
        assert ended is None, f"the server had ended with {ended}: {self.text_of_log()}"
        # The usual status of who was told to end and did.
        assert self.process.returncode == 128 + signal.SIGTERM, f"it ended with {self.process.returncode}: {self.text_of_log()}"
        assert not [line for line in self.log if "panicked" in line], self.text_of_log()

    def text_of_log(self):
        return "\n".join(self.log[-40:])

    def send(self, path, body=None, timeout=120, method=None):
        """The bytes of an answer; an error for a status that is not 2xx."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=timeout) as reply:
            return reply.read()

    def json(self, path, body=None, timeout=120):
        return json.loads(self.send(path, body, timeout))

    def connect(self, timeout=120):
        return socket.create_connection(("127.0.0.1", self.port), timeout)

    def handles(self):
        """Files and sockets that the process has open."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def resident(self):
        """Bytes of memory that are its own."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"RssAnon:\s+(\d+)", status)[1]) * 1024

    def metrics(self):
        lines = self.send("/metrics").decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name.removeprefix("llamacpp:"): float(value) for name, value in pairs}


def wait_for(what, condition, seconds=20):
    """Waits until a condition holds."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"{what}: not within {seconds} seconds"
        time.sleep(0.05)
