"""Has texts written under JSON schemas that others wrote, and asks Python's jsonschema whether they are valid.

    pip install jsonschema
    git clone https://github.com/guidance-ai/jsonschemabench FOLDER/jsonschemabench
    git clone https://github.com/json-schema-org/JSON-Schema-Test-Suite FOLDER/JSON-Schema-Test-Suite
    git -C FOLDER/jsonschemabench checkout ba103c73             # what expected.json is of
    git -C FOLDER/JSON-Schema-Test-Suite checkout 44401e0c
    python3 judge.py PROGRAM FOLDER                  # Linux; a minute on two cores
    python3 judge.py PROGRAM FOLDER --model FILE     # another model, for 60 of them, by the command line
    python3 judge.py PROGRAM FOLDER --write

The first is JSONSchemaBench: 50 schemas of each of its ten sets, which sample.txt names. The second is the JSON Schema Test
Suite, draft 2020-12 without the optional tests: small schemas, one or two keywords each.

Two small models write: the one inside the program, and one with random weights ("random"), which tries what no sensible text
does. What was cut is asked for once more with a bias towards the characters that end a value: "(short)", "(random, short)".

Each schema is either refused, in one line, or a text is written under it, which is valid or was cut. All else is a finding.
Fails where a finding or a refusal is not in expected.json, or one in it is not there any more. --write writes that file; a
new finding gets no reason there, and the judge fails until it has one.
"""

import argparse
import collections
import concurrent.futures
import decimal
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import jsonschema
import referencing
from jsonschema_specifications import REGISTRY

HERE = pathlib.Path(__file__).parent
EXPECTED, SAMPLE = HERE / "expected.json", HERE / "sample.txt"
OF_A_SET, BY_COMMAND, BY_MODEL = 50, 60, 60
TOKENS, SEED = 200, 5
# What hangs: seconds of the processor, four times as many for a server with four texts; and by the clock, where a process waits
# without an end. A busy machine may leave a process without the processor for a minute, which says nothing about it.
LONGEST, LONGEST_BY_CLOCK = 20, 900
# What is a multiple of 0.01 is asked of decimal numbers: floats are none. None that is written here has more digits.
decimal.setcontext(decimal.Context(prec=2000))
# Makes texts end early, so that more of them are whole.
SHORT = [['"', 6.0], ['",', 6.0], ['"}', 6.0], ["]", 4.0], ["}", 4.0]]
KINDS = [
    (r"^Unimplemented keys: ", "a keyword that is not there"),
    (r"^Unknown format: ", "a format that is not there"),
    (r"^Only absolute \$ref", "a reference into another document, or by an anchor"),
    (r"^Reference segment|^Unresolvable|not found in", "a reference to what is not there"),
    (r"^circular references", "a reference to itself beside other keywords"),
    (r"are not disjoint", "patterns of names that overlap"),
    (r"[Uu]nsatisfiable|schema is false", "nothing can be valid"),
]
FINDINGS = ("invalid", "no JSON", "names twice", "format", "broken", "hang", "crash")


def schemas(folder):
    """By their names: where they are from, and what they are called there."""
    sets = sorted(path for path in (folder / "jsonschemabench" / "data").iterdir() if path.is_dir())
    if not SAMPLE.exists():
        choice = random.Random(1)
        names = [f"{it.name}/{path.name}" for it in sets for path in choice.sample(sorted(it.glob("*.json")), OF_A_SET)]
        SAMPLE.write_text("\n".join(names) + "\n")
    found = {}
    for name in SAMPLE.read_text().splitlines():
        found[name] = json.loads((folder / "jsonschemabench" / "data" / name).read_text())
    for path in sorted((folder / "JSON-Schema-Test-Suite" / "tests" / "draft2020-12").glob("*.json")):
        for number, group in enumerate(json.loads(path.read_text())):
            found[f"suite/{path.stem}/{number}"] = group["schema"]
    return found


