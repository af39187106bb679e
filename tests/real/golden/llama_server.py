"""Runs llama.cpp's llama-server on one model and asks it. The scripts beside this file use it."""

import contextlib
import json
import os
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

FILES = {
    "smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf",
    "gemma3": "gemma-3-270m-q4_k_m.gguf",
    "qwen2.5-coder": "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
}


class Server:
    def __init__(self, port):
        self.port = port

    def ask(self, route, body=None):
        """The answer's JSON. A refusal is also an answer: its JSON has a key `error`."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{route}", data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=3600) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refusal:
            return json.load(refusal)

    def tokens(self, text, add_special, parse_special):
        """`add_special`: with the tokens that begin and end a text. `parse_special`: control tokens in it are looked for."""
        body = {"content": text, "add_special": add_special, "parse_special": parse_special}
        return self.ask("/tokenize", body)["tokens"]

    def next_token(self, tokens, harmless, n_probs):
        """The likeliest tokens after `tokens`, and the logarithms of their probabilities."""
        return {one["id"]: one["logprob"] for one in self._first(tokens, harmless, n_probs)["top_logprobs"]}

    def logprob(self, tokens, harmless, wanted, vocab):
        """That of one token after `tokens`."""
        first = self._first(tokens, wanted, 1)
        if first and first["id"] == wanted:
            return first["logprob"]
        return self.next_token(tokens, harmless, vocab)[wanted]

    def _first(self, tokens, chosen, n_probs):
        """What is reported is of the logits as they are, whatever is chosen, and what is chosen is always among it. Nothing
        is reported where a choice leaves a character unfinished; so a token that is a whole letter is `harmless`."""
        body = {"prompt": tokens, "n_predict": 1, "temperature": 0, "logit_bias": [[chosen, 10000]]}
        body |= {"n_probs": n_probs, "post_sampling_probs": False, "cache_prompt": True}
        return (self.ask("/completion", body).get("completion_probabilities") or [None])[0]


@contextlib.contextmanager
def serving(program, model):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [program, "-m", model, "--port", str(port), "-ngl", "0", "-c", "4096", "-np", "1", "-t", "2", "--no-webui", "--jinja"]
    places = [os.path.dirname(os.path.abspath(program)), os.environ.get("LD_LIBRARY_PATH", "")]
    env = os.environ | {"LD_LIBRARY_PATH": ":".join(p for p in places if p)}
    with tempfile.TemporaryFile("w+") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log, env=env)
        try:
            server = Server(port)
            for _ in range(600):
                with contextlib.suppress(OSError):
                    if server.ask("/health").get("status") == "ok":
                        break
                if running.poll() is not None:
                    log.seek(0)
                    raise SystemExit(f"{program} ended at once:\n{log.read()[-2000:]}")
                time.sleep(0.2)
            yield server
        finally:
            running.terminate()
            running.wait()
