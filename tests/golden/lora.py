#!/usr/bin/env python3
"""Adapters and control vectors for the small models of the fixtures, and llama.cpp's log-probabilities with them: lora.json.

    lora.py ARCHS REF

ARCHS is the fixtures' folder of models, REF is lora_ref.cpp beside this file, built against llama.cpp (its first lines say how it
is called). The Python package `gguf` writes the adapters. Their numbers come from a formula that the tests have too, so that the
adapters need not be kept. Which tensors have some follows from llama.cpp: those with which its numbers change.
"""
import json, subprocess, sys, tempfile
from pathlib import Path

import gguf
import numpy as np

MASK = (1 << 64) - 1
SHOWN = 64


def numbers(name: str, count: int) -> np.ndarray:
    """Multiples of 1/16 from -1 up to 1: the top five bits of splitmix64, counted on from the FNV-1a of the name."""
    state = 0xCBF29CE484222325
    for byte in name.encode():
        state = ((state ^ byte) * 0x100000001B3) & MASK
    with np.errstate(over="ignore"):
        z = np.uint64(state) + (np.arange(count, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return ((z >> np.uint64(59)).astype(np.float32) - 16) / 16


def adapter(path, arch, tensors, rank, alpha, dtype):
    """`tensors`: names and shapes, the fastest side first."""
    writer = gguf.GGUFWriter(path, arch)
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", "lora")
    if alpha:
        writer.add_float32("adapter.lora.alpha", alpha)
    for name, shape in tensors:
        cols, rows, *more = shape
        if name == "token_embd.weight":
            sides = {"a": (rank, rows), "b": (rank, cols)}
        else:
            sides = {"a": (cols, rank, *more), "b": (rank, rows, *more)}
        for which, by in (("a", 0.25), ("b", 0.125)):
            full = f"{name}.lora_{which}"
            data = numbers(f"{full} of {rank}", int(np.prod(sides[which]))) * np.float32(by)
            writer.add_tensor(full, data.reshape(sides[which][::-1]).astype(dtype))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main(archs, ref):
    out = {}
    work = Path(tempfile.mkdtemp())
    for file in sorted(Path(archs).glob("*.gguf")):
        reader = gguf.GGUFReader(file)
        arch = reader.fields["general.architecture"].contents()
        prompt = ",".join(map(str, json.loads(file.with_suffix(".json").read_text())["prompt"]))
        shapes = {t.name: tuple(int(n) for n in t.shape) for t in reader.tensors}
        blocks = int(reader.fields[f"{arch}.block_count"].contents())
        width = int(reader.fields[f"{arch}.embedding_length"].contents())

        def run(*more):
            done = subprocess.run([ref, file, prompt, *map(str, more)], capture_output=True, text=True)
            return json.loads(done.stdout) if done.returncode == 0 else None

        plain = run()
        one, two, vector = work / "one.gguf", work / "two.gguf", work / "vector.f32"
        used = []
        for name, shape in shapes.items():
            if len(shape) not in (2, 3) or "conv1d" in name:
                continue
            # By such a scale llama.cpp multiplies what the matrix gives, and not what an adapter adds to it.
            if name.removesuffix("weight") + "scale" in shapes:
                continue
            adapter(one, arch, [(name, shape)], 4, 8.0, np.float16)
            changed = run("--lora", one, 1)
            if changed is not None and changed != plain:
                used.append((name, shape))
        adapter(one, arch, used, 4, 8.0, np.float16)
        adapter(two, arch, used[::2], 3, None, np.float32)
        adapted = run("--lora", one, 0.75, "--lora", two, -0.5)
        vectors = np.stack([numbers(f"direction.{layer}", width) * np.float32(0.5) for layer in range(1, blocks)])
        vectors.tofile(vector)
        steered = run("--vector", 1, blocks - 2, width, vector)
        far = lambda other: round(float(np.abs(np.array(plain) - np.array(other)).mean()), 3)
        out[file.stem] = {
            "tensors": [name for name, _ in used],
            "adapted": [round(x, 4) for x in adapted[:SHOWN]],
            "steered": [round(x, 4) for x in steered[:SHOWN]],
        }
        print(file.stem, len(used), "adapted by", far(adapted), "steered by", far(steered), flush=True)
        print("   without:", sorted({n.split(".", 2)[-1] for n in shapes if len(shapes[n]) > 1} - {n.split(".", 2)[-1] for n, _ in used}), flush=True)
    lines = [f'"{name}": {json.dumps(value)}' for name, value in out.items()]
    Path(__file__).with_suffix(".json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


main(*sys.argv[1:])
