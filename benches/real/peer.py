"""llama-server as another program's drafting: one process for each way to draft, all of them there from the start, so that runs can
alternate. One that waits takes no time from the others."""

import json
import os
import pathlib
import socket
import subprocess
import time
import urllib.request

# What needs no other model, by llama.cpp's names.
WAYS = ["none", "ngram-simple", "ngram-mod", "ngram-map-k"]


class Peers:
    def __init__(self, program, model, threads, chat):
        self.chat = chat
        self.servers = {way: self.start(program, model, threads, way) for way in WAYS}

    def start(self, program, model, threads, way):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [program, "-m", model, "--port", port, "-t", threads, "-c", 4096, "-np", 1, "--device", "none"]
        command += [] if way == "none" else ["--spec-type", way]
        folder = str(pathlib.Path(program).resolve().parent)
        env = dict(os.environ, LD_LIBRARY_PATH=folder)
        null = subprocess.DEVNULL
        process = subprocess.Popen([str(word) for word in command], stdout=null, stderr=null, env=env)
        return process, f"http://127.0.0.1:{port}"

    def run(self, way, prompt, n, temp, seed):
        """Tokens a second behind the prompt."""
        process, address = self.servers[way]
        body = {"max_tokens": n, "n_predict": n, "temperature": float(temp), "seed": seed, "cache_prompt": False}
        if self.chat:
            path, body["messages"] = "/v1/chat/completions", [{"role": "user", "content": prompt}]
        else:
            path, body["prompt"] = "/completion", prompt
        for _ in range(600):
            if process.poll() is not None:
                raise SystemExit(f"llama-server ended with {process.returncode}: {way}")
            try:
                request = urllib.request.Request(address + path, json.dumps(body).encode())
                request.add_header("content-type", "application/json")
                return json.load(urllib.request.urlopen(request))["timings"]["predicted_per_second"]
            except OSError:
                # It still loads.
                time.sleep(0.2)
        raise SystemExit(f"llama-server does not answer: {way}")

    def stop(self):
        for process, _ in self.servers.values():
            process.terminate()
            process.wait()
