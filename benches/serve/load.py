#!/usr/bin/env python3
"""How servers behave under load: time to first token, time per token, tokens per second, and whether texts stay the same.

    benches/serve/load.py \\
        --server 'drafts=target/release/spec-run serve -m model.gguf' \\
        --server 'plain=target/release/spec-run serve -m model.gguf --draft none' \\
        --server 'llama=llama-server -m model.gguf -t 2 -np 16 -c 16384'

Each measurement starts a server of its own on a free port (as `--port`, or in the place of {port}), waits for /health, sends
one request that does not count, then the load, and ends the server. The servers take turns within each load and round, so
that what the machine does meanwhile falls on all of them.

A load is a number of clients, each of which sends its next request when it has its answer (--clients), or requests that
arrive at random times, so many a second on average (--rate). Requests go to /v1/completions. They go round a list of prompts,
each with a seed of its own. Before the first load each server answers all of them one by one; the tables count the texts that
are other than these.
"""

import argparse
import concurrent.futures
import datetime
import http.client
import json
import os
import platform
import random
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

PROMPTS = [
    "Once upon a time", "The cat sat on", "Lily and Tom went to the park", "One day a dog found", "Mom said to Ben",
    "There was a big tree", "Tim had a red ball", "The sun was bright", "In the garden", "A bird", "Sam and his mother",
    "It was raining", "The little fish", "Grandma made", "Two friends", "A frog",
]
MOST_IN_FLIGHT = 64


def fail(message):
    sys.exit(f"load.py: {message}")


class Server:
    """A process that answers on a port of its own, for the length of a `with`."""

    def __init__(self, name, command, patience):
        self.name, self.command, self.patience = name, command, patience

    def __enter__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        words = shlex.split(self.command)
        if any("{port}" in word for word in words):
            words = [word.replace("{port}", str(self.port)) for word in words]
        else:
            words += ["--host", "127.0.0.1", "--port", str(self.port)]
        self.log = tempfile.TemporaryFile()
        try:
            self.process = subprocess.Popen(words, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL,
                                            start_new_session=True)
        except OSError as error:
            fail(f"{self.name}: {words[0]}: {error.strerror}")
        try:
            self.wait_for_health()
        except BaseException:
            self.__exit__()
            raise
        return self

    def wait_for_health(self):
        deadline = time.monotonic() + self.patience
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                fail(f"{self.name}: ended with {self.process.returncode} before it answered:\n{self.last_lines()}")
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.05)
        fail(f"{self.name}: /health did not answer 200 within {self.patience} s:\n{self.last_lines()}")

    def last_lines(self):
        self.log.seek(0)
        return "\n".join(self.log.read().decode(errors="replace").splitlines()[-8:])

    def __exit__(self, *_):
        # The group, for a command may be a script that has started the server.
        for what in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, what)
            except ProcessLookupError:
                break
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                continue
        self.process.wait()
        self.log.close()


class Answer:
    """One request: when its parts came, and what they said. Nothing is parsed before it has ended."""

    def __init__(self, port, body, timeout):
        self.events, self.error = [], None
        self.began = time.perf_counter()
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                self.error = f"{response.status}: {response.read(300).decode(errors='replace')}"
            else:
                while line := response.readline():
                    self.events.append((time.perf_counter(), line))
            connection.close()
        except (OSError, http.client.HTTPException) as error:
            self.error = f"{type(error).__name__}: {error}"
        self.ended = time.perf_counter()

    def parse(self):
        self.text, self.tokens, times, finished = "", None, [], False
        for when, line in self.events:
            if not line.startswith(b"data:"):
                continue
            data = line[5:].strip()
            if data == b"[DONE]":
                finished = True
                continue
            chunk = json.loads(data)
            if "error" in chunk:
                self.error = str(chunk["error"])
            if chunk.get("usage"):
                self.tokens = chunk["usage"]["completion_tokens"]
            part = "".join(choice.get("text") or "" for choice in chunk.get("choices", []))
            if part:
                times.append(when)
                self.text += part
        if self.error is None and not finished:
            self.error = "the stream ended without [DONE]"
        if self.error is None and not times:
            self.error = "no text came"
        if self.error is None:
            self.tokens = self.tokens or len(times)
            self.first_ms = 1e3 * (times[0] - self.began)
            self.token_ms = 1e3 * (times[-1] - times[0]) / max(1, self.tokens - 1)
            self.pauses_ms = [1e3 * (b - a) for a, b in zip(times, times[1:])]
            self.seconds = self.ended - self.began
        return self


def closed_loop(clients, requests, send):
    """`clients` at a time, each sending its next request when it has its answer."""
    numbers, lock, answers = iter(range(requests)), threading.Lock(), {}

    def client():
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            answers[number] = send(number)

    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        for done in [pool.submit(client) for _ in range(clients)]:
            done.result()
    return answers


