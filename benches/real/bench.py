"""What drafts are worth on models that people trained: each configuration beside plain decoding, prompt by prompt.

    benches/real/bench.py PROGRAM PROMPTS.json MODEL.. [--temp 0,0.8] [-n 160] [--prompts N] [--config "NAME=FLAGS"]..
                          [--rounds N] [--json FILE] [--peer LLAMA-SERVER]

Runs alternate: plain, each configuration, plain again; a ratio is that of a run to the mean of the two plain ones around it.
With --rounds each prompt runs so often, and its ratio is the median: a text of a second varies by a tenth.
Texts must be the same to the token. Every run is a process of its own; what runs learn is kept in a folder that is empty at
first, as on a user's machine.

With --peer, llama-server runs every prompt between ours: plainly, and with each of its ways to draft that need no other model. What is printed
is how its ways compare with its own plain decoding, and our configurations with each of its ways, by tokens a second."""

import argparse
import collections
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile

import peer

PLAIN = ["--draft", "none"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("prompts")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--temp", default="0,0.8")
    parser.add_argument("-n", type=int, default=160)
    parser.add_argument("--prompts", dest="most", type=int)
    parser.add_argument("--config", action="append", default=[], metavar="NAME=FLAGS")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--peer", metavar="LLAMA-SERVER")
    args = parser.parse_args()
    prompts = json.load(open(args.prompts))[: args.most]
    configs = [config.partition("=")[::2] for config in args.config] or [("default", "")]
    results = []
    for model in args.models:
        for temp in args.temp.split(","):
            with tempfile.TemporaryDirectory() as learned:
                results += compare(args, model, temp, prompts, configs, learned)
    if args.json:
        json.dump(results, open(args.json, "w"), indent=1)


def is_chat(model):
    return "gemma-3-270m" not in os.path.basename(model)


def compare(args, model, temp, prompts, configs, learned):
    rounds = {name: [] for name, _ in configs}
    peers = args.peer and peer.Peers(args.peer, model, os.cpu_count(), is_chat(model))
    theirs = collections.defaultdict(list)
    before = run(args, model, temp, prompts[0], PLAIN, learned)
    for prompt in prompts:
        if before["prompt"] != prompt:
            before = run(args, model, temp, prompt, PLAIN, learned)
        runs = {name: [] for name, _ in configs}
        for name, flags in configs * args.rounds:
            drafted = run(args, model, temp, prompt, shlex.split(flags), learned)
            if drafted["tokens"] != before["tokens"]:
                sys.exit(f"{model}, {temp}, {name}: another text than plain decoding's for {prompt!r}")
            after = run(args, model, temp, prompt, PLAIN, learned)
            drafted["ratio"] = drafted["speed"] / ((before["speed"] + after["speed"]) / 2)
            runs[name].append(drafted)
            before = after
        for name, of_prompt in runs.items():
            rounds[name].append(sorted(of_prompt, key=lambda run: run["ratio"])[len(of_prompt) // 2])
        if peers:
            for way in peer.WAYS:
                theirs[way].append(peers.run(way, prompt, args.n, temp, args.seed))
    if peers:
        peers.stop()
    results = [summary(model, temp, name, runs) for name, runs in rounds.items()]
    for way, speeds in theirs.items():
        results.append(beside(model, temp, way, speeds, theirs["none"], rounds))
    return results


def beside(model, temp, way, speeds, plain, rounds):
    """One of the peer's ways, beside its own plain decoding and ours."""
    own = [speed / plain for speed, plain in zip(speeds, plain)]
    ours = {name: [run["speed"] / speed for run, speed in zip(runs, speeds)] for name, runs in rounds.items()}
    line = f"{os.path.basename(model)[:24]:24} temp {temp:4} llama-server {way:14} {statistics.median(own):.2f} times its plain"
    for name, ratios in ours.items():
        ahead = sum(ratio > 1 for ratio in ratios)
        line += f"; {name} {statistics.median(ratios):.2f} times it ({min(ratios):.2f} to {max(ratios):.2f}), ahead on {ahead} of {len(ratios)}"
    print(line, flush=True)
    return {"model": os.path.basename(model), "temp": float(temp), "peer": way, "of_its_plain": own, "ours": ours, "tok_s": speeds}


def run(args, model, temp, prompt, flags, learned):
    chat = ["--chat"] if is_chat(model) else []
    command = [args.program, "-m", model, *chat, "-p", prompt, "-n", str(args.n), "--temp", temp, "--seed", str(args.seed)]
    command += ["--json", "--learn-dir", learned, *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{shlex.join(command)}: {done.stderr}")
    told = json.loads(done.stdout)
    return {"prompt": prompt, "tokens": told["tokens"], "speed": speed(told), "spec": told["spec"]}


def speed(told):
    return told["tok_s"]


def summary(model, temp, name, runs):
    ratios = [run["ratio"] for run in runs]
    positions = collections.Counter()
    accepted = collections.Counter()
    sources = collections.Counter()
    tokens = passes = 0
    shares = collections.Counter()
    for run in runs:
        spec = run["spec"]
        for place, position in enumerate(spec["by_position"]):
            positions[place] += position["drafted"]
            accepted[place] += position["accepted"]
        for source in spec["sources"]:
            sources[source["name"]] += source["accepted"] + source["others_accepted"]
        shares.update(spec["shares"] or {})
        rounds = sum(source["rounds"] for source in spec["sources"])
        passes += rounds + spec["plain_steps"]
        accepted_here = sum(source["accepted"] + source["others_accepted"] for source in spec["sources"])
        tokens += accepted_here + rounds + spec["plain_steps"]
    result = {
        "model": os.path.basename(model),
        "temp": float(temp),
        "config": name,
        "median": statistics.median(ratios),
        "min": min(ratios),
        "max": max(ratios),
        "tokens_a_pass": tokens / max(passes, 1),
        "by_position": [round(accepted[i] / positions[i], 3) for i in range(min(6, len(positions)))],
        "sources": {name: tokens for name, tokens in sources.most_common() if tokens},
        "shares": {what: round(share / len(runs), 3) for what, share in shares.items()},
        "ratios": [round(ratio, 3) for ratio in ratios],
    }
    print(
        f"{result['model'][:24]:24} temp {temp:4} {name:14} median {result['median']:.2f} ({result['min']:.2f} to {result['max']:.2f})"
        f"  {result['tokens_a_pass']:.2f} tokens a pass; accepted by position {result['by_position']}; {result['sources']};"
        f" time {result['shares']}",
        flush=True,
    )
    return result


main()
