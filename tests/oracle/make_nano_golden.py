"""Golden logits of the synthetic checkpoint `nano`: reads a folder that `pagestate make-checkpoint --preset nano --seed 1`
wrote, and records the BF16 run of the reference on a fixed prompt. The test writes the same checkpoint itself.
"""

from __future__ import annotations

import argparse
import os

import numpy as np

from checkpoint_io import Checkpoint, RawTensor, write_safetensors
from reference_model import ReferenceModel

LENGTH = 150  # several windows, selections that drop rows, candidate blocks that drop blocks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--out", required=True, help="folder of the golden file")
    args = parser.parse_args()
    checkpoint = Checkpoint(args.checkpoint)
    vocabulary = checkpoint.config["text_config"]["vocab_size"]
    ids = np.random.default_rng(5).integers(3, vocabulary, LENGTH, dtype=np.int64).astype(np.int32)
    result = ReferenceModel(checkpoint, "bf16").forward(ids)
    rows = np.arange(LENGTH - 40, LENGTH, dtype=np.int32)  # the last positions see everything that came before
    os.makedirs(args.out, exist_ok=True)
    write_safetensors(
        os.path.join(args.out, "golden.safetensors"),
        {
            "ids": RawTensor("I32", ids),
            "positions": RawTensor("I32", rows),
            "logits": RawTensor("F32", np.ascontiguousarray(result.logits[rows], dtype=np.float32)),
        },
        {"compute": "bf16"},
    )


if __name__ == "__main__":
    main()
