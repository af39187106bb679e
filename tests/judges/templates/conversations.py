"""The conversations that every template is given, in the shape of OpenAI's API."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "golden"))
from templates import CALLING  # noqa: E402

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The \"weather\" <now>\nand later",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Where it's"},
                    "days": {"type": "integer", "description": "How long", "default": 1},
                    "wide": {"type": ["array", "boolean"], "description": "é", "items": {"type": "number"}},
                    "near": {
                        "type": "object",
                        "description": "What is near",
                        "properties": {"lakes": {"type": "array", "items": {"type": "string"}, "description": "Lakes"}},
                    },
                    "unit": {"type": "string", "enum": ["C", "F"], "description": "Of °"},
                },
                "required": ["city", "days"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "rest",
            "description": "Does nothing",
            "parameters": {"type": "object", "properties": {}},
        },
    },
]

# Without a description and parameters, as clients send tools that take nothing.
BARE_TOOL = {"type": "function", "function": {"name": "now"}}
MARKUP = (
    "<b>&amp; 'q' \"d\" {{ x }} {% if y %} {# z #} `c` \\n \\\\ </b>\r\n\ttab  two\n\n"
    "é ü 日本語 العربية 👩‍👩‍👧 \u200b\u00a0\u2028 e\u0301 </s> <|im_end|> [INST] <think>\nno\n</think> "
)


def say(role, content, **more):
    return {"role": role, "content": content, **more}


def call(number, name, arguments):
    return {"id": f"call{number:05}", "type": "function", "function": {"name": name, "arguments": arguments}}


TWO_CALLS = [
    say("user", "The weather in Rome and in Oslo?"),
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            call(1, "weather", '{"city": "Rome", "days": 1}'),
            call(2, "weather", '{"city": "Oslo", "near": {"lakes": []}, "wide": false}'),
        ],
    },
    say("tool", "sunny", tool_call_id="call00001", name="weather"),
    say("tool", '["snow", -3.5]', tool_call_id="call00002", name="weather"),
    say("assistant", "Sun in Rome, snow in Oslo."),
    say("user", "Thanks!"),
]
SYSTEM = say("system", " Be brief.\n")
TURNS = [
    SYSTEM,
    say("user", "Hi"),
    say("assistant", " Hello. \n"),
    say("user", ' 1 < 2 "so"? '),
    say("assistant", "<think>\nhm\n</think>\n\nYes."),
    say("user", "And?"),
]
THOUGHT = [
    say("user", "2 + 2?"),
    say("assistant", "4.", reasoning_content="Two and two."),
    say("user", "3 + 3?"),
    say("assistant", "6.", reasoning_content="\nThree <and> three.\n"),
    say("user", "So?"),
]

# What a conversation has besides its messages; the rest is as in `DEFAULTS`.
DEFAULTS = {"tools": [], "open": True, "continued": False, "thinking": True}
CONVERSATIONS = {
    "user": {"messages": [say("user", "Hi")]},
    "system": {"messages": [SYSTEM, say("user", "Hi")]},
    "system alone": {"messages": [SYSTEM]},
    "turns": {"messages": TURNS},
    "turns, not opened": {"messages": TURNS[:-1], "open": False},
    "two users": {"messages": [say("user", "One"), say("user", "Two")]},
    "developer": {"messages": [say("developer", "Be brief."), say("user", "Hi")]},
    "nothing": {"messages": []},
    "markup": {"messages": [SYSTEM, say("user", MARKUP), say("assistant", MARKUP), say("user", MARKUP)]},
    "parts": {
        "messages": [say("user", [{"type": "text", "text": "One <a>"}, {"type": "text", "text": " two\n"}])]
    },
    "prefill": {"messages": [say("user", "A story"), say("assistant", "Once upon a")], "continued": True},
    "prefill alone": {"messages": [say("assistant", "Once upon a")], "continued": True},
    "tools": {"messages": [SYSTEM, say("user", "Hi")], "tools": TOOLS},
    "bare tool": {"messages": [say("user", "Hi")], "tools": [BARE_TOOL]},
    "call": {"messages": CALLING, "tools": TOOLS},
    "call, told to the end": {
        "messages": [SYSTEM, *CALLING, say("assistant", "Blue."), say("user", "Good")],
        "tools": TOOLS,
    },
    "two calls": {"messages": TWO_CALLS, "tools": TOOLS},
    "calls without tools": {"messages": TWO_CALLS},
    "thoughts": {"messages": THOUGHT},
    "no thinking": {"messages": [say("user", "Hi")], "thinking": False},
}
