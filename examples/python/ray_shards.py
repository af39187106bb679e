#!/usr/bin/env python3
"""Scores a text in shards, by Ray Data, on as many machines as the cluster has:

    python3 ray_shards.py SHARDS FLAGS...        the flags are those of `spec-run perplexity`

Each machine needs spec-run on its PATH, and the model and the text under the same names.
"""

import subprocess
import sys

import ray


def score(batch, flags):
    command = ["spec-run", "perplexity", "-q", *flags, "--shard"]
    run = lambda part: subprocess.run([*command, part], check=True, stdout=subprocess.PIPE, text=True).stdout
    return {"lines": [run(part) for part in batch["part"]]}


shards, *flags = sys.argv[1:]
parts = ray.data.from_items([{"part": f"{k + 1}/{shards}"} for k in range(int(shards))])
scored = parts.repartition(int(shards)).map_batches(score, batch_size=1, fn_kwargs={"flags": flags})
with open("shards.jsonl", "w") as file:
    file.writelines(row["lines"] for row in scored.iter_rows())
subprocess.run(["spec-run", "merge", "shards.jsonl"], check=True)
