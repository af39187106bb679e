"""Copies of a model with its Q4_0 matrices in other formats, filled with random blocks: as fast as real ones.

    python benches/peer/random_blocks.py 1b-q4_0.gguf FOLDER q3_k iq3_xxs tq2_0

Every format of weights, at the cost of no quantization. Needs numpy and the gguf package.
"""

import os
import struct
import sys

import numpy
from gguf import GGUFReader

Q4_0 = 2

# number, weights and bytes of a block, where its halves stand
FORMATS = {
    "q4_0": (2, 32, 18, [0]),
    "q4_1": (3, 32, 20, [0, 2]),
    "q5_0": (6, 32, 22, [0]),
    "q5_1": (7, 32, 24, [0, 2]),
    "q8_0": (8, 32, 34, [0]),
    "q2_k": (10, 256, 84, [80, 82]),
    "q3_k": (11, 256, 110, [108]),
    "q4_k": (12, 256, 144, [0, 2]),
    "q5_k": (13, 256, 176, [0, 2]),
    "q6_k": (14, 256, 210, [208]),
    "iq2_xxs": (16, 256, 66, [0]),
    "iq2_xs": (17, 256, 74, [0]),
    "iq3_xxs": (18, 256, 98, [0]),
    "iq1_s": (19, 256, 50, [0]),
    "iq4_nl": (20, 32, 18, [0]),
    "iq3_s": (21, 256, 110, [0]),
    "iq2_s": (22, 256, 82, [0]),
    "iq4_xs": (23, 256, 136, [0]),
    "iq1_m": (29, 256, 56, []),
    "mxfp4": (39, 32, 17, []),
    "nvfp4": (40, 64, 36, []),
    "tq1_0": (34, 256, 54, [52]),
    "tq2_0": (35, 256, 66, [64]),
    "q1_0": (41, 128, 18, [0]),
    "q2_0": (42, 64, 18, [0]),
}


def random_blocks(random, name, count):
    _, _, size, halves = FORMATS[name]
    some = random.integers(0, 256, (min(count, 65536), size), dtype=numpy.uint8)
    for at in halves:
        some[:, at + 1] = 0x0C
    if name == "iq1_m":
        # Its half lies in the upper four bits of four words.
        some[:, 49:56:2] &= 0x0F
        some[:, 53] |= 0xC0
    if name == "mxfp4":
        some[:, 0] = 118
    if name == "nvfp4":
        some[:, :4] = 0x18
    return numpy.tile(some, (-(-count // len(some)), 1))[:count].tobytes()


def copy(model, name, path):
    number, weights, _, _ = FORMATS[name]
    random = numpy.random.default_rng(1)
    infos, data, end = b"", [], 0
    for tensor in model.tensors:
        shape = [int(n) for n in tensor.shape]
        kind, content = int(tensor.tensor_type), tensor.data.tobytes()
        if kind == Q4_0:
            if shape[0] % weights:
                sys.exit(f"{tensor.name} has rows of {shape[0]}: no whole blocks of {weights}")
            kind, content = number, random_blocks(random, name, int(numpy.prod(shape)) // weights)
        label = tensor.name.encode()
        infos += struct.pack("<Q", len(label)) + label + struct.pack("<I", len(shape))
        infos += struct.pack(f"<{len(shape)}QIQ", *shape, kind, end)
        content += bytes(-len(content) % 32)
        data.append(content)
        end += len(content)
    # What stands before the list of tensors stays as it is.
    head = model.data[: min(int(tensor.field.offset) for tensor in model.tensors)].tobytes() + infos
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % 32))
        file.writelines(data)


def main():
    source, folder, *names = sys.argv[1:]
    model = GGUFReader(source)
    for name in names:
        copy(model, name, os.path.join(folder, f"1b-{name}.gguf"))


if __name__ == "__main__":
    main()
