"""Several servers behind one address, as docs/replicas.md says."""

import http.client
import json
import shutil
import signal
import socket
import threading
import time
import unittest
import urllib.error

import page
from proxies import LITELLM, SMALL, Replicas, ask, litellm, nginx
from serving import wait_for

answer = page.client()
# Long enough to be killed in: some tenths of a second.
REQUEST = {
    "model": "stories",
    "messages": [{"role": "user", "content": "Tell me of a fox who found a key"}],
    "temperature": 0.8,
    "seed": 11,
    "max_tokens": 400,
    "ignore_eos": True,
}
SHORT = {**REQUEST, "max_tokens": 80}


def text(reply):
    return reply["choices"][0]["message"]["content"]


def undisturbed(replica, request=REQUEST):
    """What a replica answers by itself, without drafts."""
    reply = ask(replica.url, {**request, "drafts": False})[0]
    assert reply["usage"]["completion_tokens"] == request["max_tokens"]
    return text(reply)


def requests(replicas):
    return sum(replica.metrics()["requests_total"] for replica in replicas)


def drafted(replicas):
    return sum(replica.metrics()["spec_decode_num_draft_tokens_total"] for replica in replicas)


def is_busy(replica):
    return replica.metrics()["requests_processing"] > 0


def setUpModule():
    global replicas
    replicas = Replicas()
    unittest.addModuleCleanup(replicas.end)


class Behind(unittest.TestCase):
    """All replicas are there when a test begins, and the proxy knows of no failure."""

    def setUp(self):
        replicas.revive()
        self.proxy = self.start(replicas.ports)
        self.addCleanup(self.proxy.end)

    def where(self, conversation):
        """Which replica a conversation goes to."""
        return replicas.at(ask(self.proxy.url, {**REQUEST, "max_tokens": 1}, conversation)[1][self.WHO])

    def streams(self):
        body = json.dumps({**REQUEST, "stream": True})
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
        with socket.create_connection(("127.0.0.1", self.proxy.port), 60) as connection:
            connection.sendall(f"{head}Content-Type: application/json\r\nConnection: close\r\n\r\n{body}".encode())
            came = list(iter(lambda: connection.recv(65536), b""))
        self.assertIn(b"data: [DONE]", b"".join(came))
        # Where nginx keeps back what comes, parts are as long as its buffers, 4 kB.
        self.assertGreater(len([part for part in came if len(part) < 1000]), 40)

    def finishes_a_broken_answer(self):
        conversation = "broken-answer"
        dies = self.where(conversation)
        others = replicas.others(dies)
        expected = undisturbed(others[0])
        before, drafts = requests(others), drafted(others)
        pieces = []
        for piece in answer(f"{self.proxy.url}/v1/chat/completions", REQUEST, conversation):
            pieces.append(piece)
            if len(pieces) == 20:
                replicas.kill(dies)
        self.assertEqual("".join(pieces), expected)
        # It was broken, then, and another one made it from its beginning, with drafts.
        self.assertEqual(requests(others), before + 1)
        self.assertGreater(drafted(others), drafts)


