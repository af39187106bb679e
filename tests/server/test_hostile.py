"""Ten thousand requests that mean harm: each is refused in words or answered, and who asks beside them notices nothing."""

import json
import random
import socket
import threading
import time
from collections import Counter
from queue import Queue

import hostile_requests as hostile
from serving import Path, Server, wait_for

SEED, SENDERS, NEIGHBOURS = 13, 12, 3
# Seconds that any request may take, and that a neighbour may wait for a short answer.
MOST_SECONDS = 60
TEMPLATE = Path(__file__).parent / "tools.jinja"
NEIGHBOURLY = [
    dict(prompt=prompt, n_predict=24, temperature=temperature, seed=seed, ignore_eos=True)
    for seed, prompt in enumerate(["Once upon a time", "The cat sat on", "Lily and Tom went to"])
    for temperature in (0, 0.8)
]


def started(*more):
    flags = ("-c", 2048, "--parallel", 6, "--kv-unified", "--max-body", 2, "--metrics", *more)
    return Server("stories13m-q4_0", *flags, "--chat-template-file", TEMPLATE)


def exchanged(server, data, is_all=True):
    """Sends bytes and reads to the end. Where they are not all that they promise, it says that no more will come."""
    with server.connect(MOST_SECONDS) as connection:
        try:
            connection.sendall(data)
            if not is_all:
                connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # refused before all was sent; what was said can still be read
        pieces = []
        try:
            while piece := connection.recv(65536):
                pieces.append(piece)
        except ConnectionError:
            pass
        return b"".join(pieces)


def fault(request, reply):
    """What is wrong with a reply, if something is."""
    reply = reply.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
    head, _, body = reply.partition(b"\r\n\r\n")
    words = head.split(None, 2)
    status = int(words[1]) if len(words) > 1 and words[0].startswith(b"HTTP/1") else 0
    if request.may == hostile.NO_HTTP and (status == 0 or 400 <= status < 500):
        return None
    if status == 0:
        return "no answer"
    if 200 <= status < 300:
        return "taken" if request.may == hostile.REFUSED else None
    if not (400 <= status < 500 or status in (501, 503)):
        return f"status {status}"
    try:
        message = json.loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return f"status {status} without a message"
    if not message or "\n" in message or len(message) > 2000:
        return f"status {status} with the message {message[:200]!r}"
    return None


class Sender(threading.Thread):
    def __init__(self, server, work):
        super().__init__()
        self.server, self.work = server, work
        self.slowest, self.faults, self.statuses = {}, [], Counter()

    def run(self):
        while (request := self.work.get()) is not None:
            began = time.monotonic()
            try:
                reply = exchanged(self.server, request.data, request.may != hostile.NO_HTTP)
                what = fault(request, reply)
                self.statuses[request.kind, reply[9:12].decode(errors="replace")] += 1
            except Exception as error:  # a thread's error would be lost
                reply, what = b"", repr(error)
            took = time.monotonic() - began
            self.slowest[request.kind] = max(self.slowest.get(request.kind, 0), took)
            if what:
                self.faults.append(f"{request.kind}: {what}: {request.data[:1500]!r} gave {reply[:600]!r}")


class Neighbour(threading.Thread):
    """Asks the same things again and again, and waits its turn where the queue is full."""

    def __init__(self, server, alone, ends):
        super().__init__()
        self.server, self.alone, self.ends = server, alone, ends
        self.slowest, self.answers, self.wrong = 0, 0, []

    def run(self):
        while not self.ends.is_set():
            for body, text in zip(NEIGHBOURLY, self.alone):
                began = time.monotonic()
                try:
                    data = hostile.http("/completion", json.dumps(body).encode())
                    while (reply := exchanged(self.server, data))[9:12] == b"503":
                        time.sleep(0.1)
                    said = json.loads(reply.partition(b"\r\n\r\n")[2]).get("content")
                except Exception as error:
                    said = repr(error)
                if said != text:
                    self.wrong.append(f"{body}: {said!r} but alone {text!r}")
                self.slowest = max(self.slowest, time.monotonic() - began)
                self.answers += 1


class Beside:
    """Neighbours for as long as something goes on; then their texts and times are checked."""

    def __init__(self, server):
        self.alone = [server.json("/completion", body)["content"] for body in NEIGHBOURLY]
        self.ends = threading.Event()
        self.all = [Neighbour(server, self.alone, self.ends) for _ in range(NEIGHBOURS)]

    def __enter__(self):
        for one in self.all:
            one.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        for one in self.all:
            one.join()
        wrong = [what for one in self.all for what in one.wrong]
        assert not wrong, f"{len(wrong)} texts of neighbours: {wrong[0]}"
        self.slowest = max(one.slowest for one in self.all)
        self.answers = sum(one.answers for one in self.all)
        assert self.slowest < MOST_SECONDS, f"a neighbour waited {self.slowest:.0f} s"


def test_each_is_refused_or_answered(say):
    with started() as server, Beside(server) as beside:
        work = Queue(maxsize=200)
        senders = [Sender(server, work) for _ in range(SENDERS)]
        for sender in senders:
            sender.start()
        count = 0
        for request in hostile.all_of_them(random.Random(SEED)):
            if server.process.poll() is not None:
                break
            work.put(request)
            count += 1
        for _ in senders:
            work.put(None)
        for sender in senders:
            sender.join()
        faults = [what for sender in senders for what in sender.faults]
        assert server.process.poll() is None, f"the server ended: {server.text_of_log()}; {faults[:3]}"
        assert not faults, "\n\n".join([f"{len(faults)} faults", *faults[:40]])
    slowest = {}
    for sender in senders:
        for kind, took in sender.slowest.items():
            slowest[kind] = max(slowest.get(kind, 0), took)
    statuses = sum((sender.statuses for sender in senders), Counter())
    taken = sum(n for (_, status), n in statuses.items() if status == "200")
    worst = max(slowest, key=slowest.get)
    assert count == 10_000 and 500 < taken < 9000
    say(
        f"{count} hostile requests: {taken} answered, {count - taken} refused; the slowest took {slowest[worst]:.1f} s "
        f"({worst}); {beside.answers} answers of neighbours as alone, within {beside.slowest:.1f} s"
    )


def test_who_sends_slowly_is_shown_out(say):
    """Heads and bodies that come a byte at a time, and connections on which nothing comes at all."""
    timeout = 6
    body = json.dumps(dict(prompt="Hi", n_predict=4)).encode()
    whole = hostile.http("/completion", body)
    starts = [b"", whole[:20], whole[: len(whole) - len(body)], whole[:-10]]
    with started("--timeout", timeout) as server, Beside(server) as beside:
        handles = server.handles()
        connections = [(server.connect(), start) for start in starts for _ in range(60)]
        open_, began = [], time.monotonic()
        for connection, start in connections:
            connection.sendall(start)
            connection.setblocking(False)
            open_.append(connection)
        while open_ and time.monotonic() < began + 3 * timeout:
            time.sleep(0.2)
            still = []
            for connection in open_:
                try:
                    if connection.recv(65536):
                        still.append(connection)
                except BlockingIOError:
                    try:
                        if random.random() < 0.2:
                            connection.send(b" ")
                        still.append(connection)
                    except OSError:
                        pass
                except OSError:
                    pass
            open_ = still
        took = time.monotonic() - began
        assert not open_, f"{len(open_)} of {len(connections)} are still there after {took:.0f} s"
        beside.ends.set()
        for one in beside.all:
            one.join()
        wait_for("handles are closed", lambda: server.handles() <= handles)
    say(f"{len(connections)} slow connections were closed within {took:.0f} s")
