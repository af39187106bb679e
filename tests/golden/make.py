#!/usr/bin/env python3
"""Writes types.json, dequantize.bin and quantize.bin: expected values for tests/files/quant_golden.rs.

    pip install gguf==0.19.0
    python3 tests/golden/make.py ../shared/fixtures/models

The numbers come from the reference code of the `gguf` package; blocks are random bytes with chosen scales, and rows
of real files that llama-quantize made. Both .bin files are runs of records, little-endian:

    label: u32 length, UTF-8    type: u32    encoded: u32 length, bytes    values: u32 count, f32s
"""

import json
import struct
import sys
from pathlib import Path

import gguf
import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import NVFP4, dequantize, quantize

HERE = Path(__file__).parent
READABLE = [T.F32, T.F16, T.BF16, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.Q2_K, T.Q3_K, T.Q4_K, T.Q5_K, T.Q6_K,
            T.IQ4_NL, T.IQ4_XS, T.MXFP4]
LOW_BITS = [T.IQ1_S, T.IQ1_M, T.IQ2_XXS, T.IQ2_XS, T.IQ2_S, T.IQ3_XXS, T.IQ3_S, T.TQ1_0, T.TQ2_0]
# The package has no code for these, by their number: bits and bytes of a block, and what a number stands for.
FEW_BITS = {41: ("Q1_0", 1, 18, [-1, 1]), 42: ("Q2_0", 2, 18, [-1, 0, 1, 2])}

# Byte offsets of the half-precision scales in a block.
SCALES = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q2_K: [80, 82], T.Q3_K: [108],
          T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.IQ4_NL: [0], T.IQ4_XS: [0],
          T.IQ1_S: [0], T.IQ1_M: [], T.IQ2_XXS: [0], T.IQ2_XS: [0], T.IQ2_S: [0], T.IQ3_XXS: [0], T.IQ3_S: [0],
          T.TQ1_0: [52], T.TQ2_0: [64]}

# 0, -0, the smallest and largest subnormals, the smallest normal, some ordinary ones, the largest finite.
EDGE_HALVES = [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x83FF, 0x0400, 0x8400, 0x2E66, 0xAE66, 0x3C00, 0xBC00,
               0x7BFF, 0xFBFF]


class Records:
    def __init__(self):
        self.bytes = bytearray()

    def add(self, label, ty, encoded, values):
        label, encoded = label.encode(), encoded.tobytes()
        self.bytes += struct.pack("<I", len(label)) + label + struct.pack("<II", ty, len(encoded)) + encoded
        self.bytes += struct.pack("<I", values.size) + values.astype("<f4").tobytes()


def blocks_with_chosen_scales(ty, rng):
    """Random blocks; the scales of each are one of the edge values, all of them used where blocks are small."""
    length, size = GGML_QUANT_SIZES[ty]
    if ty == T.MXFP4:
        exponents = [0, 1, 2, 3, 126, 127, 128, 129, 253, 254, 255]
        blocks = rng.integers(0, 256, (len(exponents), size), dtype=np.uint8)
        blocks[:, 0] = exponents
        return blocks
    edges = np.array(EDGE_HALVES, dtype="<u2")
    if length == 256:
        edges = edges[[0, 2, 5, 8, 9, 12]]
    blocks = rng.integers(0, 256, (len(edges), size), dtype=np.uint8)
    if ty == T.IQ1_M:
        # A quarter of its half in the top of each of four words.
        words = blocks[:, 48:].copy().view("<u2") & 0x0FFF
        words |= np.stack([(edges >> (4 * i) & 15) << 12 for i in range(4)], axis=1)
        blocks[:, 48:] = words.astype("<u2").view(np.uint8)
    for turn, offset in enumerate(SCALES[ty]):
        blocks[:, offset:offset + 2] = np.roll(edges, turn).view(np.uint8).reshape(-1, 2)
    return blocks


def few_bits(rng, bits, size, levels):
    """A half and whole numbers, by their definition: the first in the lowest bits of a byte, each a multiple of d."""
    d = np.array(EDGE_HALVES, dtype="<u2")
    blocks = rng.integers(0, 256, (len(d), size), dtype=np.uint8)
    blocks[:, :2] = d.view(np.uint8).reshape(-1, 2)
    q = blocks[:, 2:, None] >> np.arange(0, 8, bits, dtype=np.uint8) & ((1 << bits) - 1)
    return blocks, np.array(levels, np.float32)[q.reshape(len(d), -1)] * d.view(np.float16).astype(np.float32)[:, None]