def arrivals(rate, requests, send, seed):
    """Requests at random times, `rate` a second on average; the times are the same for every server."""
    gaps = random.Random(seed)
    with concurrent.futures.ThreadPoolExecutor(MOST_IN_FLIGHT) as pool:
        due, sent = time.monotonic(), {}
        for number in range(requests):
            due += gaps.expovariate(rate)
            time.sleep(max(0.0, due - time.monotonic()))
            sent[number] = pool.submit(send, number)
        return {number: future.result() for number, future in sent.items()}


def measure(server, load, args, prompts, requests):
    """The answers to a load, and the seconds that it took."""
    def body(number):
        which = number % len(prompts)
        return {"prompt": prompts[which], "max_tokens": args.tokens, "temperature": args.temperature, "seed": which,
                "stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True, **args.body}

    kind, size = load
    with server:
        warm = Answer(server.port, body(0), args.timeout).parse()
        if warm.error:
            fail(f"{server.name}: the first request failed: {warm.error}")
        began = time.perf_counter()
        send = lambda number: Answer(server.port, body(number), args.timeout)
        if kind == "clients":
            answers = closed_loop(size, requests, send)
        else:
            answers = arrivals(size, requests, send, args.seed)
        seconds = time.perf_counter() - began
    return {number: answer.parse() for number, answer in answers.items()}, seconds


def percentile(values, part):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else None


class Results:
    """All measurements, and the texts that each server gave when it was asked one by one."""

    def __init__(self, alone):
        self.rows, self.alone, self.times = [], alone, {}

    def differs(self, server, number, text):
        texts = self.alone[server]
        return text != texts[number % len(texts)]

    def add(self, round_number, load, server, answers, seconds):
        good = {number: a for number, a in answers.items() if a.error is None}
        self.times[round_number, load, server] = {number: a.seconds for number, a in good.items()}
        first, token = [a.first_ms for a in good.values()], [a.token_ms for a in good.values()]
        pauses = [pause for a in good.values() for pause in a.pauses_ms]
        row = {
            "round": round_number, "load": f"{load[1]:g} {'clients' if load[0] == 'clients' else 'a second'}", "server": server,
            "requests": len(answers), "failed": len(answers) - len(good), "seconds": seconds,
            "tokens": sum(a.tokens for a in good.values()),
            "differ": sum(self.differs(server, number, a.text) for number, a in good.items()),
            "load_average": os.getloadavg()[0], "errors": sorted({a.error for a in answers.values() if a.error})[:3],
        }
        row["tokens_per_second"] = row["tokens"] / seconds
        for name, values in (("first_ms", first), ("token_ms", token), ("pause_ms", pauses)):
            row[f"{name}_p50"], row[f"{name}_p99"] = percentile(values, 0.5), percentile(values, 0.99)
        self.rows.append(row)
        return row

    def summary(self, load, server):
        """Medians over the rounds; counts are sums."""
        rows = [row for row in self.rows if (row["load"], row["server"]) == (load, server)]
        out = {"load": load, "server": server}
        for name in rows[0]:
            values = [row[name] for row in rows]
            if name in ("requests", "failed", "differ"):
                out[name] = sum(values)
            elif name.endswith(("_p50", "_p99", "_second")) and None not in values:
                out[name] = statistics.median(values)
        return out

    def ratios(self, load, label, server, against, rounds):
        """Tokens per second and the slowest request, each divided by the other server's in the same round."""
        speeds, slowest = [], 0.0
        for number in range(rounds):
            pair = [row for name in (server, against) for row in self.rows
                    if (row["round"], row["load"], row["server"]) == (number, label, name)]
            speeds.append(pair[0]["tokens_per_second"] / pair[1]["tokens_per_second"] if pair[1]["tokens"] else 0.0)
            mine, theirs = self.times[number, load, server], self.times[number, load, against]
            slowest = max([slowest] + [mine[i] / theirs[i] for i in mine.keys() & theirs.keys()])
        return {"load": label, "server": server, "against": against, "speed": statistics.median(speeds), "slowest_request": slowest}


def table(head, rows):
    print("| " + " | ".join(head) + " |")
    print("|:--|:--|" + "--:|" * (len(head) - 2))
    for row in rows:
        print("| " + " | ".join("-" if cell is None else f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row) + " |")
    print()


def report(results, loads, labels, servers, args, about):
    print("Milliseconds to the first token, per token of a request, and of the pause between two parts of a text; medians of "
          f"{args.rounds} rounds.\n")
    summaries = [results.summary(label, server.name) for label in labels for server in servers]
    table(["load", "server", "tokens/s", "first p50", "p99", "token p50", "p99", "pause p50", "p99", "texts that differ", "failed"],
          [[s["load"], s["server"], s["tokens_per_second"]]
           + [s.get(f"{name}_{part}") for name in ("first_ms", "token_ms", "pause_ms") for part in ("p50", "p99")]
           + [f"{s['differ']} of {s['requests'] - s['failed']}", s["failed"]] for s in summaries])
    against = args.against or servers[0].name
    others = [server.name for server in servers if server.name != against]
    ratios = [results.ratios(load, label, name, against, args.rounds) for load, label in zip(loads, labels) for name in others]
    unlike = {name: sum(a != b for a, b in zip(results.alone[name], results.alone[against])) for name in others}
    if others:
        print(f"Divided by {against}, in the same round: tokens per second (median), and the time of the request that lost most.\n")
        table(["load", "server", "speed", "slowest request"], [[r["load"], r["server"], r["speed"], r["slowest_request"]] for r in ratios])
        for name, count in unlike.items():
            print(f"{name}: {count} of {len(results.alone[name])} texts are other than {against}'s, each asked one by one.")
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"about": about, "summary": summaries, "ratios": ratios, "texts_unlike": {"against": against, **unlike},
                       "measurements": results.rows}, file, indent=1)


