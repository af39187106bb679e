#!/usr/bin/env python3
"""Writes the model of tests/engine/nvfp4.rs for llama.cpp to read: that test has the perplexity that llama.cpp printed.

    pip install gguf==0.19.0
    python3 tests/golden/nvfp4.py ../shared/fixtures/models/stories13m-f16.gguf out.gguf
    llama-perplexity -m out.gguf -f ../shared/fixtures/text/stories-val.txt -c 256 -ctk f32 -ctv f32

The layers' matrices in NVFP4, each of numbers that a factor beside it makes small again.
"""

import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T

from make import to_four_bit_floats


def main(source, out):
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(out, "llama")
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        kind = field.types[0]
        writer.add_key_value(key, field.contents(), kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    n = 0
    for tensor in reader.tensors:
        is_matrix = len(tensor.shape) > 1 and tensor.name.startswith("blk.")
        if not is_matrix:
            writer.add_tensor(tensor.name, tensor.data)
            continue
        factor = np.float32((1 + n % 5) / 64)
        n += 1
        numbers = tensor.data.astype(np.float32) / factor
        blocks = to_four_bit_floats(numbers.reshape(-1)).reshape(numbers.shape[0], -1)
        writer.add_tensor(tensor.name, blocks, raw_dtype=T.NVFP4)
        name = tensor.name.removesuffix(".weight")
        writer.add_tensor(f"{name}.scale", np.array([factor], np.float32))
        writer.add_tensor(f"{name}.input_scale", np.array([3.0], np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
