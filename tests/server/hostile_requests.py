"""Requests that are wrong, or right and hard to bear: made from a seed, the same ones each time.

What comes out says what the server may answer. `REFUSED` is a status from 400 on with a message; `ANY` may be a good
answer as well. `NO_HTTP` is not HTTP at all, so that nobody could read a message: a status or a closed connection.
"""

import copy
import json
from dataclasses import dataclass

REFUSED, ANY, NO_HTTP = "refused", "any", "no HTTP"


@dataclass
class Hostile:
    kind: str
    data: bytes
    may: str = ANY


def http(path, body=b"", method="POST", headers=(), length=None):
    length = len(body) if length is None else length
    lines = [f"{method} {path} HTTP/1.1", "host: x", "connection: close", f"content-length: {length}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def of_json(kind, path, value, may=ANY):
    return Hostile(kind, http(path, json.dumps(value).encode()), may)


TALK = [{"role": "user", "content": "Hi"}]
SAMPLING = dict(
    temperature=0.5, top_p=0.9, top_k=40, min_p=0.1, typical_p=1.0, seed=3, repeat_penalty=1.1, repeat_last_n=64,
    frequency_penalty=0.1, presence_penalty=0.1, dynatemp_range=0.1, dynatemp_exponent=1.0, top_n_sigma=-1.0,
    xtc_probability=0.1, xtc_threshold=0.1, dry_multiplier=0.1, dry_base=1.75, dry_allowed_length=2,
    dry_penalty_last_n=-1, dry_sequence_breakers=["\n"], mirostat=0, mirostat_tau=5.0, mirostat_eta=0.1,
    samplers=["top_k", "temperature"], logit_bias={"15": 1}, stop=["x"], n=1, stream=False, mask=[],
    stream_options={"include_usage": True}, timings_per_token=False, return_progress=False, return_tokens=False,
    ignore_eos=False, post_sampling_probs=False, n_keep=0, drafts=True, sse_ping_interval=30, verbose=False,
    response_fields=["content"],
)  # fmt: skip
FUNCTION = dict(name="f", description="", parameters=dict(type="object", properties=dict(x=dict(type="integer"))))
CHAT = SAMPLING | dict(
    messages=TALK, max_tokens=3, model="x", tools=[dict(type="function", function=FUNCTION)], tool_choice="auto",
    parallel_tool_calls=True, logprobs=True, top_logprobs=2, reasoning_format="auto", reasoning_effort="low",
    chat_template_kwargs={"enable_thinking": False}, add_generation_prompt=True, continue_final_message=False,
    response_format=dict(type="text"),
)  # fmt: skip
# Where a request is read, and one that is right. Masks are asked for by those that want them.
BODIES = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": SAMPLING | dict(prompt="Hi", max_tokens=3, echo=True, logprobs=1, best_of=1, suffix=""),
    "/completion": SAMPLING | dict(prompt="Hi", n_predict=3, n_probs=2, json_schema=dict(const=1)),
    "/v1/responses": dict(
        input="Hi", instructions="Be brief", max_output_tokens=3, temperature=0.5, stream=False, text={"format": {}},
        reasoning={"effort": "low"}, tools=[dict(type="function", **FUNCTION)], previous_response_id="",
    ),
    "/v1/messages": dict(
        messages=TALK, system="Be brief", max_tokens=3, temperature=0.5, stop_sequences=["x"], stream=False,
        tools=[dict(name="f", description="", input_schema=dict(type="object"))], tool_choice=dict(type="auto"),
        thinking=dict(type="disabled"), top_k=4, top_p=0.5,
    ),
    "/v1/messages/count_tokens": dict(messages=TALK, system="Be brief"),
    "/tokenize": dict(content="Hi", add_special=True, parse_special=True, with_pieces=False),
    "/detokenize": dict(tokens=[1, 2, 3]),
    "/apply-template": dict(messages=TALK),
    "/infill": dict(input_prefix="a", input_suffix="b", input_extra=[dict(filename="x", text="y")], prompt="c"),
}  # fmt: skip
for body in BODIES.values():
    body.pop("mask", None)