@unittest.skipUnless(shutil.which("nginx"), "NOT RUN: nginx is not there and could not be installed")
class Nginx(Behind):
    WHO = "X-Replica"
    start = staticmethod(nginx)

    def test_an_answer_that_broke_off_is_finished_by_another_replica(self):
        self.finishes_a_broken_answer()

    def test_an_answer_that_has_not_begun_to_come_is_asked_for_elsewhere(self):
        dies = self.where("not-streamed")
        expected = undisturbed(replicas.others(dies)[0])
        came = []
        asking = threading.Thread(target=lambda: came.append(ask(self.proxy.url, REQUEST, "not-streamed")))
        asking.start()
        wait_for("the answer is being made", lambda: is_busy(dies))
        replicas.kill(dies)
        asking.join(30)
        reply, headers = came[0]
        # nginx names both that it asked.
        self.assertEqual(headers[self.WHO].split(", ")[0], f"127.0.0.1:{dies.port}")
        self.assertIn(replicas.at(headers[self.WHO]), replicas.others(dies))
        self.assertEqual(text(reply), expected)

    def test_a_stream_comes_piece_by_piece(self):
        self.streams()

    def test_a_conversation_stays_at_one_replica_and_finds_its_turns_there(self):
        before, counted = [requests([one]) for one in replicas.all], [0, 0, 0]
        for number in range(12):
            messages, seen = [{"role": "user", "content": f"Tell me story {number}"}], set()
            for turn in range(3):
                reply, headers = ask(self.proxy.url, {"messages": messages, "max_tokens": 20, "seed": 1}, f"talk-{number}-of-many")
                seen.add(headers[self.WHO])
                counted[replicas.all.index(replicas.at(headers[self.WHO]))] += 1
                if turn:
                    # What was asked before; the answer to it may be cut into other tokens now.
                    self.assertGreaterEqual(reply["timings"]["cache_n"], prompt - 2)
                prompt = reply["usage"]["prompt_tokens"]
                messages += [{"role": "assistant", "content": text(reply)}, {"role": "user", "content": "And then?"}]
            self.assertEqual(len(seen), 1, seen)
        self.assertEqual([requests([one]) - b for one, b in zip(replicas.all, before)], counted)
        self.assertTrue(all(counted), counted)

    def test_who_sends_no_header_stays_at_one_replica_too(self):
        self.assertEqual(len({self.where(None).port for _ in range(6)}), 1)

    def test_each_header_of_the_page_tells_conversations_apart(self):
        for header in ["X-Claude-Code-Session-Id", "Session-Id", "X-Session-Id", "X-Conversation-Id"]:
            seen = set()
            for number in range(12):
                connection = http.client.HTTPConnection("127.0.0.1", self.proxy.port)
                connection.request("GET", "/health", headers={header: f"conversation-{number}"})
                seen.add(connection.getresponse().headers[self.WHO])
                connection.close()
            self.assertEqual(len(seen), 3, header)

    def test_only_the_conversations_of_a_dead_replica_move_and_they_come_back(self):
        names = [f"conversation-{number}" for number in range(12)]
        home = {name: self.where(name) for name in names}
        dies = home[names[0]]
        replicas.kill(dies)
        for name in names:
            is_at = self.where(name)
            self.assertIsNot(is_at, dies)
            if home[name] is not dies:
                self.assertIs(is_at, home[name])
        replicas.revive()
        wait_for("they come back", lambda: all(self.where(name).port == home[name].port for name in names), 15)

    def test_a_restart_is_not_noticed(self):
        ends = self.where("restart")
        expected = undisturbed(replicas.others(ends)[0])
        pieces = []
        # One that finished a broken answer would try a second time.
        for piece in answer(f"{self.proxy.url}/v1/chat/completions", REQUEST, "restart", tries=1):
            if not pieces:
                ends.process.send_signal(signal.SIGTERM)
                wait_for("another one takes over", lambda: self.where("restart") is not ends, 2)
            pieces.append(piece)
        self.assertEqual("".join(pieces), expected)
        self.assertEqual(ends.process.wait(10), 128 + signal.SIGTERM)

    def test_what_a_full_replica_refuses_is_answered_by_another(self):
        full = replicas.all[SMALL]
        names = (f"conversation-{number}" for number in range(100))
        conversation = next(name for name in names if self.where(name) is full)
        expected = undisturbed(full)
        came = []

        def asks():
            reply, headers = ask(self.proxy.url, REQUEST, conversation)
            came.append((text(reply), headers[self.WHO]))

        asking = [threading.Thread(target=asks) for _ in range(8)]
        for thread in asking:
            thread.start()
            time.sleep(0.02)
        for thread in asking:
            thread.join(60)
        self.assertEqual([made for made, _ in came], [expected] * 8)
        self.assertGreater(len({replicas.at(who).port for _, who in came}), 1)

    def test_who_hangs_up_ends_the_answer_at_the_replica(self):
        makes = self.where("hangs-up")
        before = makes.metrics()["tokens_predicted_total"]
        connection = http.client.HTTPConnection("127.0.0.1", self.proxy.port)
        request = json.dumps({**REQUEST, "n": 4})
        connection.request("POST", "/v1/chat/completions", request, {"X-Session-Id": "hangs-up"})
        wait_for("the answers are being made", lambda: is_busy(makes))
        connection.close()
        wait_for("the answers end", lambda: not is_busy(makes))
        self.assertLess(makes.metrics()["tokens_predicted_total"] - before, 4 * REQUEST["max_tokens"])

    def test_what_is_about_one_replica_is_not_passed_on(self):
        for path in ["/metrics", "/slots", "/slots/0?action=erase"]:
            with self.assertRaises(urllib.error.HTTPError) as refused:
                ask(self.proxy.url, {}, path=path)
            self.assertEqual(refused.exception.code, 404)
            refused.exception.close()


