"""Writes templates.json: chat templates in the manner of well-known models, and what Python's jinja2 makes of them, set
up as Hugging Face's tools do.

    pip install jinja2
    python3 templates.py                    # tests/golden/templates.json
    python3 templates.py PROGRAM FOLDER     # compares PROGRAM, a built spec-run, on the .jinja files of FOLDER
"""

import copy
import datetime
import json
import pathlib
import subprocess
import sys

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

OUT = pathlib.Path(__file__).parent / "templates.json"
CONVERSATIONS = {
    "turns": [("user", "Hi <b> & 'you'? é"), ("assistant", "<think>\nhm\n</think>\n\nHello.\n"), ("user", ' 1 < 2 "so"? ')],
    "system": [("system", " Be brief.\n"), ("user", "Hi"), ("assistant", "Hello."), ("user", "And?")],
}
# In OpenAI's shape. Ids have nine characters, as Mistral's templates want them.
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The \"weather\" <now>",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
        },
    }
]
CALLING = [
    {"role": "user", "content": "And in Paris?"},
    {
        "role": "assistant",
        "content": "",
        "reasoning_content": "I have to look.",
        "tool_calls": [
            {
                "type": "function",
                "function": {"name": "weather", "arguments": '{"city": "Paris é", "days": 2, "wide": [1.5, true, null]}'},
                "id": "call00001",
            }
        ],
    },
    {"role": "tool", "content": '{"sky": "blue"}', "tool_call_id": "call00001"},
]
# Templates that take arguments as a text get it as it is, all others the object.
WITH_TOOLS = {
    "calls between tags, as in hermes and qwen 3": """
{%- if tools %}
    {{- '<|im_start|>system\\n# Tools\\n<tools>' }}
    {%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
    {{- '\\n</tools>{\\"name\\": <function-name>, \\"arguments\\": <args-json-object>}<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {{- '<|im_start|>assistant' }}
        {%- if message.reasoning_content %}{{- '\\n<think>\\n' + message.reasoning_content + '\\n</think>' }}{%- endif %}
        {%- for call in message.tool_calls %}
            {%- set call = call.function if call.function else call %}
            {{- '\\n<tool_call>\\n{"name": "' + call.name + '", "arguments": ' }}
            {%- if call.arguments is string %}{{- call.arguments }}{%- else %}{{- call.arguments | tojson }}{%- endif %}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
""",
    "arguments that have to be objects, as in llama 3": """
{{- bos_token }}
{%- if tools is not none %}{%- for t in tools %}{{- t | tojson(indent=4) }}{{- "\\n\\n" }}{%- endfor %}{%- endif %}
{%- for message in messages %}
    {%- if 'tool_calls' in message %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' + call.name + '", "parameters": ' }}
        {{- call.arguments | tojson }}{{- '}<|eot_id|>' }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable and message.content is not string %}
            {{- message.content | tojson }}
        {%- else %}{{- message.content }}{%- endif %}
        {{- "<|eot_id|>" }}
    {%- else %}
        {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + message.content | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}
""",
    "an argument to a tag, as in qwen 3 coder": """
{%- macro items(object, skip) %}
    {%- for key in object if key not in skip %}{{- '\\n<' ~ key ~ '>' ~ (object[key] | tojson | safe) ~ '</' ~ key ~ '>' }}{%- endfor %}
{%- endmacro %}
{%- for tool in tools or [] %}
    {{- '<function>\\n<name>' ~ tool.function.name ~ '</name>' }}
    {{- items(tool.function.parameters, ['type']) ~ '\\n</function>\\n' }}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == 'assistant' and message.tool_calls is defined and message.tool_calls is iterable %}
        {{- '<|im_start|>assistant' }}
        {%- for call in message.tool_calls %}
            {{- '\\n<tool_call>\\n<function=' + call.function.name + '>\\n' }}
            {%- for name, value in call.function.arguments | items %}
                {%- set value = value | tojson | safe if value is mapping or (value is sequence and value is not string) else value | string %}
                {{- '<parameter=' + name + '>\\n' }}{{- value }}{{- '\\n</parameter>\\n' }}
            {%- endfor %}
            {{- '</function>\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
""",
    "a list and an id, as in mistral": """
{{- bos_token }}
{%- for message in messages %}
    {%- if message.role == "user" %}
        {%- if tools is not none and loop.first %}{{- "[AVAILABLE_TOOLS]" ~ (tools | tojson) ~ "[/AVAILABLE_TOOLS]" }}{%- endif %}
        {{- "[INST]" + message.content + "[/INST]" }}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS][" }}
        {%- for call in message.tool_calls %}
            {%- set out = call.function | tojson %}
            {{- out[:-1] }}
            {%- if not call.id is defined or call.id | length != 9 %}{{- raise_exception("ids have nine characters") }}{%- endif %}
            {{- ', "id": "' + call.id + '"}' }}
            {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" + eos_token }}{%- endif %}
        {%- endfor %}
    {%- elif message.role == "tool" %}
        {{- '[TOOL_RESULTS]{"content": ' + message.content | string + ', "call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}
        {{- " " + message.content + eos_token }}
    {%- endif %}
{%- endfor %}
""",
}
TEMPLATES = {
    "macros, scans and namespaces, as in gemma 4": """
{%- macro without_thoughts(text) -%}
    {%- set ns = namespace(kept='') -%}
    {%- for part in text.split('</think>') -%}
        {%- set ns.kept = ns.kept + (part.split('<think>')[0] if '<think>' in part else part) -%}
    {%- endfor -%}
    {{- ns.kept | trim -}}
{%- endmacro -%}
{%- set last = namespace(user=-1, role=None) -%}
{{- bos_token -}}
{%- if messages[0]['role'] in ['system', 'developer'] -%}
    {{- '<|turn>system\\n' + messages[0]['content'] | trim + '<turn|>\\n' -}}
    {%- set messages = messages[1:] -%}
{%- endif -%}
{%- for i in range(messages | length) -%}
    {%- if messages[i]['role'] == 'user' -%}{%- set last.user = i -%}{%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
    {%- set thought = message.get('reasoning') or message.get('reasoning_content') -%}
    {{- '<|turn>' + role + '\\n' }}
    {%- if thought and loop.index0 > last.user -%}{{- thought -}}{%- endif -%}
    {%- if message['content'] is string -%}
        {{- without_thoughts(message['content']) if role == 'model' else message['content'] | trim -}}
    {%- elif message['content'] is sequence -%}
        {%- for item in message['content'] -%}{{- item['text'] -}}{%- endfor -%}
    {%- endif -%}
    {{- '<turn|>\\n' -}}
    {%- set last.role = role -%}
{%- endfor -%}
{%- if add_generation_prompt and last.role != 'model' -%}{{- '<|turn>model\\n' -}}{%- endif -%}
""",
    "a system message of the template's own and channels, as in gpt-oss": """
{%- macro system_message() -%}
    {%- if model_identity is not defined -%}
        {%- set model_identity = "You are a model." -%}
    {%- endif -%}
    {{- model_identity + "\\n" }}
    {%- if reasoning_effort is not defined %}{%- set reasoning_effort = "medium" %}{%- endif %}
    {{- "Reasoning: " + reasoning_effort + "\\n\\n" }}
    {{- "# Valid channels: analysis, final." }}
{%- endmacro -%}
<|start|>system<|message|>{{ system_message() }}<|end|>
{%- if messages[0].role == "developer" or messages[0].role == "system" %}
    {%- set developer_message = messages[0].content %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set developer_message = "" %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if developer_message or tools %}
    {{- "<|start|>developer<|message|># Instructions\\n\\n" + developer_message + "<|end|>" }}
{%- endif %}
{%- set last_tool_call = namespace(name=none) %}
{%- for message in loop_messages -%}
    {%- if message.role == 'assistant' -%}
        {%- if "thinking" in message %}{{- message.thinking }}{%- endif %}
        {%- set future = loop_messages[loop.index0 + 1:] %}
        {{- "<|start|>assistant<|channel|>final<|message|>" + message.content + ("<|end|>" if future else "<|return|>") }}
    {%- elif message.role == 'user' -%}
        {{- "<|start|>user<|message|>" + message.content + "<|end|>" }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|start|>assistant
{%- endif -%}
""",
    "tools that are none, as in qwen 3 and nemotron": """
{%- if tools is iterable and tools | length > 0 %}
    {{- '# Tools' }}
{%- endif %}
{%- set ns = namespace(multi_step=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step and message.role == "user" and message.content is string
            and not (message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == "assistant" and '</think>' in content %}
        {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- if loop.index0 > ns.last and (loop.last or thought) %}
            {%- set content = '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + content %}
        {%- endif %}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}
""",
    "text between the tags, as in glm": """
[gMASK]<sop>
{%- macro visible(content) -%}
    {%- if content is string -%}
        {{- content }}
    {%- elif content is iterable and content is not mapping -%}
        {%- for item in content -%}{{- item if item is string else item.text }}{%- endfor -%}
    {%- else -%}
        {{- content }}
    {%- endif -%}
{%- endmacro -%}
{% for m in messages %}
{%- if m.role == 'user' -%}<|user|>
{{ visible(m.content) }}
{{- '/nothink' if (enable_thinking is defined and not enable_thinking) else '' -}}
{%- elif m.role == 'assistant' -%}
<|assistant|>
{%- set content = visible(m.content) %}
{{ '<think></think>' }}
{% if content.strip() -%}
{{ content.split('</think>')[-1].strip() }}
{%- endif -%}
{%- elif m.role == 'system' -%}
<|system|>
{{ visible(m.content) }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    <|assistant|>
{%- endif -%}
""",
    "what is not given, and generation blocks, as in granite and command-r": """
{%- set system = messages | selectattr('role', 'equalto', 'system') | map(attribute='content') | join('\\n') %}
{%- set roles = {'user': '<|USER|>', 'assistant': '<|CHATBOT|>'} %}
{{ bos_token }}<|SYSTEM|>{{ system | default('none', true) | trim }}{% if documents is not none and documents %}!{% endif %}

{% for message in messages if message.role in roles -%}
{{ loop.index }}/{{ loop.length }}{{ roles[message['role']] }}
{%- if message.role == 'assistant' %}{% generation %}{{ message.content | trim }}{{ eos_token }}{% endgeneration %}
{%- else %}{{ message.content.strip() }}{% endif %}
{% endfor %}
{%- for key, value in messages[0] | dictsort %}{{ key }}={{ value | tojson }};{% endfor %}
{%- if messages[0] is sequence and 'ab' is sequence and 3 is not sequence %}{{ messages[0] | length }}{% endif %}
{%- if add_generation_prompt %}<|CHATBOT|>{% endif %}
""",
}


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_text"), [], [], body).set_lineno(line)

    def _text(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise TemplateError(message)

    def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    made.filters["tojson"] = to_json
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = lambda form: datetime.datetime.now(datetime.timezone.utc).strftime(form)
    return made


def render(template, messages, tools=None):
    return environment().from_string(template).render(
        messages=messages,
        add_generation_prompt=True,
        bos_token="<s>",
        eos_token="</s>",
        tools=tools,
        documents=None,
        enable_thinking=True,
        date_string="1 Jan 2020",
        datetime="Jan 01 2020",
    )


def render_calls(template):
    """With the arguments as a text where the template writes it as it is, as objects where it does not."""

    def conversation(change):
        messages = copy.deepcopy(CALLING)
        function = messages[1]["tool_calls"][0]["function"]
        function["arguments"] = change(function["arguments"])
        return messages

    text = CALLING[1]["tool_calls"][0]["function"]["arguments"]
    try:
        rendered = render(template, conversation(str), TOOLS)
        if text in rendered:
            return rendered
    except Exception:
        pass
    return render(template, conversation(json.loads), TOOLS)


def messages_of(conversation):
    return [{"role": role, "content": content} for role, content in conversation]


def write():
    conversations = {name: messages_of(conversation) for name, conversation in CONVERSATIONS.items()}
    cases = [
        {"name": name, "source": source, "rendered": {key: render(source, c) for key, c in conversations.items()}}
        for name, source in TEMPLATES.items()
    ]
    calling = {
        "messages": CALLING,
        "tools": TOOLS,
        "templates": [
            {"name": name, "source": source, "rendered": render_calls(source)} for name, source in WITH_TOOLS.items()
        ],
    }
    golden = {"conversations": conversations, "templates": cases, "calling": calling}
    OUT.write_text(json.dumps(golden, indent=1) + "\n")


def ask(program, template, messages, tools):
    variables = {"date_string": "1 Jan 2020", "datetime": "Jan 01 2020"}
    conversation = {
        "messages": messages,
        "tools": tools,
        "add_generation_prompt": True,
        "continue_final_message": False,
        "thinking": True,
        "variables": variables,
    }
    source = {"text": template, "bos_token": "<s>", "eos_token": "</s>"}
    job = json.dumps({"template": source, "conversation": conversation})
    ran = subprocess.run([program, "render-chat-template"], input=job, capture_output=True, text=True)
    answer = json.loads(ran.stdout)
    return answer["Prompt"][0]["text"] if "Prompt" in answer else answer


def compare(program, folder):
    """What differs may be meant so: where a template takes no system message, it goes into the user's."""
    different = 0
    for path in sorted(pathlib.Path(folder).glob("*.jinja")):
        source = path.read_text()
        cases = {name: (messages_of(talk), [], render) for name, talk in CONVERSATIONS.items()}
        cases["calling"] = (CALLING, TOOLS, lambda template, _: render_calls(template))
        for name, (messages, tools, make) in cases.items():
            try:
                expected = make(source, messages)
            except Exception as error:
                expected = error
            answer = ask(program, source, messages, tools)
            if answer != expected and not (isinstance(answer, dict) and isinstance(expected, Exception)):
                different += 1
                print(f"{path.name}, {name}:\n  theirs {expected!r}\n  ours   {answer!r}")
    print(f"{different} differ")


if __name__ == "__main__":
    compare(*sys.argv[1:]) if len(sys.argv) > 1 else write()