def four_bit_floats(rng):
    """NVFP4: random blocks whose scales are all codes of a byte."""
    blocks = rng.integers(0, 256, (64, 36), dtype=np.uint8)
    blocks[:, :4] = np.arange(256, dtype=np.uint8).reshape(64, 4)
    return blocks


def to_four_bit_floats(x):
    """NVFP4 has no quantizer in the package, but its scales and levels are there: the level nearest to each number, of two
    equally near ones the first."""
    x = x.astype(np.float32).reshape(-1, 4, 16)
    codes = NVFP4.fp32_to_ue4m3(np.abs(x).max(axis=-1) / np.float32(6)).astype(np.uint8)
    levels = np.array(NVFP4.kvalues, np.float32) * NVFP4.ue4m3_to_fp32(codes).astype(np.float32)[..., None]
    q = np.abs(levels[..., None, :] - x[..., None]).argmin(axis=-1).astype(np.uint8)
    return np.concatenate([codes, (q[..., :8] | q[..., 8:] << 4).reshape(-1, 32)], axis=1)


def sixty_four(rng):
    """Blocks of 64, and scales of all sizes with halfway ones among them."""
    rows = [(label, row) for label, row in rows_to_quantize(rng)]
    for (first, a), (second, b) in zip(rows, rows[1:]):
        yield f"{first}; {second}", np.concatenate([a, b])
    for exponent in range(-12, 11):
        x = rng.uniform(-1, 1, 64).astype(np.float32)
        # Sixteenths in front of the mantissa's three bits: each second one is halfway between two codes.
        x.reshape(4, 16)[:, 5] = 6 * (16 + rng.integers(0, 16, 4)) / 16
        yield f"scales around 2^{exponent}", (x * 2.0**exponent).astype(np.float32)


def float_patterns(ty, rng):
    """Bit patterns of the unquantized types. Signalling NaNs stay out of F16: converting one may make it quiet."""
    if ty == T.F32:
        return rng.integers(0, 2**32, 64, dtype=np.uint32).astype("<u4").view(np.uint8)
    bits = rng.integers(0, 2**16, 512, dtype=np.uint16)
    if ty == T.F16:
        bits[((bits & 0x7C00) == 0x7C00) & ((bits & 0x3FF) != 0)] |= 0x200
        edges = EDGE_HALVES + [0x7C00, 0xFC00, 0x7E00, 0xFE00]
    else:
        edges = [0x0000, 0x8000, 0x0001, 0x8001, 0x007F, 0x0080, 0x3F80, 0xBF80, 0x7F7F, 0xFF7F, 0x7F80, 0xFF80,
                 0x7F81, 0x7FC0, 0xFFFF]
    return np.concatenate([np.array(edges, np.uint16), bits]).astype("<u2").view(np.uint8)


def rows_to_quantize(rng):
    """Blocks of 32 finite values, each with its name."""
    normal = lambda scale: (rng.standard_normal(32) * scale).astype(np.float32)
    for exponent in (-6, -4, -2, 0, 3):
        yield f"normal 1e{exponent}", normal(10.0**exponent)
    yield "scale becomes a subnormal half", normal(1e-5)
    yield "scale becomes zero", normal(1e-9)
    yield "scale overflows", normal(1e8)
    yield "zeros", np.zeros(32, np.float32)
    yield "constant", np.full(32, 0.7, np.float32)
    yield "constant, negative", np.full(32, -0.7, np.float32)
    yield "all positive", np.abs(normal(1)) + 2
    yield "all negative", -np.abs(normal(1)) - 2
    tie = normal(1)
    tie[[5, 20]] = [9, -9]
    yield "two values equally far from zero, first positive", tie
    yield "two values equally far from zero, first negative", -tie
    one = np.zeros(32, np.float32)
    one[17] = -3.5
    yield "one value", one
    # Values halfway between two levels. With a scale of 1 they are exact and meet the rounding rule; with 0.1 the
    # last bit of every operation decides, so that x/d in place of x*(1/d) would show.
    for scale in (1, 0.1, 0.7):
        for name, top in (("8 bits", 127), ("4 bits", -8), ("5 bits", -16)):
            halves = rng.integers(-2 * abs(top), 2 * abs(top), 32) / 2
            halves[3] = top
            yield f"halves times {scale}, {name}", (halves * scale).astype(np.float32)
        for name, top in (("4 bits", 15), ("5 bits", 31)):
            halves = rng.integers(0, 2 * top, 32) / 2
            halves[[0, 31]] = [0, top]
            yield f"halves times {scale} above a minimum, {name}", (halves * scale - 2).astype(np.float32)


