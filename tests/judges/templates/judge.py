"""Renders llama.cpp's chat templates with spec-run, with Python's jinja2 set up as Hugging Face's transformers does it, and
with npm's @huggingface/jinja, and lists what differs.

    pip install jinja2                 # and node 20 with npm
    python3 judge.py PROGRAM FOLDER    # fetches into FOLDER what is not there yet; 3 minutes
    python3 judge.py PROGRAM FOLDER --show TEMPLATE CONVERSATION
    python3 judge.py PROGRAM FOLDER --write

Fails where a difference is not in expected.json, or one in it is not there any more. --show prints the three texts of one
case. --write puts new differences into expected.json, without a reason, and takes out those that are gone.
"""

import argparse
import concurrent.futures
import datetime
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile

import adapted
from conversations import CONVERSATIONS, DEFAULTS
from templates import environment

HERE = pathlib.Path(__file__).parent
EXPECTED = HERE / "expected.json"
LLAMA_CPP = "llama-cpp-python==0.3.36"
NODE_PACKAGE = "@huggingface/jinja@0.5.11"
# Of the same length in every run: templates that ask for the date get today's, all three the same.
VARIABLES = {"date_string": "1 Jan 2020", "datetime": "Jan 01 2020"}
# Where the second stands in a template, thoughts are between the two.
THOUGHTS = [
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<seed:think>", "</seed:think>"),
    ("<|channel>thought", "<channel|>"),
]
SIDES = ["python", "npm", "fault"]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def fetched(folder):
    """Templates by their name; fetches them, and npm's package, where they are missing."""
    folder.mkdir(parents=True, exist_ok=True)
    templates = folder / "templates"
    if not templates.is_dir():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "llama-cpp-python"]
        subprocess.run([*command, "--dest", folder, LLAMA_CPP], check=True)
        (archive,) = folder.glob("llama_cpp_python-*.tar.gz")
        texts = {}
        with tarfile.open(archive) as files:
            for file in files:
                path = pathlib.PurePath(file.name)
                if path.suffix == ".jinja" and path.parent.as_posix().endswith("/llama.cpp/models/templates"):
                    texts[path.name] = files.extractfile(file).read()
        templates.mkdir()
        for name, text in texts.items():
            (templates / name).write_bytes(text)
    if not (folder / "node_modules").is_dir():
        (folder / "package.json").write_text("{}")
        subprocess.run(["npm", "install", "--silent", NODE_PACKAGE], cwd=folder, check=True)
    return {path.stem: path.read_text() for path in sorted(templates.glob("*.jinja"))}


def all_cases(templates):
    """What is rendered, by its name: a source and a conversation."""
    talks = {title: {**DEFAULTS, **talk} for title, talk in CONVERSATIONS.items()}
    cases = {f"{name} | {title}": (source, talk) for name, source in templates.items() for title, talk in talks.items()}
    expressions = (HERE / "expressions.txt").read_text().splitlines()
    return cases | {f"expression | {source}": (source, talks["nothing"]) for source in expressions}


def variables(talk):
    """What a template gets: as Hugging Face's tools give it, and spec-run's variables."""
    more = {"functions": talk["functions"]} if "functions" in talk else {}
    return {
        "messages": talk["messages"],
        "tools": talk["tools"] or talk.get("no_tools"),
        "documents": None,
        "add_generation_prompt": talk["open"] and not talk["continued"],
        "enable_thinking": talk["thinking"],
        **TOKENS,
        **VARIABLES,
        **more,
    }


def whole(talk, source, render):
    """The text of a conversation. The beginning of an answer is rendered as an answer, and cut off behind what it says,
    as transformers does it."""
    if talk["continued"] and not talk.get("cut"):
        said = content_of(talk["messages"][-1]).strip()
        text = render(variables(talk))
        return text[: text.rindex(said) + len(said)]
    messages = talk["messages"]
    begun = content_of(messages[-1]) if talk["continued"] else ""
    messages = messages[:-1] if talk["continued"] else messages
    text = render(variables({**talk, "messages": messages, "continued": False}))
    for opening, closing in [marks for marks in THOUGHTS if talk.get("closes") and marks[1] in source][:1]:
        if text.rstrip().endswith(opening):
            if not talk["thinking"]:
                text += closing
            elif begun:
                text += f"\n{closing}\n\n"
    return text + begun


def content_of(message):
    content = message["content"]
    return content if isinstance(content, str) else content[-1]["text"]


class Python:
    def __init__(self, source):
        self.source = source
        self.error = None
        try:
            self.template = environment().from_string(source)
        except Exception as error:
            self.error = error

    def __call__(self, talk):
        try:
            if self.error:
                raise self.error
            return whole(talk, self.source, lambda variables: self.template.render(**variables))
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}


class Node:
    def __init__(self, folder):
        command = ["node", HERE / "render.mjs", folder.resolve()]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, source, talk):
        def render(variables):
            self.process.stdin.write(json.dumps({"template": source, "variables": variables}) + "\n")
            self.process.stdin.flush()
            answer = json.loads(self.process.stdout.readline())
            if "error" in answer:
                raise ValueError(answer["error"])
            return answer["text"]

        try:
            return whole(talk, source, render)
        except ValueError as error:
            return {"error": str(error)}


