"""Makes the FP8/FP4 golden checkpoints and their values in BF16 arithmetic.

usage: make_native_checkpoint.py --out tests/golden/native [name ...]

native2: two layers (FULL ratio 2; FULL ratio 1 = candidate source, with Engram), every rounding point recorded.
native6: WINDOW, FULL 2, REUSE, FULL 1, REINDEX, REUSE with two Engram layers; residuals, selections and logits recorded.
"""

from __future__ import annotations

import argparse
import os
import time

import numpy as np

import tiny_checkpoint
from checkpoint_io import Checkpoint, RawTensor, write_safetensors
from reference_model import Capture, ReferenceModel, Result
from tiny_checkpoint import Tiny

SPECS: dict[str, tuple[Tiny, int, int]] = {  # name -> dimensions, seed, prompt length
    "native2": (
        Tiny(
            ratios=(2, 1), kv_sources=(0, 1), index_sources=(0, 1), candidate_source=1, engram_layers=(1,), hidden=64,
            inner=64, q_rank=64, o_rank=64, index_topk=28, window=40, block_topk=4, experts=8, experts_per_token=3,
        ),
        41,
        72,
    ),
    "native6": (
        Tiny(
            ratios=(0, 2, 2, 1, 1, 1), kv_sources=(1, 3), index_sources=(1, 3, 4), candidate_source=3,
            engram_layers=(1, 3), index_topk=32, window=40, block_topk=6, experts=8, experts_per_token=3,
        ),
        42,
        180,
    ),
}


def exact(value: np.ndarray) -> RawTensor:
    """The narrowest type that holds the value exactly: integers I32/I64, BF16-valued floats BF16, other floats F32."""
    if np.issubdtype(value.dtype, np.integer):
        return RawTensor("I64", value) if value.dtype == np.int64 else RawTensor("I32", value.astype(np.int32))
    value = np.ascontiguousarray(value, np.float32)
    if not (value.view(np.uint32) & np.uint32(0xFFFF)).any():
        return RawTensor("BF16", (value.view(np.uint32) >> np.uint32(16)).astype(np.uint16))
    return RawTensor("F32", value)


def golden_tensors(ids: np.ndarray, result: Result) -> dict[str, RawTensor]:
    """What every golden file has, whatever made it."""
    out = {"ids": RawTensor("I32", ids.astype(np.int32)), "logits": RawTensor("F32", result.logits)}
    for layer, h in enumerate(result.residuals):
        out[f"L{layer}.h"] = exact(h)
    for layer, rows in result.selected.items():
        out[f"L{layer}.index.selected"] = RawTensor("I32", rows)
    for layer, rows in result.blocks.items():
        out[f"L{layer}.index.blocks"] = RawTensor("I32", rows)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("names", nargs="*", default=[])
    args = parser.parse_args()
    for name in args.names or SPECS:
        tiny, seed, length = SPECS[name]
        folder = os.path.join(args.out, name)
        size = tiny_checkpoint.make(folder, tiny, seed, "native")
        ids = tiny_checkpoint.prompt(seed, length)
        capture = Capture(enabled=name == "native2")
        start = time.time()
        result = ReferenceModel(Checkpoint(folder), "bf16").forward(ids, capture)
        tensors = golden_tensors(ids, result)
        for key, value in capture.values.items():
            if key not in tensors and key != "final.logits":
                tensors[key] = exact(value)
        golden = write_safetensors(os.path.join(folder, "golden.safetensors"), tensors, {"compute": "bf16"})
        print(f"{name}: checkpoint {size} B, golden {golden} B, {len(tensors)} tensors, forward {time.time() - start:.1f} s")


if __name__ == "__main__":
    main()