PATHS = list(BODIES)
# Of these no other type can be meant.
PLAIN = {
    "temperature", "top_p", "top_k", "min_p", "typical_p", "seed", "repeat_penalty", "repeat_last_n", "mirostat",
    "frequency_penalty", "presence_penalty", "n", "stream", "drafts", "ignore_eos", "n_keep", "max_tokens", "n_predict",
    "max_output_tokens", "echo", "messages", "tools", "parallel_tool_calls", "stream_options", "return_progress",
}  # fmt: skip
WRONG = [
    None, True, False, 0, -1, 1, 2.5, -1e308, 1e308, 10**30, "", "x", "\0", "\ud800", "é" * 100, [], {}, [None], [[]],
    [1, "x", None], {"x": {}}, {"type": "x"}, [{}], [-1], [2**40], {"": ""}, "9" * 400, [[[[[[]]]]]], ["x"] * 300,
]  # fmt: skip


def wrong_types(chance):
    """One to three fields have another value."""
    path = chance.choice(PATHS)
    body = copy.deepcopy(BODIES[path])
    may = ANY
    for field in chance.sample(sorted(body), k=min(len(body), chance.choice([1, 1, 2, 3]))):
        value = chance.choice(WRONG)
        known = body[field]
        body[field] = value
        numbers = (int, float)
        same = isinstance(value, numbers) and isinstance(known, numbers) and isinstance(known, bool) == isinstance(value, bool)
        if field in PLAIN and value is not None and not same and type(value) is not type(known):
            may = REFUSED
    return of_json("wrong types", path, body, may)


def within(chance):
    """Something deep inside has another value, or is missing."""
    path = chance.choice(PATHS[:5])
    body = copy.deepcopy(BODIES[path])
    part, key = body, chance.choice([name for name, value in body.items() if isinstance(value, (list, dict)) and value])
    while isinstance(part[key], (list, dict)) and part[key] and chance.random() < 0.8:
        part = part[key]
        key = chance.choice(list(part) if isinstance(part, dict) else range(len(part)))
    if chance.random() < 0.3:
        del part[key]
    else:
        part[key] = chance.choice(WRONG)
    return of_json("wrong within", path, body)


