"""How spec-run changes a conversation for a template that cannot take it as it is. Each change has a name; a difference
that has one as its reason is gone when Python's jinja2 gets the changed conversation."""

import copy
import itertools
import json


def objects(talk):
    """Arguments of calls are given as objects, not as a text, where a template needs objects."""
    for message in talk["messages"]:
        for one in message.get("tool_calls") or []:
            one["function"]["arguments"] = json.loads(one["function"]["arguments"])


def empty_text(talk):
    """Content that is null is given as an empty text."""
    for message in talk["messages"]:
        if message.get("content") is None:
            message["content"] = ""


def joined_parts(talk):
    """Parts of content are joined by a newline where a template takes texts only."""
    for message in talk["messages"]:
        if isinstance(message.get("content"), list):
            message["content"] = "\n".join(part["text"] for part in message["content"])


def parts(talk):
    """A text is given as a list with one part where a template takes lists only."""
    for message in talk["messages"]:
        if isinstance(message.get("content"), str):
            message["content"] = [{"type": "text", "text": message["content"]}]


def system_role(talk):
    """A developer's message is given as one of the system."""
    for message in talk["messages"]:
        if message["role"] == "developer":
            message["role"] = "system"


def system_to_user(talk):
    """A system message is put before the first message of the user where a template has no such role."""
    messages = talk["messages"]
    if messages and messages[0]["role"] == "system":
        system = messages.pop(0)["content"]
        if messages:
            messages[0]["content"] = f"{system}\n{messages[0]['content']}"


def whole_tools(talk):
    """A tool without a description and parameters is given empty ones."""
    for tool in talk["tools"]:
        function = tool["function"]
        name = function["name"]
        description = function.get("description", "")
        parameters = function.get("parameters", {"type": "object", "properties": {}})
        tool["function"] = {"name": name, "description": description, "parameters": parameters}


def thinking(talk):
    """gpt-oss's templates want thoughts as `thinking`, and no content beside calls."""
    for message in talk["messages"]:
        if message.get("reasoning_content"):
            message["thinking"] = message["reasoning_content"]
            if message.get("tool_calls"):
                del message["content"]


def tool_responses(talk):
    """Gemma 4's first templates want what tools answered in the message that called them."""
    joined = []
    for message in talk["messages"]:
        last = joined[-1] if joined and joined[-1].get("tool_calls") else None
        if last and message["role"] == "tool":
            responses = last.setdefault("tool_responses", [])
            name = last["tool_calls"][len(responses)]["function"]["name"]
            try:
                response = json.loads(message["content"])
            except ValueError:
                response = message["content"]
            responses.append({"name": name, "response": response})
        elif last and message["role"] == "assistant" and "tool_responses" in last and not last["content"]:
            last["content"] = message["content"]
        else:
            joined.append(message)
    talk["messages"] = joined


def functions(talk):
    """FireFunction's template gets the tools as the text `functions`, an empty one where there are none."""
    talk["functions"] = json.dumps(talk["tools"], indent=2, ensure_ascii=False) if talk["tools"] else ""


def opened_first(talk):
    """The beginning of an answer is put behind the opened turn of the assistant; it is not rendered as an answer."""
    talk["cut"] = True


def closed_thoughts(talk):
    """Where a template has begun a thought, and there is to be none, or the answer itself goes on, the thought is ended."""
    talk["closes"] = True


def empty_tools(talk):
    """A loop over tools that are none does nothing; Python's jinja2 refuses it."""
    talk["no_tools"] = []


TOLD = """There are tools that you can call:
{}

Write each answer as one JSON object, in one of two forms. This calls a tool, with arguments as its parameters ask for them:
{{"tool_call": {{"name": "NAME", "arguments": {{}}}}}}
This says something:
{{"response": "TEXT"}}
What a tool gives comes back to you as {{"tool_result": {{"name": "NAME", "content": "TEXT"}}}}."""


def told(talk):
    """Where spec-run does not know how a template has calls written, tools, calls and what tools answered are put into words."""
    calls = {call["id"]: call["function"]["name"] for message in talk["messages"] for call in message.get("tool_calls") or []}
    written, answered = [], False
    for message in talk["messages"]:
        role, text = message["role"], content_text(message)
        if role == "assistant":
            lines = [f'{{"response": {as_text(text)}}}'] if text or not message.get("tool_calls") else []
            for call in message.get("tool_calls") or []:
                arguments = as_json(call["function"]["arguments"] or "{}")
                lines.append(f'{{"tool_call": {{"name": {as_text(call["function"]["name"])}, "arguments": {arguments}}}}}')
            message = {**message, "content": "\n".join(lines)}
            message.pop("tool_calls", None)
        elif role == "tool":
            name = message.get("name") or calls.get(message.get("tool_call_id"))
            named = f'"name": {as_text(name)}, ' if name else ""
            message = {"role": "user", "content": f'{{"tool_result": {{{named}"content": {as_json(text)}}}}}'}
        if answered and message["role"] == "user":
            written[-1] = {"role": "user", "content": written[-1]["content"] + "\n\n" + content_text(message)}
        else:
            written.append(message)
        answered = role == "tool"
    whole_tools(talk)
    tools = [json.dumps(tool["function"], ensure_ascii=False, separators=(",", ":")) for tool in talk["tools"]]
    words = TOLD.format("\n".join(tools))
    if written and written[0]["role"] == "system":
        written[0] = {**written[0], "content": content_text(written[0]) + "\n\n" + words}
    else:
        written.insert(0, {"role": "system", "content": words})
    talk["messages"], talk["tools"] = written, []


def content_text(message):
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


def as_text(text):
    return json.dumps(text, ensure_ascii=False)


def as_json(text):
    """What is JSON stays as it is."""
    try:
        json.loads(text)
        return text.strip()
    except ValueError:
        return as_text(text)


ALL = [told, objects, empty_text, joined_parts, parts, system_role, system_to_user, whole_tools]
ALL += [thinking, tool_responses, functions, opened_first, closed_thoughts, empty_tools]


def that_explain(talk, render, wanted):
    """The names of the fewest changes with which `render` gives the wanted text."""
    system = changed(talk, [system_role])
    useful = [change for change in ALL if any(changed(it, [change]) != it for it in (talk, system))]
    for number in range(1, len(useful) + 1):
        for changes in itertools.combinations(useful, number):
            if render(changed(talk, changes)) == wanted:
                return [change.__name__ for change in changes]
    return None


def changed(talk, changes):
    talk = copy.deepcopy(talk)
    for change in changes:
        try:
            change(talk)
        except (TypeError, KeyError, IndexError):
            pass
    return talk
