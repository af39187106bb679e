"""A thousand requests, a third of whose clients hang up at some moment: nothing is left of them, and nobody else notices."""

import json
import random
import socket
import threading
import time
from collections import Counter
from queue import Queue

from serving import Server, wait_for

REQUESTS, CLIENTS, CELLS = 1000, 24, 512
# Of memory between the end of the first half and that of the second.
MOST_GROWTH = 4 << 20
PROMPTS = ["Once upon a time", "The cat sat on", "Lily and Tom went to the park and " * 6, "A big dog " * 30]


def bodies():
    """Requests that are made again and again."""
    for number, prompt in enumerate(PROMPTS):
        for tokens in (4, 24, 80):
            yield dict(prompt=prompt, n_predict=tokens, temperature=number % 2, seed=number, ignore_eos=True)


def head(path, body):
    return f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n".encode()


def read(connection):
    pieces = []
    while piece := connection.recv(65536):
        pieces.append(piece)
    return b"".join(pieces).decode()


def text_of(reply, streams):
    """What an answer says."""
    assert reply.startswith("HTTP/1.1 200"), reply[:300]
    if not streams:
        return json.loads(reply.split("\r\n\r\n", 1)[1])["content"]
    events = [json.loads(line[6:]) for line in reply.splitlines() if line.startswith("data: {")]
    assert events[-1]["stop"]
    return "".join(event["content"] for event in events)


class Client(threading.Thread):
    """Takes requests until there are none."""

    def __init__(self, server, work, alone):
        super().__init__()
        self.server, self.work, self.alone = server, work, alone
        self.counts, self.wrong = Counter(), []

    def run(self):
        while (job := self.work.get()) is not None:
            try:
                self.ask(*job)
            except Exception as error:  # a thread's error would be lost
                self.wrong.append(f"{job}: {error!r}")

    def ask(self, number, body, streams, leaves, chance):
        data = json.dumps(body | {"stream": streams}).encode()
        connection = self.server.connect()
        connection.settimeout(120)
        with connection:
            if leaves == "in its own words":
                connection.sendall(head("/completion", data) + data[: chance.randrange(len(data))])
            else:
                connection.sendall(head("/completion", data) + data)
            match leaves:
                case None:
                    text = text_of(read(connection), streams)
                    if text != self.alone[number]:
                        self.wrong.append(f"{body}: {text!r} but alone {self.alone[number]!r}")
                case "at once" | "in its own words":
                    pass
                case "after a while":
                    time.sleep(chance.uniform(0, 0.3))
                case "in the middle":
                    left = chance.randrange(1, 3000)
                    while left > 0 and (piece := connection.recv(min(left, 400))):
                        left -= len(piece)
            if leaves and chance.random() < 0.5:
                # Not even a farewell: the socket is reset.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.counts[leaves] += 1


def asked(server, alone, chance, count):
    """So many requests by all clients, and how many left in which way."""
    work, all_bodies = Queue(), list(bodies())
    clients = [Client(server, work, alone) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    ways = ["at once", "in its own words", "after a while", "in the middle"]
    for _ in range(count):
        number = chance.randrange(len(all_bodies))
        leaves = chance.choice(ways) if chance.random() < 1 / 3 else None
        streams = leaves == "in the middle" or chance.random() < 0.5
        work.put((number, all_bodies[number], streams, leaves, random.Random(chance.random())))
    for _ in clients:
        work.put(None)
    for client in clients:
        client.join()
    assert not (wrong := [one for client in clients for one in client.wrong]), f"{len(wrong)}: {wrong[0]}"
    return sum((client.counts for client in clients), Counter())


def test_nothing_is_left_of_who_hung_up(say):
    chance = random.Random(13)
    flags = ("-c", CELLS, "--parallel", 4, "--kv-unified", "--metrics")
    with Server("stories13m-q4_0", *flags) as server:
        alone = [server.json("/completion", body)["content"] for body in bodies()]
        assert all(len(text) > 5 for text in alone)
        idle = lambda: all(not slot["is_processing"] for slot in server.json("/slots"))  # noqa: E731
        wait_for("all slots are idle", idle)
        handles = server.handles()
        counts = asked(server, alone, chance, REQUESTS // 2)
        wait_for("all slots are idle", idle)
        before = server.resident()
        counts += asked(server, alone, chance, REQUESTS // 2)
        wait_for("all slots are idle", idle)
        wait_for("handles are closed", lambda: server.handles() <= handles)
        growth = server.resident() - before

        metrics = server.metrics()
        assert metrics["requests_processing"] == metrics["requests_deferred"] == 0, metrics
        assert growth <= MOST_GROWTH, f"{growth} bytes more than in the middle"
        # What ended texts hold is theirs to give: one text gets every cell there is.
        whole = dict(prompt=[5] * (CELLS - 5), n_predict=5, temperature=0, ignore_eos=True)
        assert server.json("/completion", whole)["tokens_predicted"] == 5
        assert [server.json("/completion", body)["content"] for body in bodies()] == alone

    left = REQUESTS - counts[None]
    assert counts.total() == REQUESTS and REQUESTS / 4 < left < REQUESTS / 2
    say(f"{left} of {REQUESTS} hung up; {counts[None]} answers as alone; memory {growth / 1024:+.0f} KiB in the second half")
