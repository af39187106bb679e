#!/usr/bin/env python3
"""Tests load.py on a server whose speed and faults are known: python3 benches/serve/test_load.py"""

import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
FIRST, EACH = 0.05, 0.01


class Fake(http.server.BaseHTTPRequestHandler):
    """Answers with `max_tokens` words, the first after 50 ms, each further one after 10 ms."""

    busy = 0
    lock = threading.Lock()
    fault = ""

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with Fake.lock:
            Fake.busy += 1
        time.sleep(FIRST)
        beside = Fake.busy
        # Only under load: what fails alone is not measured at all.
        if Fake.fault == "refuses" and body["seed"] == 3 and beside > 1:
            self.send_error(500)
        else:
            self.send_response(200)
            self.end_headers()
            for i in range(body["max_tokens"]):
                time.sleep(EACH if i else 0)
                changed = Fake.fault == "other" or Fake.fault == "load" and beside > 1
                word = f" {i}!" if changed else f" {i}"
                self.say({"choices": [{"text": word}]})
            self.say({"choices": [], "usage": {"completion_tokens": body["max_tokens"]}})
            if Fake.fault != "cut" or body["seed"] != 3 or beside == 1:
                self.wfile.write(b"data: [DONE]\n\n")
        with Fake.lock:
            Fake.busy -= 1

    def say(self, chunk):
        self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")


def run(*arguments, faults=("",)):
    """What load.py says of such servers, one for each fault; its code, its tables and its JSON."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "out.json")
        servers = [f"--server={fault or 'sound'}={sys.executable} {os.path.abspath(__file__)} --serve '{fault}' {{port}}" for fault in faults]
        done = subprocess.run([sys.executable, os.path.join(HERE, "load.py"), *servers, "--json", path, *arguments],
                              capture_output=True, text=True, timeout=120)
        found = None
        if os.path.exists(path):
            with open(path) as file:
                found = json.load(file)
        return done.returncode, done.stdout + done.stderr, found


class Server(http.server.ThreadingHTTPServer):
    # On a busy machine more than the usual five wait to be let in, and the others would be turned away.
    request_queue_size = 128


class Load(unittest.TestCase):
    def test_the_clock(self):
        code, text, found = run("--clients=1,4", "--requests=2", "--tokens=20", "--rounds=1")
        self.assertEqual(code, 0, text)
        alone, four = found["summary"]
        self.assertEqual([alone["requests"], four["requests"]], [2, 8])
        # A sleep never ends early; how late it ends is the machine's affair.
        for row in (alone, four):
            self.assertTrue(1e3 * FIRST <= row["first_ms_p50"] < 1e3 * FIRST + 200, row)
            self.assertTrue(1e3 * EACH <= row["token_ms_p50"] < 1e3 * EACH + 30, row)
            self.assertEqual(row["differ"], 0)
        self.assertLess(alone["tokens_per_second"], 20 / (FIRST + 19 * EACH))
        self.assertGreater(four["tokens_per_second"], 1.5 * alone["tokens_per_second"])

    def test_texts_that_change_are_counted(self):
        code, text, found = run("--clients=1,4", "--requests=4", "--tokens=5", "--rounds=1", faults=("", "load", "other"))
        self.assertEqual(code, 0, text)
        differ = {(row["load"], row["server"]): row["differ"] for row in found["summary"]}
        self.assertEqual(differ["1 clients", "load"], 0)
        self.assertGreater(differ["4 clients", "load"], 8)
        self.assertEqual([differ["4 clients", "sound"], differ["4 clients", "other"]], [0, 0])
        self.assertEqual(found["texts_unlike"], {"against": "sound", "load": 0, "other": 16})

    def test_arrivals(self):
        began = time.monotonic()
        code, text, found = run("--clients=", "--rate=40", "--arrivals=40", "--tokens=3", "--rounds=1")
        self.assertEqual(code, 0, text)
        (row,) = found["measurements"]
        self.assertEqual((row["requests"], row["failed"]), (40, 0))
        # Forty at forty a second take about a second, which is six standard deviations from three.
        self.assertTrue(0.2 < row["seconds"] < 3, row)
        self.assertLess(time.monotonic() - began, 30)

    def test_failures_are_told_and_fail_the_run(self):
        for fault, said in (("refuses", "500"), ("cut", "without [DONE]")):
            code, text, found = run("--clients=4", "--requests=3", "--tokens=3", "--rounds=1", faults=(fault,))
            self.assertEqual(code, 1, text)
            self.assertEqual(found["summary"][0]["failed"], 1)
            self.assertIn(said, text)

    def test_what_cannot_be_done_is_one_line(self):
        for arguments, said in (
            (["--server=x"], "NAME=COMMAND"),
            (["--server=x=true", "--clients="], "no load"),
            (["--server=x=true", "--clients=0"], "above 0"),
            (["--server=x=true", "--against=y"], "no --server"),
            (["--server=x=/nowhere/server"], "No such file"),
            (["--server=x=true"], "ended with 0"),
            (["--server=x=true", "--clients=two"], "list of numbers"),
        ):
            done = subprocess.run([sys.executable, os.path.join(HERE, "load.py"), *arguments], capture_output=True, text=True, timeout=60)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(said, done.stderr)
            self.assertNotIn("Traceback", done.stderr)


if __name__ == "__main__":
    if "--serve" in sys.argv:
        Fake.fault = sys.argv[2]
        Server(("127.0.0.1", int(sys.argv[3])), Fake).serve_forever()
    unittest.main()
