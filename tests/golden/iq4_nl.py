#!/usr/bin/env python3
"""Writes iq4_nl.bin: blocks of IQ4_NL as llama.cpp's reference quantizer makes them, which it stores keys and values by.

    python3 tests/golden/iq4_nl.py FOLDER/libggml-base.so

The rows are those of make.py, whose `gguf` package cannot write the format. Records: 32 f32s, then the block's 18 bytes.
"""

import ctypes
import sys
from pathlib import Path

import numpy as np

from make import rows_to_quantize

quantize = ctypes.CDLL(sys.argv[1]).quantize_row_iq4_nl_ref
quantize.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
rng = np.random.default_rng(20261123)
records = bytearray()
rows = [row for label, row in rows_to_quantize(rng) if label != "zeros"]  # whose nibbles are not defined
rows += [(rng.standard_normal(32) * 3).astype(np.float32) for _ in range(200)]
for row in rows:
    block = np.zeros(18, np.uint8)
    quantize(row.ctypes.data, block.ctypes.data, 32)
    records += row.astype("<f4").tobytes() + block.tobytes()
Path(__file__).with_name("iq4_nl.bin").write_bytes(records)