class Server:
    """One of spec-run's, with the model inside the program or with another one."""

    def __init__(self, program, model=None):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [program, "serve", "--port", str(port), "--parallel", "4", "--log-format", "none", *(["-m", model] if model else [])]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.address = f"http://127.0.0.1:{port}"
        for _ in range(100):
            try:
                urllib.request.urlopen(self.address + "/health", timeout=5).read()
                break
            except OSError:
                time.sleep(0.1)

    def seconds(self):
        """Of the processor, that it has had."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def __call__(self, schema, bias=()):
        """What came of it, and the text or what was said."""
        asked = {"prompt": "", "json_schema": schema, "n_predict": TOKENS, "seed": SEED, "logit_bias": list(bias)}
        body = json.dumps(asked)
        request = urllib.request.Request(self.address + "/completion", body.encode())
        before = self.seconds()
        try:
            answer = json.loads(urllib.request.urlopen(request, timeout=LONGEST_BY_CLOCK).read())
            if self.seconds() - before > 4 * LONGEST:
                return "hang", ""
        except urllib.error.HTTPError as error:
            said = json.loads(error.read())["error"]["message"]
            if error.code == 400 and "\n" not in said and "panic" not in said:
                return "refused", said
            return "broken", f"{error.code}: {said}"
        except TimeoutError:
            return "hang", ""
        except OSError as error:
            return ("hang", "") if isinstance(error.__cause__, TimeoutError) or "timed out" in str(error) else ("crash", str(error))
        return "cut" if answer["stop_type"] == "limit" else "written", answer["content"]


def by_command(program, schema, model=None):
    command = [program, "-q", "--no-learn", "--json", "-n", str(TOKENS), "-s", str(SEED)]
    command += ["-m", model, "-p", "An example in JSON: "] if model else []
    try:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(schema, file)
            file.flush()
            command += ["-jf", file.name]
            limit = ["prlimit", f"--cpu={LONGEST}:{LONGEST + 5}"]
            ran = subprocess.run([*limit, *command], capture_output=True, text=True, timeout=LONGEST_BY_CLOCK)
    except subprocess.TimeoutExpired:
        return "hang", ""
    if ran.returncode == -signal.SIGXCPU:
        return "hang", ""
    said = ran.stderr.strip()
    if ran.returncode == 0:
        answer = json.loads(ran.stdout)
        return ("written" if answer["stop"] == "end_of_text" else "cut"), answer["text"]
    if ran.returncode == 1 and "\n" not in said and "panic" not in said:
        return ("refused", said) if not ran.stdout.strip() else ("broken", said)
    return "crash", f"exit code {ran.returncode}: {said}"


def number(text):
    """Decimal, but where the exponent has more digits than such a number may have."""
    try:
        return decimal.Decimal(text)
    except decimal.InvalidOperation:
        return float(text)


def is_whole(text):
    """Whether a text that was cut is one value all the same. More digits might have come behind a number."""
    try:
        return not isinstance(json.loads(text), (int, float))
    except ValueError:
        return False


def judged(schema, what, text):
    """What it is, and what is said of it."""
    if what == "cut" and is_whole(text):
        what = "written"
    if what != "written":
        return what, text
    twice = []

    def pairs(pairs):
        if len(dict(pairs)) < len(pairs):
            twice.append(pairs)
        return dict(pairs)

    try:
        value = json.loads(text, object_pairs_hook=pairs, parse_float=number)
    except ValueError as error:
        return "no JSON", str(error)
    if twice:
        return "names twice", ""
    schema = json.loads(json.dumps(schema), parse_float=number)
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        error = next(kind(schema, registry=REGISTRY).iter_errors(value), None)
        if error:
            return "invalid", f"{error.validator}: {error.message[:200]}"
        checker = kind(schema, registry=REGISTRY, format_checker=kind.FORMAT_CHECKER)
        error = next((it for it in checker.iter_errors(value) if it.validator == "format"), None)
        return ("format", error.message[:200]) if error else ("valid", "")
    except (referencing.exceptions.Unresolvable, jsonschema.exceptions.UnknownType, re.error, RecursionError, TypeError, AttributeError) as error:
        return "not judged", type(error).__name__


def group(said):
    """A refusal without what is particular to its schema."""
    said = re.sub(r"^(spec-run: )?(`json_schema`: )?JSON schema( at ((?!: ).)*)?: ", "", said)
    for pattern, name in KINDS:
        if re.search(pattern, said):
            return name
    said = re.sub(r'"[^"]*"|`[^`]*`|\'[^\']*\'', "…", said)
    return re.sub(r"\d[\d.]*", "N", said)[:110]


def random_weights(program, folder):
    """A model of a few layers that has learned nothing."""
    path = str(folder / "random.gguf")
    shape = ["--layers", "2", "--dim", "128", "--ffn", "256", "--heads", "4", "-q", "f32", "-s", "1"]
    subprocess.run([program, "synth", "--force", "-o", path, *shape], check=True, capture_output=True)
    return path


def by_server(program, found, model=None):
    """The answers of a server, and those of what was cut when it is asked for something short."""
    server = Server(program, model)
    try:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            answers = dict(zip(found, pool.map(server, found.values())))
            goes = [name for name in found if answers[name][0] == "cut"]
            shorter = dict(zip(goes, pool.map(lambda name: server(found[name], SHORT), goes)))
    finally:
        server.process.kill()
        server.process.wait()
    return answers, shorter


def everything(program, found, folder):
    answers, shorter = by_server(program, found)
    answers |= {f"{name} (short)": it for name, it in shorter.items()}
    others, shorter = by_server(program, found, random_weights(program, folder))
    # What is refused is refused whatever the model.
    differ = [name for name in found if (others[name][0] == "refused") != (answers[name][0] == "refused")]
    assert not differ, f"refused with one model only: {differ}"
    answers |= {f"{name} (random)": it for name, it in others.items() if it[0] != "refused"}
    answers |= {f"{name} (random, short)": it for name, it in shorter.items()}
    for name in list(found)[:: max(1, len(found) // BY_COMMAND)][:BY_COMMAND]:
        answers[f"{name} (command)"] = by_command(program, found[name])
    return answers


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--model")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--keep", type=pathlib.Path, help="a file for all texts")
    arguments = parser.parse_args()
    found = schemas(arguments.folder)
    if arguments.model:
        names = list(found)[:: len(found) // BY_MODEL][:BY_MODEL]
        answers = {f"{name} (model)": by_command(arguments.program, found[name], arguments.model) for name in names}
    else:
        answers = everything(arguments.program, found, arguments.folder)
    outcomes = {}
    for name, answer in answers.items():
        outcomes[name] = judged(found[re.sub(r" \([\w, ]+\)$", "", name)], *answer)
    if arguments.keep:
        kept = {name: [*outcomes[name], answers[name][1]] for name in answers}
        arguments.keep.write_text(json.dumps(kept, indent=1))
    report(outcomes)
    wrong = compare(outcomes, bool(arguments.model), arguments.write)
    print("\n".join(wrong))
    print(f"{len(outcomes)} texts and refusals, {len(wrong)} not as expected")
    sys.exit(bool(wrong))


def report(outcomes):
    def part(name):
        if name.endswith(")"):
            return name[name.rindex("(") :]
        return name.split("/")[0]

    table = collections.defaultdict(collections.Counter)
    for name, (what, _) in outcomes.items():
        table[part(name)][what] += 1
        table["all"][what] += 1
    columns = [what for what in ("valid", "cut", "refused", "not judged", *FINDINGS) if table["all"][what]]
    for row in [[""] + columns] + [[name] + [str(table[name][what]) for what in columns] for name in table]:
        print(f"{row[0]:18}" + "".join(f"{cell:>12}" for cell in row[1:]))
    reasons = collections.Counter(group(said) for what, said in outcomes.values() if what == "refused")
    for reason, number in reasons.most_common():
        print(f"{number:5} {reason}")


def compare(outcomes, by_model, write):
    expected = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {"refused": {}, "findings": {}}
    mine = lambda name: name.endswith("(model)") == by_model  # noqa: E731
    refused = {name: group(said) for name, (what, said) in outcomes.items() if what == "refused"}
    findings = {name: f"{what}: {said}" for name, (what, said) in outcomes.items() if what in FINDINGS}
    if write:
        others = {key: {name: it for name, it in expected[key].items() if not mine(name)} for key in expected}
        known = expected["findings"]
        marked = {name: known.get(name, {"found": said, "why": "?"}) | {"found": said} for name, said in findings.items()}
        expected = {"refused": others["refused"] | refused, "findings": others["findings"] | marked}
        EXPECTED.write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")
    wrong = []
    for name, reason in refused.items():
        if expected["refused"].get(name) != reason:
            wrong.append(f"refused: {name}: {reason}")
    for name, said in findings.items():
        known = expected["findings"].get(name)
        if known is None or known["found"] != said or known["why"] == "?":
            wrong.append(f"found: {name}: {said}")
    now = refused.keys() | findings.keys()
    gone = [name for key in expected for name in expected[key] if mine(name) and name not in now]
    return wrong + [f"gone: {name}" for name in gone]


if __name__ == "__main__":
    main()