def numbers(kind):
    def read(text):
        found = [kind(x) for x in text.split(",") if x]
        if any(x <= 0 for x in found):
            raise argparse.ArgumentTypeError(f"`{text}`: each number must be above 0")
        return found
    read.__name__ = "list of numbers"
    return read


def one_by_one(server, args, prompts):
    """The texts of all requests, each asked when the one before has been answered."""
    answers, _ = measure(server, ("clients", 1), args, prompts, len(prompts))
    for answer in answers.values():
        if answer.error:
            fail(f"{server.name}: a request by itself failed: {answer.error}")
    return [answers[number].text for number in range(len(prompts))]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", action="append", required=True, metavar="NAME=COMMAND")
    parser.add_argument("--clients", type=numbers(int), default=[1, 2, 4, 8, 16], metavar="N,N..", help="default 1,2,4,8,16; may be empty")
    parser.add_argument("--rate", type=numbers(float), default=[], metavar="X,X..", help="requests a second, on average")
    parser.add_argument("--requests", type=int, default=4, help="of each client (default 4)")
    parser.add_argument("--arrivals", type=int, default=32, help="requests of each --rate (default 32)")
    parser.add_argument("--tokens", type=int, default=128, help="of each answer (default 128)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--body", type=json.loads, default={}, metavar="JSON", help="further fields of every request")
    parser.add_argument("--prompts", metavar="FILE", help="one a line, instead of sixteen beginnings of stories")
    parser.add_argument("--against", metavar="NAME", help="which server the others are compared with (default: the first)")
    parser.add_argument("--seed", type=int, default=1, help="of the times of --rate")
    parser.add_argument("--timeout", type=float, default=300, help="seconds that a request may be silent")
    parser.add_argument("--patience", type=float, default=300, help="seconds that a server may take to start")
    parser.add_argument("--json", metavar="FILE", help="everything, as JSON")
    args = parser.parse_args()
    if min(args.requests, args.arrivals, args.tokens, args.rounds) < 1:
        fail("--requests, --arrivals, --tokens and --rounds must be at least 1")
    return args


def main():
    args = arguments()
    servers = []
    for text in args.server:
        name, equals, command = text.partition("=")
        if not equals or not name or not command.strip() or any(name == other.name for other in servers):
            fail(f"--server {text}: it must be NAME=COMMAND, with a name of its own")
        servers.append(Server(name, command, args.patience))
    if args.against and all(args.against != server.name for server in servers):
        fail(f"--against {args.against}: no --server has this name")
    prompts = PROMPTS
    if args.prompts:
        try:
            with open(args.prompts, encoding="utf-8") as file:
                prompts = [line.rstrip("\n") for line in file if line.strip()]
        except OSError as error:
            fail(f"{args.prompts}: {error.strerror}")
        if not prompts:
            fail(f"{args.prompts}: it has no prompt")
    loads = [("clients", n) for n in args.clients] + [("rate", x) for x in args.rate]
    if not loads:
        fail("there is no load: give --clients or --rate")
    about = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "machine": platform.processor() or platform.machine(),
             "cores": os.cpu_count(), "command": sys.argv, "prompts": prompts}
    results, labels = Results({server.name: one_by_one(server, args, prompts) for server in servers}), []
    for round_number in range(args.rounds):
        for load in loads:
            # In every second round the other way about, so that none always comes first.
            for server in servers if round_number % 2 == 0 else reversed(servers):
                requests = load[1] * args.requests if load[0] == "clients" else args.arrivals
                row = results.add(round_number, load, server.name, *measure(server, load, args, prompts, requests))
                labels += [row["load"]] if row["load"] not in labels else []
                print(f"round {round_number + 1}, {row['load']}, {server.name}: {row['tokens_per_second']:.1f} tokens/s, "
                      f"{row['differ']} texts differ, {row['failed']} failed {'; '.join(row['errors'])}", file=sys.stderr)
    report(results, loads, labels, servers, args, about)
    if any(row["failed"] for row in results.rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
