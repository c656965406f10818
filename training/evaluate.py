"""Measures a model on held-out data in PyTorch: perplexity, exact match per skill, needle recall, draft agreement.

Answers have one right form, so a greedy answer is exact iff every answer token is the argmax given the right prefix: one
forward decides a whole conversation, and no sampling loop is needed.

    python training/evaluate.py --model models/tiny [--samples N] [--long]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import time
from typing import Any

import numpy as np
import torch

import bpe
import data
import export
import skills
from model import Batch, Mode, Model

Tensor = torch.Tensor


def to_batch(a: dict[str, np.ndarray], device: torch.device) -> Batch:
    def up(x: np.ndarray, dtype: torch.dtype) -> Tensor:
        return torch.from_numpy(x.astype(np.int32)).to(device, non_blocking=True).to(dtype)

    weight = torch.from_numpy(data.WEIGHTS[a["kind"]]).to(device, non_blocking=True)
    return Batch(up(a["ids"], torch.int64), up(a["doc"], torch.int32), up(a["pos"], torch.int32), up(a["target"], torch.int64), weight)


def predictions(model: Model, batch: Batch, mode: Mode) -> tuple[Tensor, Tensor]:
    """-> loss of every token [B, T], argmax [B, T]."""
    out = model.forward(batch, mode)
    losses, best = [], []
    for x, target in zip(out.x.detach().split(8192), batch.target.reshape(-1).split(8192)):
        with torch.no_grad():
            logits = model.logits(x)
            losses.append(torch.logsumexp(logits, dim=-1) - torch.gather(logits, -1, target[:, None])[:, 0])
            best.append(logits.argmax(dim=-1))
    return torch.cat(losses).reshape(batch.shape), torch.cat(best).reshape(batch.shape)


def skill_packs(source: data.Source, skill: str, rows: int, length: int) -> list[data.Pack]:
    """Packs of one skill only."""
    saved = data.MIXES.get("only")
    data.MIXES["only"] = {skill: 1.0}
    try:
        return [source.pack(f"held/{skill}/{i}", length, "only") for i in range(rows)]
    finally:
        data.MIXES.pop("only")
        if saved:
            data.MIXES["only"] = saved


def exact_answers(a: dict[str, np.ndarray], best: np.ndarray, labels: list[list[str]]) -> dict[str, list[bool]]:
    """Per skill, one entry per answer: every token of it predicted."""
    out: dict[str, list[bool]] = {}
    right = best == a["target"]
    answer = a["kind"] == data.ANSWER
    for row in range(answer.shape[0]):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], answer[row].astype(np.int8), [0]])))
        for begin, end in zip(edges[0::2], edges[1::2]):
            label = labels[row][a["doc"][row, begin]]
            out.setdefault(label, []).append(bool(right[row, begin:end].all()))
    return out


def answer_scores(model: Model, source: data.Source, rows: int, length: int, per_batch: int, mode: Mode, names: tuple[str, ...] = skills.SKILLS) -> dict[str, Any]:
    scores: dict[str, list[bool]] = {}
    for skill in names:
        packs = skill_packs(source, skill, rows, length)
        for i in range(0, rows, per_batch):
            part = packs[i : i + per_batch]
            a = data.arrays(part)
            _, best = predictions(model, to_batch(a, model.device), mode)
            for label, hits in exact_answers(a, best.cpu().numpy(), [p.labels for p in part]).items():
                if label in skills.SKILLS:
                    scores.setdefault(label, []).extend(hits)
    return {k: {"exact": sum(v) / len(v), "answers": len(v)} for k, v in scores.items()}


def text_packs(source: data.Source, length: int) -> list[data.Pack]:
    """All held-out documents in order, cut to fit."""
    packs: list[data.Pack] = []
    ids = np.full(length, 2, np.uint16)
    kind, doc, pos = np.zeros(length, np.uint8), np.zeros(length, np.int32), np.arange(length, dtype=np.int32)
    at = n = 0
    for d in range(len(source.offsets) - 1):
        tokens = source.tokens[source.offsets[d] : source.offsets[d + 1]][:length]
        if at + len(tokens) > length:
            packs.append(data.Pack(ids, kind, doc, pos, ["text"] * (n + 1)))
            ids = np.full(length, 2, np.uint16)
            kind, doc, pos = np.zeros(length, np.uint8), np.zeros(length, np.int32), np.arange(length, dtype=np.int32)
            at = n = 0
        end = min(length, -(-(at + len(tokens)) // data.ALIGN) * data.ALIGN)
        ids[at : at + len(tokens)], kind[at : at + len(tokens)] = tokens, data.TEXT
        doc[at:], pos[at:] = n, np.arange(length - at)
        at, n = end, n + 1
    packs.append(data.Pack(ids, kind, doc, pos, ["text"] * (n + 1)))
    return packs


def perplexity(model: Model, source: data.Source, length: int, per_batch: int, mode: Mode, limit: int) -> dict[str, Any]:
    packs = text_packs(source, length)
    random.Random(3).shuffle(packs)
    packs = packs[: limit - limit % per_batch]
    total = count = size = 0.0
    for i in range(0, len(packs) - per_batch + 1, per_batch):
        a = data.arrays(packs[i : i + per_batch])
        losses, _ = predictions(model, to_batch(a, model.device), mode)
        mask = a["kind"] == data.TEXT
        total += float(losses.cpu().numpy()[mask].sum())
        count += mask.sum()
        size += len(source.tokenizer.decode(a["target"][mask].tolist()).encode())
    return {"tokens": int(count), "loss": total / count, "perplexity": math.exp(total / count), "bits_per_byte": total / math.log(2) / size}


def needle_grid(model: Model, source: data.Source, lengths: list[int], depths: list[float], repeats: int, mode: Mode, budget: int) -> list[dict[str, Any]]:
    """Exact recall of one fact by the text's length and the fact's depth; rows of one length run together, `budget` tokens a forward."""
    out = []
    for tokens in lengths:
        cases = []
        for depth in depths:
            for i in range(repeats):
                ids, kind = source.encode(skills.needle(i, source.world, tokens, depth))
                cases.append((depth, ids, kind))
        width = -(-max(len(c[1]) for c in cases) // 128) * 128
        hits: dict[float, list[bool]] = {d: [] for d in depths}
        per = max(1, budget // width)
        for i in range(0, len(cases), per):
            part = cases[i : i + per]
            packs = []
            for _, ids, kind in part:
                p = data.Pack(np.full(width, 2, np.uint16), np.zeros(width, np.uint8), np.zeros(width, np.int32), np.arange(width, dtype=np.int32), ["needle"])
                p.ids[: len(ids)], p.kind[: len(ids)] = ids, kind
                packs.append(p)
            a = data.arrays(packs)
            _, best = predictions(model, to_batch(a, model.device), mode)
            right = best.cpu().numpy() == a["target"]
            for row, (depth, _, _) in enumerate(part):
                answer = a["kind"][row] == data.ANSWER
                hits[depth].append(bool(right[row, answer].all()))
        for depth in depths:
            out.append({"tokens": tokens, "depth": depth, "exact": sum(hits[depth]) / len(hits[depth]), "cases": len(hits[depth])})
    return out


def load_folder(folder: str, device: str = "cpu") -> Model:
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    model = Model(config, bpe.token_classes(os.path.join(folder, "tokenizer.json")), device)
    model.weights.load(export.read_back(config, folder))
    return model


@torch.no_grad()
def generate(model: Model, ids: list[int], count: int, stop: int, mode: Mode | None = None) -> list[int]:
    """Greedy continuation without a cache."""
    out: list[int] = []
    w = model.text["sliding_window"]
    for _ in range(count):
        now = ids + out
        width = -(-len(now) // w) * w
        t = torch.tensor([now + [2] * (width - len(now))], device=model.device)
        zero = torch.zeros_like(t, dtype=torch.int32)
        pos = torch.arange(width, dtype=torch.int32, device=model.device)[None]
        x = model.forward(Batch(t, zero, pos, t, zero.float()), mode or Mode()).x
        token = int(model.logits(x[len(now) - 1 : len(now)]).argmax())
        out.append(token)
        if token == stop:
            break
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rows", type=int, default=2, help="packs of 1,024 tokens per skill")
    parser.add_argument("--lengths", default="128,256,512,1024")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--text", type=int, default=8, help="packs of 1,024 tokens of held-out text")
    parser.add_argument("--prompt", action="append", default=[])
    args = parser.parse_args()
    torch.set_num_threads(1)
    model, source = load_folder(args.model), data.Source(held=True)
    for prompt in args.prompt:
        text = f"<｜begin▁of▁sentence｜><｜User｜>{prompt}<｜Assistant｜></think>"
        ids = source.tokenizer.encode(text, add_special_tokens=False).ids
        print(f"> {prompt}\n{source.tokenizer.decode(generate(model, ids, 60, source.eos))}", flush=True)
    started = time.time()
    with torch.no_grad():
        report: dict[str, Any] = {}
        for name, mode in (("sparse", Mode()), ("dense", Mode(sparse=False))):
            report[name] = {
                "text": perplexity(model, source, 1024, 1, mode, args.text),
                "answers": answer_scores(model, source, args.rows, 1024, 1, mode),
                "needles": needle_grid(model, source, [int(x) for x in args.lengths.split(",")], [0.1, 0.5, 0.9], args.repeats, mode, 4096),
            }
    print(json.dumps(report, indent=1))
    print(f"{time.time() - started:.0f} s")


if __name__ == "__main__":
    main()
