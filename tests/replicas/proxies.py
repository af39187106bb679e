"""Three replicas, and the proxies before them."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

import page

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "server"))
from serving import Server, wait_for  # noqa: E402

LITELLM = Path(os.environ.get("LITELLM", "target/replicas/litellm"))
HAS_AVX2 = "avx2" in Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else False

# None of this may show in a text. All of them draft, whenever they find that it pays.
DIFFERENCES = [
    ["--metrics", "--spec-draft-n-max", 3],
    ["--metrics", "--spec-draft-n-max", 4, "-t", 1, "-b", 64, *(["--isa", "avx2"] if HAS_AVX2 else [])],
    ["--metrics", "--spec-draft-n-max", 2, "--no-repack", "--max-waiting", 0],
]
# Which of them takes no more than four requests at once.
SMALL = 2


class Replicas:
    """Three servers at ports that stay theirs."""

    def __init__(self):
        self.all = [Server(None, *flags) for flags in DIFFERENCES]
        self.ports = [replica.port for replica in self.all]

    def at(self, address):
        """The one with this address; of several the last, as nginx lists those that it asked."""
        return self.all[self.ports.index(int(re.findall(r":(\d+)", address)[-1]))]

    def others(self, replica):
        return [one for one in self.all if one is not replica]

    def kill(self, replica):
        """As a power cut would."""
        replica.process.kill()
        replica.process.wait()

    def revive(self):
        """Starts those again that have ended."""
        for i, (replica, flags) in enumerate(zip(self.all, DIFFERENCES)):
            if replica.process.poll() is not None:
                replica.process.stderr.close()
                self.all[i] = Server(None, *flags, port=self.ports[i])

    def end(self):
        for replica in self.all:
            if replica.process.poll() is None:
                replica.ends()
            replica.process.stderr.close()


class Proxy:
    """A program that listens at a port of its own, in a folder of its own."""

    def __init__(self, command, files, ready, env=None):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            self.port = taken.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.folder = Path(tempfile.mkdtemp())
        for name, text in files(self.port).items():
            (self.folder / name).write_text(text)
        with open(self.folder / "log", "wb") as log:
            command = [str(word).format(port=self.port, folder=self.folder) for word in command]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, env={**os.environ, **(env or {})})
        wait_for(f"{command[0]} answers", lambda: self.process.poll() is not None or self.answers(ready), 60)
        assert self.process.poll() is None, (self.folder / "log").read_text()

    def answers(self, path):
        try:
            return urllib.request.urlopen(self.url + path, timeout=5).status == 200
        except OSError:
            return False

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder)


def nginx(ports):
    """nginx with what the page prints, and around it what every configuration has."""

    def files(port):
        user = "user root;" if os.geteuid() == 0 else ""
        # Several workers, as everywhere: each has its own view of what it was not told.
        around = f"{user} worker_processes 2; daemon off; pid pid; error_log stderr; events {{}} http {{ access_log off; "
        kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        around += " ".join(f"{kind}_temp_path {kind};" for kind in kinds)
        return {"nginx.conf": f"{around} include spec-run.conf; }}", "spec-run.conf": page.nginx(port, ports)}

    return Proxy(["nginx", "-e", "stderr", "-p", "{folder}", "-c", "{folder}/nginx.conf"], files, "/health")


def litellm(ports):
    # Without this it asks the network for prices when it starts.
    env = {"PYTHONPATH": str(LITELLM.resolve()), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    command = [sys.executable, LITELLM.resolve() / "bin/litellm", "--config", "{folder}/litellm.yaml"]
    command += ["--host", "127.0.0.1", "--port", "{port}"]
    return Proxy(command, lambda _: {"litellm.yaml": page.litellm(ports)}, "/health/liveliness", env)


def ask(url, body, conversation=None, path="/v1/chat/completions"):
    """An answer, and the headers that it came with."""
    headers = {"Content-Type": "application/json", **({"X-Session-Id": conversation} if conversation else {})}
    with urllib.request.urlopen(urllib.request.Request(url + path, json.dumps(body).encode(), headers), timeout=60) as reply:
        return json.loads(reply.read()), reply.headers