@unittest.skipUnless((LITELLM / "installed").exists(), "NOT RUN: LiteLLM is not there and could not be installed")
class LiteLLM(Behind):
    WHO = "x-litellm-model-api-base"
    start = staticmethod(litellm)

    def test_it_answers_as_a_replica_does_keeps_conversations_together_and_survives_deaths(self):
        # One test, because it takes five seconds to start.
        with self.subTest("the same text, with fields that are not OpenAI's"):
            request = {**SHORT, "top_k": 7}
            self.assertEqual(text(ask(self.proxy.url, request)[0]), undisturbed(replicas.all[0], request))
            self.assertNotEqual(text(ask(self.proxy.url, {**request, "top_k": 40})[0]), undisturbed(replicas.all[0], request))
        with self.subTest("a conversation stays"):
            homes = [{self.where(f"conversation-{number}").port for _ in range(4)} for number in range(8)]
            self.assertTrue(all(len(home) == 1 for home in homes), homes)
            self.assertGreater(len(set.union(*homes)), 1)
        with self.subTest("a stream comes piece by piece"):
            self.streams()
        with self.subTest("a broken answer is finished"):
            self.finishes_a_broken_answer()
        with self.subTest("nobody is turned away when all but one are dead"):
            alive = [one for one in replicas.all if one.process.poll() is None]
            homes = {self.where(f"conversation-{number}").port for number in range(9)}
            self.assertEqual(homes, {one.port for one in alive})
            replicas.kill(alive[0])
            expected = undisturbed(alive[1], SHORT)
            for number in range(9):
                self.assertEqual(text(ask(self.proxy.url, SHORT, f"conversation-{number}")[0]), expected)


class Texts(unittest.TestCase):
    """What the page says of texts, without a proxy."""

    def setUp(self):
        replicas.revive()

    def test_replicas_give_the_same_text(self):
        for seed in range(3):
            request = {**SHORT, "seed": seed}
            made = {text(ask(one.url, request)[0]) for one in replicas.all}
            self.assertEqual(made, {undisturbed(replicas.all[0], request)})

    def test_the_beginning_of_an_answer_is_gone_on_with_only_at_temperature_0(self):
        def rest(temperature, words):
            request = {**REQUEST, "temperature": temperature}
            whole = undisturbed(replicas.all[0], request)
            begun = " ".join(whole.split(" ")[:words])
            messages = [*REQUEST["messages"], {"role": "assistant", "content": begun}]
            more = text(ask(replicas.all[1].url, {**request, "messages": messages, "max_tokens": 50})[0])
            return whole[len(begun) :][: len(more)], more

        for words in (10, 40, 80):
            self.assertEqual(*rest(0, words))
            self.assertNotEqual(*rest(0.8, words))


if __name__ == "__main__":
    unittest.main()