def broken_json(chance):
    """Cut, doubled, sprinkled with bytes, or in no encoding."""
    path = chance.choice(PATHS)
    text = json.dumps(BODIES[path]).encode()
    at = chance.randrange(1, len(text))
    quote = text.index(b'"') + 1
    texts = [
        text[:at],
        text + text,
        text + b"}",
        text[1:],
        b"",
        b"null",
        b"[" + text + b"]",
        b'"' + text,
        b"\xef\xbb\xbf" + text,
        text.decode().encode("utf-16"),
        text[:quote] + chance.choice([b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\x00"]) + text[quote:],
        text[:quote] + b"\\ud800" + text[quote:].replace(b'"', b'\\x"', 1),
        text[:-1] + b', "temperature": NaN}',
        text[:-1] + b', "temperature": Infinity}',
        text[:-1] + b', "temperature": 1e}',
        text[:-1] + b', "temperature": 0x10}',
        text[:-1] + b",}",
        b"{" * chance.randrange(1, 5000),
        bytes(chance.randrange(256) for _ in range(200)),
    ]
    return Hostile("broken JSON", http(path, chance.choice(texts)), REFUSED)


def sprinkled(chance):
    """A few bytes are others: the JSON may still be right."""
    path = chance.choice(PATHS)
    text = bytearray(json.dumps(BODIES[path]).encode())
    for _ in range(chance.randrange(1, 6)):
        text[chance.randrange(len(text))] = chance.randrange(256)
    return Hostile("bytes changed", http(path, bytes(text)))


def doubled_keys(chance):
    path = chance.choice(PATHS)
    body = BODIES[path]
    field = chance.choice(sorted(body))
    more = ", ".join(f"{json.dumps(field)}: {json.dumps(value)}" for value in [chance.choice(WRONG), body[field]] * 3)
    return Hostile("keys twice", http(path, f"{json.dumps(body)[:-1]}, {more}}}".encode()))


def deep(chance):
    """Nested deeper than anybody means."""
    path = chance.choice(PATHS[:5])
    field = chance.choice(sorted(BODIES[path]))
    depth = chance.choice([100, 126, 127, 128, 1000, 20_000])
    open_, close = chance.choice([("[", "]"), ('{"a":', "}"), ('{"properties":{"a":', "}}"), ('{"items":', "}")])
    nested = open_ * depth + "1" + close * depth
    body = {name: value for name, value in BODIES[path].items() if name != field}
    text = f"{json.dumps(body)[:-1]}, {json.dumps(field)}: {nested}}}"
    return Hostile("deep", http(path, text.encode()), REFUSED if depth >= 128 else ANY)


HUGE = [2**31 - 1, 2**31, 2**32, 2**53, 2**63, 2**64, 10**40, -(2**31), -(2**63), 1e300, -1e300, 5e-324]


def huge_numbers(chance):
    path = chance.choice(PATHS[:5])
    body = dict(BODIES[path])
    numbers = [name for name, value in body.items() if type(value) in (int, float)]
    # A long answer is no hostility.
    numbers = [name for name in numbers if "predict" not in name and "tokens" not in name]
    name = chance.choice(numbers)
    body[name] = chance.choice(HUGE)
    may = ANY
    if name in ("n", "best_of", "top_logprobs", "n_probs", "mirostat") or name == "logprobs" and path == "/v1/completions":
        may = REFUSED
    return of_json("huge numbers", path, body, may)


def many(chance):
    """Lists longer than anybody needs."""
    count = chance.choice([300, 5000, 50_000])
    word = "".join(chance.choice("abcdefgh ") for _ in range(8))
    chat = dict(messages=TALK, max_tokens=2)
    text = dict(prompt="Hi", n_predict=2)
    talk = [{"role": chance.choice(["user", "assistant", "system", "tool"]), "content": word} for _ in range(count // 10)]
    numbered = [dict(type="function", function=FUNCTION | {"name": f"f{n}"}) for n in range(count // 25)]
    choice = chance.choice(["auto", "required", "none"])
    path, body, may = chance.choice(
        [
            lambda: ("/completion", text | {"stop": [word] * count}, REFUSED),
            lambda: ("/completion", text | {"stop": [word * (count // 256)] * 256}, ANY),
            lambda: ("/completion", text | {"logit_bias": [[n % 3000, 1] for n in range(count)]}, ANY),
            lambda: ("/completion", text | {"logit_bias": {f"{word}{n}": -1e300 for n in range(count)}}, ANY),
            lambda: ("/completion", text | {"logit_bias": [[7, 1e300]] * count}, ANY),
            lambda: ("/completion", text | {"samplers": ["temperature", "top_k", "dry"] * count}, ANY),
            lambda: ("/completion", text | {"samplers": "kfypmt" * count}, ANY),
            lambda: ("/completion", text | {"dry_sequence_breakers": [f"{word}{n}" for n in range(count)], "dry_multiplier": 1}, ANY),
            lambda: ("/completion", text | {"dry_sequence_breakers": ["a" * count], "dry_multiplier": 1}, ANY),
            lambda: ("/completion", text | {"response_fields": [word] * count}, ANY),
            lambda: ("/completion", text | {"prompt": [5] * count}, ANY),
            lambda: ("/completion", text | {"prompt": [2**31] * 5}, REFUSED),
            lambda: ("/completion", text | {"prompt": ["Hi"] * count}, ANY if count < 2048 else REFUSED),
            lambda: ("/completion", text | {"prompt": word * count}, ANY),
            lambda: ("/completion", text | {"mask": [0] * count}, ANY),
            lambda: ("/completion", text | {"mask": chance.choice(["x", 1, {}, {"attn": [99]}, [-1], [[0]], [0.5]])}, ANY),
            lambda: ("/v1/chat/completions", chat | {"messages": talk}, ANY),
            lambda: ("/v1/chat/completions", chat | {"messages": [{"role": "user", "content": [{"type": "text", "text": word}] * count}]}, ANY),
            lambda: ("/v1/chat/completions", chat | {"tools": numbered, "tool_choice": choice}, ANY),
            lambda: ("/v1/chat/completions", chat | {"chat_template_kwargs": {f"{word}{n}": n for n in range(count)}}, ANY),
            lambda: ("/v1/responses", {"input": [{"role": "user", "content": word}] * (count // 10), "max_output_tokens": 2}, ANY),
            lambda: ("/v1/messages", chat | {"system": [{"type": "text", "text": word}] * count}, ANY),
            lambda: ("/tokenize", {"content": word * count}, ANY),
            lambda: ("/tokenize", {"content": [word, 5] * count, "with_pieces": True}, ANY),
            lambda: ("/detokenize", {"tokens": [chance.choice([5, 70, 2000])] * count}, ANY),
            lambda: ("/detokenize", {"tokens": [2**32 - 1] * 9}, ANY),
        ]
    )()
    return of_json("enormous lists", path, body, may)


def nested_schema(depth, name):
    schema = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {name: schema}, "required": [name]} if name else {"type": "array", "items": schema}
    return schema


def schemas(chance):
    """Schemas that are deep, wide, endless, impossible or wrong."""
    n = chance.choice([3, 10, 30])
    word = "".join(chance.choice("abc") for _ in range(5))
    schema, may = chance.choice(
        [
            lambda: (nested_schema(n, word), ANY),
            lambda: (nested_schema(n, ""), ANY),
            lambda: ({"$ref": "#"}, ANY),
            lambda: ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, ANY),
            lambda: ({"$ref": "http://localhost:1/x"}, REFUSED),
            lambda: ({"$ref": "file:///etc/passwd"}, REFUSED),
            lambda: ({"$ref": "#/nowhere"}, REFUSED),
            lambda: ({"type": "hiccup"}, REFUSED),
            lambda: ({"type": n}, REFUSED),
            lambda: ({"type": "object", "properties": n}, REFUSED),
            lambda: ({"type": "integer", "minimum": 5, "maximum": 3}, REFUSED),
            lambda: ({"type": "string", "pattern": "(" * n}, REFUSED),
            lambda: ({"type": "string", "pattern": "(a{1000}){1000}"}, ANY),
            lambda: ({"type": "string", "pattern": "(a|aa)*" * n + "b"}, ANY),
            lambda: ({"type": "string", "pattern": "(?=a)b"}, REFUSED),
            lambda: ({"type": "string", "minLength": 10**9}, ANY),
            lambda: ({"type": "string", "minLength": 10**6, "maxLength": 10**7}, ANY),
            lambda: ({"type": "array", "minItems": 10**9, "items": {"type": "integer"}}, ANY),
            lambda: ({"type": "integer", "minimum": -(10**300), "maximum": 10**300}, ANY),
            lambda: ({"type": "number", "multipleOf": 1e-300}, ANY),
            lambda: ({"anyOf": [{"const": f"{word}{k}"} for k in range(n * 100)]}, ANY),
            lambda: ({"enum": [word * 100 + str(k) for k in range(n * 50)]}, ANY),
            lambda: ({"allOf": [{"type": "object", "properties": {f"a{k}": {}}} for k in range(n * 10)]}, ANY),
            lambda: ({"oneOf": [{"type": "string"}] * n}, ANY),
            lambda: ({"not": {}}, ANY),
            lambda: ({"properties": {f"p{k}": {"type": "string"} for k in range(n * 40)}}, ANY),
            lambda: ({"type": "string", "format": "no such format"}, ANY),
            lambda: ({"patternProperties": {"(": {}}}, REFUSED),
            lambda: (True, ANY),
            lambda: (word, REFUSED),
            lambda: ([], REFUSED),
        ]
    )()
    where = chance.choice(["json_schema", "response_format", "tools"])
    if where == "json_schema":
        return of_json("schemas", "/completion", dict(prompt="Hi", n_predict=4, json_schema=schema), may)
    if where == "response_format":
        form = dict(type="json_schema", json_schema=dict(name="x", schema=schema))
        return of_json("schemas", "/v1/chat/completions", dict(messages=TALK, max_tokens=4, response_format=form), may)
    tools = [dict(type="function", function=dict(name="f", parameters=schema))]
    body = dict(messages=TALK, max_tokens=4, tools=tools, tool_choice="required")
    return of_json("schemas", "/v1/chat/completions", body, may if isinstance(schema, dict) else REFUSED)


def grammars(chance):
    """Grammars that are recursive, exponential, ambiguous, deep or wrong."""
    n = chance.choice([2, 20, 200, 20_000])
    few = min(n, 200)
    lark = "%llguidance {}\n"
    grammar, may = chance.choice(
        [
            lambda: ("root ::= root", ANY),
            lambda: ("root ::= root root | \"a\"", ANY),
            lambda: ("root ::= a\na ::= b\nb ::= a", ANY),
            lambda: ("root ::= " + "(" * n + '"a"' + ")" * n, ANY if n < 90 else REFUSED if n > 100 else ANY),
            lambda: ("root ::= " + "(" * n, REFUSED),
            lambda: ('root ::= "a"' + "*" * n, ANY),
            lambda: ('root ::= "a"' + "{1,2000}" * min(n, 20), ANY),
            lambda: ('root ::= ("a"{2000}){2000}', ANY),
            lambda: ('root ::= "a"{2001}', REFUSED),
            lambda: ('root ::= "a"{5,2}', REFUSED),
            lambda: ('root ::= (("a"?){50}){50} "b"', ANY),
            lambda: ('root ::= ("a" | "aa" | root root)* ' + '"a"' * few, ANY),
            lambda: ("\n".join(['root ::= r0'] + [f"r{k} ::= r{k + 1} r{k + 1}" for k in range(few)] + [f'r{few} ::= "a"']), ANY),
            lambda: ("\n".join(['root ::= r0'] + [f"r{k} ::= r{k + 1} | r{k + 1} r0" for k in range(few)] + [f'r{few} ::= "a"']), ANY),
            lambda: ("root ::= " + " ".join(f"r{k}" for k in range(n)), REFUSED),
            lambda: ("root ::= " + " | ".join(f'"a{k}"' for k in range(n)), ANY),
            lambda: ("root ::= [" + "a-z" * n + "]", ANY),
            lambda: ("root ::= [z-a]", REFUSED),
            lambda: ("root ::= \"" + "a" * n, REFUSED),
            lambda: ("root ::= \"\\xZZ\"", REFUSED),
            lambda: ("root ::= \"\\U00110000\"", REFUSED),
            lambda: ("root ::= <[99999999]>", ANY),
            lambda: ("root ::= <nothing>", ANY),
            lambda: ("root ::= !<[5]>", REFUSED),
            lambda: ("root ::=\n" * n, ANY if n == 1 else REFUSED),
            lambda: ("# nothing", REFUSED),
            lambda: ("\0" * n, REFUSED),
            lambda: ("x" * n, REFUSED),
            lambda: ("root ::= \"a\"\n" + "a ::= \"b\"\n" * 2, REFUSED),
            lambda: (lark + "start: start", ANY),
            lambda: (lark + "start: " + "(" * n + '"a"' + ")" * n, ANY),
            lambda: (lark + "start: /" + "(" * n + "a" + ")" * n + "/", ANY),
            lambda: (lark + "start: /((a{1,1000}){1,1000}){1,1000}/", ANY),
            lambda: (lark + "start: /(a|b|ab)*c{0,5000}(a*)*$/", ANY),
            lambda: (lark + 'start: %json {"$ref": "#"}', ANY),
            lambda: (lark + "start: %regex { " + "[" * n, REFUSED),
            lambda: (lark + "start: " + '"a"? ' * few, ANY),
            lambda: (lark + 'start: "a"' + "*" * min(n, 500), ANY),
            lambda: (lark + "start: @grammar_7", REFUSED),
            lambda: (lark + "%import nothing.X", REFUSED),
        ]
    )()
    return of_json("grammars", "/completion", dict(prompt="Hi", n_predict=4, grammar=grammar), may)


def unknown(chance):
    """Paths that are not there, and methods that are not for them."""
    word = "".join(chance.choice("abcxyz/.%~-") for _ in range(chance.randrange(1, 40)))
    paths = [f"/{word}", f"/v1/{word}", "/v1/images/edits", "/v1/chat", "/../../etc/passwd", "/%2e%2e/%00", f"/{'a' * 5000}", "//", "/v2/models"]
    if chance.random() < 0.5:
        method = chance.choice(["GET", "POST", "PUT", "DELETE", "PATCH"])
        return Hostile("unknown paths", http(chance.choice(paths), b"{}", method), REFUSED)
    method = chance.choice(["GET", "PUT", "DELETE", "PATCH", "TRACE", "PROPFIND", "HICCUP"])
    return Hostile("unknown methods", http(chance.choice(PATHS), b"{}", method), REFUSED)


def no_http(chance):
    """What is not HTTP."""
    body = json.dumps(BODIES["/completion"]).encode()
    whole = http("/completion", body)
    junk = bytes(chance.randrange(256) for _ in range(chance.randrange(1, 300)))
    chunked = b"POST /completion HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    datas = [
        junk + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + junk,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/1.1\nhost: x\n\n \r\n\r\n",
        b"POST /completion HTTP/1.1\r\ncontent-length: -1\r\n\r\n" + body,
        b"POST /completion HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999999999999999\r\n\r\n" + body,
        b"POST /completion HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n" + body,
        b"POST /completion HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n" + body,
        chunked + b"zz\r\n" + body + b"\r\n0\r\n\r\n",
        chunked + b"ffffffffffffffffff\r\n" + body,
        chunked + b"-5\r\nhello\r\n0\r\n\r\n",
        whole.replace(b"host: x", b"host: \xff\xfe\x00"),
        whole.replace(b"host: x", b"x: " + b"y" * 500_000),
        whole.replace(b"host: x\r\n", b"".join(b"x%d: y\r\n" % n for n in range(500))),
        whole.replace(b"host: x", b" host : x"),
        b"POST /" + b"a" * 70_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
        b"\r\n" * 1000,
        whole[: chance.randrange(10, 60)],
    ]
    return Hostile("no HTTP", chance.choice(datas), NO_HTTP)


def lengths(chance):
    """The length is not that of the body; the connection's end says so."""
    body = json.dumps(BODIES[path := chance.choice(PATHS)]).encode()
    if chance.random() < 0.5:
        return Hostile("wrong lengths", http(path, body, length=len(body) + chance.randrange(1, 5000)), NO_HTTP)
    return Hostile("wrong lengths", http(path, body, length=chance.randrange(len(body))), REFUSED)


def giant(chance):
    """Bodies beyond the limit, which these tests set to 2 MiB."""
    path, size = chance.choice(PATHS), 2 * 1024 * 1024 + chance.choice([1, 3_000_000])
    body = chance.choice([b" ", b"[", b'"'])
    if chance.random() < 0.5:
        # It only says so.
        return Hostile("giant bodies", http(path, body, length=10**12), NO_HTTP)
    return Hostile("giant bodies", http(path, body * size), REFUSED)


def odd_headers(chance):
    body = json.dumps(dict(prompt="Hi", n_predict=2)).encode()
    header = chance.choice(
        [
            "authorization: Bearer \xe9", "authorization: " + "x" * 10_000, "content-type: text/html", "accept: nothing",
            "content-encoding: gzip", "expect: 100-continue", "expect: the best", "upgrade: websocket", "origin: null",
            "origin: http://evil.example", "x-forwarded-for: " + "1.1.1.1," * 500, "range: bytes=5-1", "cookie: " + "a=b;" * 900,
            "if-none-match: *", "content-type: application/json; charset=utf-7", "te: trailers, deflate;q=0.5",
        ]
    )  # fmt: skip
    return Hostile("odd headers", http(chance.choice(["/completion", "/health", "/v1/models"]), body, headers=[header]))


# How many of each in 10,000.
KINDS = {
    wrong_types: 3000, within: 1300, broken_json: 1300, sprinkled: 700, doubled_keys: 300, deep: 500, huge_numbers: 500,
    many: 300, schemas: 500, grammars: 500, unknown: 500, no_http: 350, lengths: 100, giant: 50, odd_headers: 100,
}  # fmt: skip


def all_of_them(chance):
    """All requests, in no order."""
    makers = [maker for maker, count in KINDS.items() for _ in range(count)]
    chance.shuffle(makers)
    for maker in makers:
        yield maker(chance)
