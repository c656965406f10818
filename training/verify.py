"""Holds an exported folder to its reader: reads the files back, recomputes logits from the decoded weights in the exact mode,
and compares with the logits that another program dumped for the same tokens (a safetensors file with an F32 tensor `logits`).

    python training/verify.py tokens --count 256 > ids.txt          held-out tokens, comma separated
    pagestate generate --model models/tiny --tokens @ids.txt --dump-logits logits.safetensors
    python training/verify.py logits --model models/tiny --tokens ids.txt --logits logits.safetensors
"""

from __future__ import annotations

import argparse
import json
import struct

import numpy as np
import torch

import data
import evaluate
import layers as L
from model import Batch, Mode


def dumped_logits(path: str) -> np.ndarray:
    with open(path, "rb") as f:
        raw = f.read()
    (length,) = struct.unpack("<Q", raw[:8])
    header = {k: v for k, v in json.loads(raw[8 : 8 + length]).items() if k != "__metadata__"}
    info = header["logits"]
    begin, end = (8 + length + x for x in info["data_offsets"])
    return np.frombuffer(raw[begin:end], np.float32).reshape(info["shape"])


@torch.no_grad()
def logits(folder: str, ids: list[int], exact: bool) -> np.ndarray:
    model = evaluate.load_folder(folder)
    w = model.text["sliding_window"]
    width = -(-len(ids) // w) * w
    t = torch.tensor([ids + [2] * (width - len(ids))])
    zero = torch.zeros_like(t, dtype=torch.int32)
    batch = Batch(t, zero, torch.arange(width, dtype=torch.int32)[None], t, zero.float())
    if not exact:
        return model.logits(model.forward(batch, Mode()).x)[: len(ids)].numpy()
    with L.exact():
        return model.logits(model.forward(batch, Mode()).x)[: len(ids)].numpy()


def compare(name: str, a: np.ndarray, b: np.ndarray, ids: list[int]) -> None:
    d = np.abs(a - b)
    top = np.sort(a, axis=-1)
    gap = top[:, -1] - top[:, -2]
    differs = a.argmax(-1) != b.argmax(-1)

    def loss(x: np.ndarray) -> float:
        x = x[:-1].astype(np.float64)
        return float(np.mean(np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1)) + x.max(-1) - x[np.arange(len(x)), ids[1:]]))

    rows = d.max(-1)
    first = int(np.argmax(rows > 1e-3)) if (rows > 1e-3).any() else len(rows)
    print(f"{name}: {(rows < 1e-3).sum()} rows within 1e-3, the first other one is {first}; spread {a.std():.3f}, difference mean {d.mean():.2e} median row maximum {np.median(d.max(-1)):.2e} maximum {d.max():.2e}; "
          f"argmax differs in {differs.sum()} of {len(ids)} rows (gaps {np.round(gap[differs], 3).tolist()}); loss {loss(a):.5f} and {loss(b):.5f}")


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("action", choices=["tokens", "logits"])
    p.add_argument("--model", default="")
    p.add_argument("--tokens", default="")
    p.add_argument("--logits", default="")
    p.add_argument("--count", type=int, default=256)
    p.add_argument("--document", type=int, default=5)
    args = p.parse_args()
    torch.set_num_threads(1)
    if args.action == "tokens":
        source = data.Source(held=True)
        begin = source.offsets[args.document]
        return print(",".join(map(str, source.tokens[begin : begin + args.count].tolist())))
    with open(args.tokens, encoding="utf-8") as f:
        ids = [int(x) for x in f.read().split(",")]
    exact = logits(args.model, ids, exact=True)
    compare("exact mode and training arithmetic", exact, logits(args.model, ids, exact=False), ids)
    if args.logits:
        compare("exact mode and the dumped logits", exact, dumped_logits(args.logits), ids)


if __name__ == "__main__":
    main()
