"""Makes the small unquantized checkpoints that another implementation is run on.

usage: make_oracle_checkpoints.py --out tests/golden/oracle [name ...]

Official tensor names, no scales. Every one has Engram in two layers.
  short:  F32 storage; a prompt inside the window and the top-k, so that nothing is dropped.
  topk:   BF16 storage; longer than window + top-k, so that selections really drop rows; no block is dropped.
  blocks: BF16 storage; all layer kinds, several owners of ratio 2; candidate blocks really drop blocks, and a query has
          more than 64 keys (two blocks of the attention sum).
"""

from __future__ import annotations

import argparse
import os

import tiny_checkpoint
from tiny_checkpoint import Tiny

SPECS: dict[str, tuple[Tiny, str, int, int, int]] = {  # name -> dimensions, storage, weight seed, prompt seed, length
    "short": (
        Tiny(
            ratios=(0, 2, 2, 1, 1), kv_sources=(1, 3), index_sources=(1, 3, 4), candidate_source=3, engram_layers=(1, 3),
            hidden=32, rope=16, window=32, index_topk=32, block_topk=8, experts=6, experts_per_token=2, engram_heads=1,
        ),
        "f32", 11, 11, 24,
    ),
    "topk": (
        Tiny(
            ratios=(0, 0, 2, 2, 1, 1, 1, 1), kv_sources=(2, 4), index_sources=(2, 4, 6), candidate_source=4,
            engram_layers=(1, 4), window=24, index_topk=20, block_topk=64, index_heads=8, index_dim=32, experts=8,
            experts_per_token=3,
        ),
        "bf16", 12, 12, 96,
    ),
    "blocks": (
        Tiny(
            ratios=(0, 0, 2, 2, 2, 2, 1, 1, 1, 1, 1), kv_sources=(2, 4, 6), index_sources=(2, 4, 6, 8, 10),
            candidate_source=6, engram_layers=(1, 4), hidden=32, window=32, index_topk=40, block_topk=8, experts=8,
            experts_per_token=3,
        ),
        "bf16", 13, 13, 200,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("names", nargs="*", default=[])
    args = parser.parse_args()
    for name in args.names or SPECS:
        tiny, storage, seed, _, _ = SPECS[name]
        size = tiny_checkpoint.make(os.path.join(args.out, name), tiny, seed, storage)
        print(f"{name}: {size} B")


if __name__ == "__main__":
    main()
