"""What docs/replicas.md prints: its configurations and its client."""

import re
from pathlib import Path

TEXT = (Path(__file__).resolve().parents[2] / "docs/replicas.md").read_text()
MARK = "<!-- tests/replicas runs this"


def block(language):
    """The block in this language that the page says is tested."""
    found = re.findall(rf"^{MARK}[^\n]*\n```{language}\n(.*?)^```$", TEXT, re.M | re.S)
    assert len(found) == 1, f"docs/replicas.md has {len(found)} tested blocks of {language}, not one"
    return found[0]


def with_ports(text, ports):
    """With other replicas than at 8081, 8082 and 8083."""
    for printed, port in zip((8081, 8082, 8083), ports, strict=True):
        assert text.count(f"127.0.0.1:{printed}") == 1, f"127.0.0.1:{printed} is not there once"
        text = text.replace(f"127.0.0.1:{printed}", f"127.0.0.1:{port}")
    return text


def nginx(port, replicas):
    """Its configuration for this machine alone."""
    text = with_ports(block("nginx"), replicas)
    assert text.count("listen 8080;") == 1
    return text.replace("listen 8080;", f"listen 127.0.0.1:{port};")


def litellm(replicas):
    return with_ports(block("yaml"), replicas)


def client():
    """The function that finishes broken answers."""
    names = {}
    exec(compile(block("python"), "docs/replicas.md", "exec"), names)
    return names["answer"]
