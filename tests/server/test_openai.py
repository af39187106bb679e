"""OpenAI's own Python client against the server: what it parses, it parses; what is refused becomes its exceptions."""

import json
import math
from typing import Literal

import openai
import pytest
from pydantic import BaseModel, Field

TALK = [{"role": "user", "content": "Tell me of a cat."}]
SEEDED = {"temperature": 0.8, "seed": 7}


@pytest.fixture(scope="module")
def client(talker):
    with openai.OpenAI(base_url=f"{talker.url}/v1", api_key="secret", max_retries=0, timeout=60) as client:
        yield client


def test_chat(client):
    answer = client.chat.completions.create(model="stories", messages=TALK, max_tokens=24, n=2, **SEEDED)
    assert [choice.index for choice in answer.choices] == [0, 1]
    for choice in answer.choices:
        assert choice.message.role == "assistant" and len(choice.message.content) > 10
        assert choice.finish_reason in ("stop", "length")
    usage = answer.usage
    assert usage.prompt_tokens > 10 and 2 < usage.completion_tokens <= 48
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert answer.object == "chat.completion" and answer.model == "stories"


def test_chat_streams_the_same_text(client):
    ask = dict(model="stories", messages=TALK, max_tokens=40, **SEEDED)
    whole = client.chat.completions.create(**ask)
    chunks = list(client.chat.completions.create(stream=True, **ask))
    assert len({chunk.id for chunk in chunks}) == 1
    assert all(chunk.object == "chat.completion.chunk" and chunk.usage is None for chunk in chunks)
    assert chunks[0].choices[0].delta.role == "assistant"
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks]
    assert "".join(texts) == whole.choices[0].message.content and sum(map(bool, texts)) > 5
    reasons = [chunk.choices[0].finish_reason for chunk in chunks]
    assert reasons[-1] == whole.choices[0].finish_reason and not any(reasons[:-1])


def test_a_stream_can_count_tokens(client):
    ask = dict(model="stories", messages=TALK, max_tokens=8, temperature=0)
    chunks = list(client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **ask))
    assert chunks[-1].choices == [] and all(chunk.usage is None for chunk in chunks[:-1])
    whole = client.chat.completions.create(**ask)
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens == 8
    assert chunks[-1].usage.prompt_tokens == whole.usage.prompt_tokens


def test_chat_logprobs(client):
    ask = dict(model="stories", messages=TALK, max_tokens=6, temperature=0)
    answer = client.chat.completions.create(logprobs=True, top_logprobs=3, **ask)
    content = answer.choices[0].logprobs.content
    assert "".join(one.token for one in content).strip() == answer.choices[0].message.content.strip()
    for one in content:
        tops = [top.logprob for top in one.top_logprobs]
        assert len(tops) == 3 and tops == sorted(tops, reverse=True) and one.logprob == tops[0] < 0
        assert bytes(one.bytes).decode() == one.token


class Cat(BaseModel):
    name: str = Field(max_length=8)
    colour: Literal["black", "white", "red"]
    age: int = Field(ge=0, le=30)


def test_structured_output(client):
    ask = dict(model="stories", messages=TALK, response_format=Cat, max_tokens=200)
    for seed in range(4):
        answer = client.chat.completions.parse(seed=seed, **ask)
        cat = answer.choices[0].message.parsed
        assert isinstance(cat, Cat) and answer.choices[0].finish_reason == "stop"
    with client.chat.completions.stream(seed=3, **ask) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == cat


def tool(name, /, **properties):
    parameters = dict(type="object", properties=properties, required=list(properties), additionalProperties=False)
    return dict(type="function", function=dict(name=name, description="", parameters=parameters))


FEED = tool("feed", food=dict(enum=["fish", "milk"]), grams=dict(type="integer", minimum=1, maximum=500))
CALL = tool("call", name=dict(type="string", maxLength=8))


def is_called(call):
    """Whether the arguments are what the tool wants."""
    arguments = json.loads(call.function.arguments)
    match call.function.name:
        case "feed":
            return set(arguments) == {"food", "grams"} and 1 <= arguments["grams"] <= 500
        case "call":
            return len(arguments["name"]) <= 8
    return False


@pytest.mark.parametrize("choice", ["required", "feed"])
def test_tools(client, choice):
    named = dict(type="function", function=dict(name=choice))
    choice = choice if choice == "required" else named
    ask = dict(model="stories", messages=TALK, tools=[FEED, CALL], tool_choice=choice, max_tokens=200)
    ask |= dict(parallel_tool_calls=False, **SEEDED)
    whole = client.chat.completions.create(**ask).choices[0]
    assert whole.finish_reason == "tool_calls"
    [call] = whole.message.tool_calls
    assert is_called(call) and (choice == "required" or call.function.name == "feed")

    # The same in pieces: a name once, arguments bit by bit.
    names, arguments, reasons = [], "", []
    for chunk in client.chat.completions.create(stream=True, **ask):
        for delta in chunk.choices[0].delta.tool_calls or []:
            assert delta.index == 0
            names += [delta.function.name] if delta.function.name else []
            arguments += delta.function.arguments or ""
        reasons += [chunk.choices[0].finish_reason] if chunk.choices[0].finish_reason else []
    assert (names, arguments, reasons) == ([call.function.name], call.function.arguments, ["tool_calls"])