def ours(program, source, talk):
    conversation = {
        "messages": talk["messages"],
        "tools": talk["tools"],
        "add_generation_prompt": talk["open"],
        "continue_final_message": talk["continued"],
        "thinking": talk["thinking"],
        "variables": VARIABLES,
    }
    job = json.dumps({"template": {"text": source, **TOKENS}, "conversation": conversation})
    ran = subprocess.run([program, "render-chat-template"], input=job, capture_output=True, text=True, timeout=300)
    try:
        answer = json.loads(ran.stdout)
    except ValueError:
        said = ran.stderr.strip()
        # Neither of them is a refusal.
        if ran.returncode != 1 or not said or "\n" in said or "panicked" in said:
            return {"crash": f"exit code {ran.returncode}: {said}"}
        return {"error": said}
    return answer["Prompt"][0]["text"] if "Prompt" in answer else {"error": answer["Error"]}


def is_error(answer):
    return isinstance(answer, dict)


def fingerprint(texts, source):
    """Of what all three say. Today's date is taken out."""
    now = datetime.datetime.now(datetime.timezone.utc)
    forms = set(re.findall(r"strftime_now\(['\"]([^'\"]+)['\"]\)", source))
    said = json.dumps(["error" if is_error(text) else text for text in texts])
    for form in forms:
        said = said.replace(now.strftime(form), form)
    return hashlib.sha256(said.encode()).hexdigest()[:12]


def fault(talk, text):
    """What is wrong in our text, whatever the others say."""
    if is_error(text):
        return "crash" if "crash" in text else None
    lists = any(isinstance(message["content"], list) for message in talk["messages"])
    written = "'type': 'text'" in text or '"type": "text"' in text
    return "written list" if lists and written else None


def judged(program, folder, cases):
    """What differs, by the name of the case: how, and the texts."""
    node = Node(folder)
    # The machine is left to itself: a few at once.
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        answers = list(pool.map(lambda case: ours(program, *case), cases.values()))
    python = {source: Python(source) for source, _ in cases.values()}
    found = {}
    for (name, (source, talk)), our_text in zip(cases.items(), answers):
        texts = {"spec-run": our_text, "python": python[source](talk)}
        # Of expressions many are unknown to npm's.
        texts["npm"] = texts["python"] if name.startswith("expression") else node(source, talk)
        same = {key: "error" if is_error(text) else text for key, text in texts.items()}
        wrong = fault(talk, our_text)
        if same["spec-run"] == same["python"] == same["npm"] and not wrong:
            continue
        difference = {"print": fingerprint(texts.values(), source)}
        if same["spec-run"] != same["python"]:
            explained = None if is_error(our_text) else adapted.that_explain(talk, python[source], our_text)
            difference["python"] = explained or "other"
        if same["npm"] != same["python"]:
            difference["npm"] = "other"
        if wrong:
            difference["fault"] = wrong
        found[name] = (difference, texts)
    return found


def compare(found, expected):
    """What is not as it is written down, in lines."""
    wrong = []
    for key, (difference, _) in found.items():
        known = expected["differences"].get(key)
        if known is None:
            wrong.append(f"new: {key}: {difference}")
            continue
        if known["print"] != difference["print"]:
            wrong.append(f"changed: {key}")
        for side in SIDES:
            reason = known.get(side)
            if side not in difference and reason is not None:
                wrong.append(f"gone: {key}, {side}: {reason}")
            elif side in difference and difference[side] == "other" and reason not in list(expected["reasons"]):
                wrong.append(f"without a reason: {key}, {side}")
            elif side in difference and difference[side] not in ("other", reason):
                wrong.append(f"another reason: {key}, {side}: {difference[side]}")
    wrong.extend(f"gone: {key}" for key in expected["differences"] if key not in found)
    return wrong


def write(found, expected):
    differences = {}
    for key, (difference, _) in found.items():
        known = expected["differences"].get(key, {})
        for side in SIDES:
            if difference.get(side) == "other":
                difference[side] = known.get(side) if isinstance(known.get(side), str) else "?"
        differences[key] = difference
    expected["differences"] = differences
    lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(it)}" for key, it in sorted(differences.items()))
    reasons = json.dumps(expected["reasons"], indent=1, ensure_ascii=False)
    EXPECTED.write_text(f'{{"reasons": {reasons},\n"differences": {{\n{lines}\n}}}}\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--show", nargs=2, metavar=("TEMPLATE", "CONVERSATION"))
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    templates = fetched(arguments.folder)
    expected = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {"reasons": {}, "differences": {}}
    cases = all_cases(templates)
    if arguments.show:
        source, talk = cases[" | ".join(arguments.show)]
        print("spec-run:", ours(arguments.program, source, talk))
        print("python:  ", Python(source)(talk))
        print("npm:     ", Node(arguments.folder)(source, talk))
        return
    found = judged(arguments.program, arguments.folder, cases)
    if arguments.write:
        write(found, expected)
    wrong = compare(found, expected)
    print("\n".join(wrong))
    count = {side: sum(side in difference for difference, _ in found.values()) for side in SIDES}
    print(f"{len(templates)} templates, {len(cases)} texts with expressions: {count['python']} differ from jinja2's, "
          f"{count['npm']} of npm's do; {count['fault']} of ours are wrong by themselves; {len(wrong)} not as expected")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