def values_to_round(ty, rng):
    """Around the ties of a 16-bit float, its limits, and beyond them."""
    if ty == T.F16:
        halves = np.concatenate([np.array(EDGE_HALVES, np.uint16), rng.integers(0, 0x7BFF, 200, dtype=np.uint16)])
        below = halves.view(np.float16).astype(np.float64)
        above = np.where((halves & 0x7FFF) == 0x7BFF, np.sign(below) * 65536.0,
                         (halves + 1).astype(np.uint16).view(np.float16).astype(np.float64))
        ties = ((below + above) / 2).astype(np.float32)
    else:
        ties = (rng.integers(0, 0xFF7F, 200, dtype=np.uint32) << 16 | 0x8000).astype(np.uint32).view(np.float32)
        ties = ties[np.isfinite(ties)]
    with np.errstate(over="ignore"):
        near = [ties, np.nextafter(ties, np.float32(np.inf)), np.nextafter(ties, np.float32(-np.inf))]
    special = np.array([0.0, -0.0, 1e-45, -1e-45, 3.4028235e38, -3.4028235e38, np.inf, -np.inf, np.nan], np.float32)
    return np.concatenate([*near, special])


def tensor(path, name):
    return next(t for t in gguf.GGUFReader(path).tensors if t.name == name)


def main(models):
    rng = np.random.default_rng(20261121)
    np.seterr(all="ignore")  # overflow to infinity and 1/0 are among the cases

    listing = [{"id": int(t), "name": t.name, "block_len": GGML_QUANT_SIZES[t][0],
                "block_bytes": GGML_QUANT_SIZES[t][1]} for t in T]
    text = "[\n" + ",\n".join("  " + json.dumps(entry) for entry in listing) + "\n]\n"
    (HERE / "types.json").write_text(text)

    decoded = Records()
    for ty in READABLE:
        encoded = blocks_with_chosen_scales(ty, rng) if ty in SCALES or ty == T.MXFP4 else float_patterns(ty, rng)
        decoded.add(f"{ty.name} edge cases", ty, encoded, dequantize(encoded, ty))
    of_low_bits = np.random.default_rng(20261123)
    for ty in LOW_BITS:
        encoded = blocks_with_chosen_scales(ty, of_low_bits)
        decoded.add(f"{ty.name} edge cases", ty, encoded, dequantize(encoded, ty))
    for number, (name, *form) in FEW_BITS.items():
        decoded.add(f"{name} edge cases", number, *few_bits(of_low_bits, *form))
    encoded = four_bit_floats(np.random.default_rng(20261125))
    decoded.add("NVFP4 edge cases", T.NVFP4, encoded, dequantize(encoded, T.NVFP4))
    name, row = "blk.7.ffn_down.weight", 100
    for path in sorted(models.glob("stories13m-*.gguf")):
        t = tensor(path, name)
        decoded.add(f"{path.name} {name} row {row}", t.tensor_type, t.data[row], dequantize(t.data[row], t.tensor_type))
    (HERE / "dequantize.bin").write_bytes(decoded.bytes)

    written = Records()
    for ty in (T.Q8_0, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1):
        for label, values in rows_to_quantize(rng):
            written.add(f"{ty.name} {label}", ty, quantize(values, ty), values)
    for label, values in rows_to_quantize(np.random.default_rng(20261124)):
        # Scales are whole powers of two with no room for the largest and smallest exponents.
        if not label.startswith("scale"):
            written.add(f"MXFP4 {label}", T.MXFP4, quantize(values, T.MXFP4), values)
    for label, values in sixty_four(np.random.default_rng(20261126)):
        written.add(f"NVFP4 {label}", T.NVFP4, to_four_bit_floats(values), values)
    for ty in (T.F16, T.BF16):
        values = values_to_round(ty, rng)
        written.add(f"{ty.name} rounding", ty, quantize(values, ty), values)
    values = rng.standard_normal(64).astype(np.float32)
    written.add("F32", T.F32, values.astype("<f4"), values)
    # What llama-quantize itself made of the same row.
    source = tensor(models / "stories13m-f16.gguf", name).data[row].astype(np.float32)
    for kind in ("q8_0", "q4_0"):
        path = models / f"stories13m-{kind}.gguf"
        t = tensor(path, name)
        written.add(f"{path.name} {name} row {row}", t.tensor_type, t.data[row], source)
    (HERE / "quantize.bin").write_bytes(written.bytes)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