def test_a_tools_answer_is_read(client):
    ask = dict(model="stories", tools=[FEED], max_tokens=24, temperature=0)
    call = dict(id="abc", type="function", function=dict(name="feed", arguments='{"food": "fish", "grams": 5}'))
    talk = TALK + [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "abc", "content": "The cat is happy."},
    ]
    answer = client.chat.completions.create(messages=talk, **ask)
    before = client.chat.completions.create(messages=TALK, **ask)
    assert answer.usage.prompt_tokens > before.usage.prompt_tokens + 10
    message = answer.choices[0].message
    assert message.content or message.tool_calls


def test_completions_with_echo_and_logprobs(client, talker):
    prompt = "Once upon a time there was a cat"
    ask = dict(model="stories", prompt=prompt, temperature=0, logprobs=2)
    answer = client.completions.create(echo=True, max_tokens=4, **ask)
    one = answer.choices[0]
    logprobs = one.logprobs
    count = answer.usage.prompt_tokens + 4
    # Before it stands the token with which texts begin, where there is one.
    assert one.text.startswith(talker.begins + prompt) and one.text == "".join(logprobs.tokens)
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.text_offset) == count
    assert logprobs.token_logprobs[0] is None and logprobs.top_logprobs[0] is None
    for value, tops in zip(logprobs.token_logprobs[1:], logprobs.top_logprobs[1:]):
        assert value < 0 and math.isfinite(value) and value <= max(tops.values())
    # What was made greedily is what was likeliest, and is as likely where it is not echoed.
    made = logprobs.token_logprobs[-4:]
    assert made == [max(tops.values()) for tops in logprobs.top_logprobs[-4:]]
    plain = client.completions.create(max_tokens=4, **ask).choices[0]
    assert plain.logprobs.token_logprobs == made and one.text.endswith(plain.text)


def test_completions_of_several_prompts_and_streams(client):
    prompts = ["The dog", "The sun", [306, 505]]
    ask = dict(model="stories", max_tokens=8, n=2, seed=5)
    for prompt in prompts[:2]:
        whole = client.completions.create(prompt=prompt, **ask).choices
        texts = ["", ""]
        for chunk in client.completions.create(prompt=prompt, stream=True, **ask):
            for choice in chunk.choices:
                texts[choice.index] += choice.text
        assert texts == [choice.text for choice in whole]
    several = client.completions.create(prompt=prompts[:2], **ask)
    assert [choice.index for choice in several.choices] == [0, 1, 2, 3]
    assert client.completions.create(prompt=prompts[2], **ask).choices[1].text


def test_responses(client):
    ask = dict(model="stories", input="Tell me of a cat.", max_output_tokens=24, temperature=0.8)
    ask["extra_body"] = {"seed": 7}
    whole = client.responses.create(**ask)
    assert len(whole.output_text) > 10
    assert whole.status == "completed" or whole.usage.output_tokens == 24
    events = list(client.responses.create(stream=True, **ask))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created" and events[-1].type.startswith("response.")
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == whole.output_text == events[-1].response.output_text


def test_models(client):
    [model] = client.models.list()
    assert model.id == "stories" and model.object == "model"


def test_errors_are_the_clients_own(client, talker):
    """A status becomes an exception, and what is said can be read."""
    with pytest.raises(openai.BadRequestError, match="`temperature`") as error:
        client.chat.completions.create(model="stories", messages=TALK, temperature="hot")
    assert error.value.param == "temperature" and error.value.type == "invalid_request_error"
    with pytest.raises(openai.BadRequestError, match="exceeds the available context size"):
        client.completions.create(model="stories", prompt="word " * 9000)
    with pytest.raises(openai.BadRequestError, match="schema"):
        wrong = dict(type="json_schema", json_schema=dict(name="x", schema=dict(type="hiccup")))
        client.chat.completions.create(model="stories", messages=TALK, response_format=wrong)
    # A stream that is refused is refused before it begins.
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="stories", messages=[{}], stream=True)
    # The client's name for all statuses from 500 on.
    with pytest.raises(openai.InternalServerError, match="`embeddings`") as error:
        client.embeddings.create(model="stories", input="Hi")
    assert error.value.status_code == 501 and error.value.type == "not_supported_error"
    with pytest.raises(openai.NotFoundError, match="nothing here"):
        client.get("/nothing", cast_to=object)
    stranger = openai.OpenAI(base_url=f"{talker.url}/v1", api_key="wrong", max_retries=0)
    with pytest.raises(openai.AuthenticationError, match="API Key"):
        stranger.chat.completions.create(model="stories", messages=TALK)
