"""Anthropic's own Python client against /v1/messages."""

import anthropic
import pytest

ASK = dict(model="stories", messages=[{"role": "user", "content": "Tell me of a cat."}])
# The client has no words for these any more.
SEEDED = dict(extra_body=dict(temperature=0.8, seed=7))
GREEDY = dict(extra_body=dict(temperature=0))


@pytest.fixture(scope="module")
def client(talker):
    with anthropic.Anthropic(base_url=talker.url, api_key="secret", max_retries=0, timeout=60) as client:
        yield client


def test_a_message(client):
    message = client.messages.create(**ASK, max_tokens=24, **SEEDED)
    [block] = message.content
    assert message.type == "message" and message.role == "assistant" and message.model == "stories"
    assert block.type == "text" and len(block.text) > 10
    assert message.stop_reason == "end_turn" or message.usage.output_tokens == 24


def test_streams_the_same_text(client):
    whole = client.messages.create(**ASK, max_tokens=24, **SEEDED)
    with client.messages.stream(**ASK, max_tokens=24, **SEEDED) as stream:
        pieces = list(stream.text_stream)
        message = stream.get_final_message()
    assert "".join(pieces) == message.content[0].text == whole.content[0].text and len(pieces) > 5
    assert message.stop_reason == whole.stop_reason and message.usage.output_tokens == whole.usage.output_tokens


def test_stop_sequences_and_systems(client):
    ask = dict(**ASK, max_tokens=60, **GREEDY)
    text = client.messages.create(**ask).content[0].text
    word = text.split()[4]
    message = client.messages.create(**ask, stop_sequences=[word])
    assert message.stop_reason == "stop_sequence" and message.stop_sequence == word
    assert text.startswith(message.content[0].text) and word not in message.content[0].text
    system = client.messages.create(**ask, system=[{"type": "text", "text": "Be sad."}])
    assert system.usage.input_tokens > message.usage.input_tokens


def test_tokens_are_counted_as_they_are_used(client):
    counted = client.messages.count_tokens(**ASK, system="Be brief.").input_tokens
    usage = client.messages.create(**ASK, system="Be brief.", max_tokens=1).usage
    assert counted == usage.input_tokens + (usage.cache_read_input_tokens or 0)


TOOL = dict(
    name="feed",
    description="",
    input_schema=dict(
        type="object", properties=dict(food=dict(enum=["fish", "milk"])), required=["food"], additionalProperties=False
    ),
)


def test_tools(client):
    ask = dict(**ASK, tools=[TOOL], max_tokens=200, **SEEDED)
    for choice in (dict(type="any"), dict(type="tool", name="feed")):
        choice["disable_parallel_tool_use"] = True
        message = client.messages.create(**ask, tool_choice=choice)
        calls = [block for block in message.content if block.type == "tool_use"]
        assert message.stop_reason == "tool_use" and len(calls) == 1
        assert calls[0].name == "feed" and calls[0].input["food"] in ("fish", "milk")
        with client.messages.stream(**ask, tool_choice=choice) as stream:
            streamed = stream.get_final_message()
        assert [b.input for b in streamed.content if b.type == "tool_use"] == [calls[0].input]
        assert streamed.stop_reason == "tool_use"
    talk = ASK["messages"] + [
        {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in calls]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": calls[0].id, "content": "Done."}]},
    ]
    assert client.messages.create(model="stories", messages=talk, tools=[TOOL], max_tokens=4).content


def test_errors_are_the_clients_own(client, talker):
    with pytest.raises(anthropic.BadRequestError, match="`temperature`"):
        client.messages.create(**ASK, max_tokens=4, extra_body=dict(temperature="hot"))
    with pytest.raises(anthropic.BadRequestError, match="context size"):
        client.messages.create(model="x", max_tokens=4, messages=[{"role": "user", "content": "word " * 9000}])
    stranger = anthropic.Anthropic(base_url=talker.url, api_key="wrong", max_retries=0)
    with pytest.raises(anthropic.AuthenticationError):
        stranger.messages.create(**ASK, max_tokens=4)
