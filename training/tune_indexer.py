"""Teaches the indexer of an exported checkpoint more, with everything else frozen; small enough for a CPU.

`collect` runs the backbone with dense attention over recall-heavy sequences and keeps, for every index source, what its indexer sees
(x, qr, latents) and where the heads of its index group looked, at the answer tokens and at some others. `tune` fits the
indexer to that: cross-entropy to the normalized attention, answers weighted up. The result is a new exported folder.

    python training/tune_indexer.py collect --model DIR --features DIR --sequences 100 --length 1024  (every second one twice as long)
    python training/tune_indexer.py tune --model DIR --features DIR --out DIR
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from typing import Any

import numpy as np
import torch

import data
import evaluate
import export
import layers as L
from model import Batch, Mode, Model, Output, Positions, _Shared

Tensor = torch.Tensor
MIX = {"recall": 0.65, "key_value": 0.2, "story": 0.05, "tools": 0.1}


class Recorder(Model):
    """A model that keeps the indexers' inputs and the attention of each index group."""

    seen: dict[int, tuple[Tensor, Tensor]]
    shared: _Shared

    def _select(self, layer: int, role: Any, x: Tensor, qr: Tensor, p: Positions, mode: Mode, shared: _Shared, out: Output) -> None:
        self.seen[layer] = (x.detach(), qr.detach())
        super()._select(layer, role, x, qr, p, mode, shared, out)

    def _index_loss(self, shared: _Shared, weight: Tensor) -> Tensor:
        self.shared = shared
        return torch.zeros(())


def recorder(folder: str) -> Recorder:
    plain = evaluate.load_folder(folder)
    plain.__class__ = Recorder
    plain.seen = {}  # type: ignore[attr-defined]
    return plain  # type: ignore[return-value]


@torch.no_grad()
def collect(args: argparse.Namespace) -> None:
    os.makedirs(args.features, exist_ok=True)
    model, source = recorder(args.model), data.Source()
    data.MIXES["tune"] = MIX
    for i in range(args.first, args.first + args.sequences):
        path = os.path.join(args.features, f"{i:05d}.pt")
        if os.path.exists(path):
            continue
        begin = time.time()
        length = args.length * (1 + i % 2)
        pack = source.pack(f"tune/{i}", length, "tune")
        a = data.arrays([pack])
        model.forward(evaluate.to_batch(a, model.device), Mode(sparse=False, learn_index=True))
        answers = np.flatnonzero(a["kind"][0] == data.ANSWER)
        others = np.random.default_rng(i).choice(length, 100, replace=False)
        rows = torch.from_numpy(np.unique(np.concatenate([answers, others])))
        kept: dict[str, Any] = {"rows": rows, "answer": torch.from_numpy(a["kind"][0] == data.ANSWER)[rows],
                                "doc": torch.from_numpy(a["doc"]), "pos": torch.from_numpy(a["pos"]), "sources": {}}
        for layer, (x, qr) in model.seen.items():
            masses = model.shared.mass[layer]
            mass = sum(m[0, rows].float() for m in masses) / len(masses)
            kept["sources"][layer] = {"x": x[rows], "qr": qr[rows], "mass": mass.half()}
        kept["latents"] = {k: v for k, v in model.shared.latents.items()}
        torch.save(kept, path)
        print(f"{i}: {len(answers)} answer tokens, {time.time() - begin:.0f} s", flush=True)


def scores(model: Model, kept: dict[str, Any], layer: int) -> tuple[Tensor, Tensor, Tensor]:
    """-> index scores [n, J], visibility [n, J], attention mass [n, J]."""
    role = model.roles[layer]
    t = kept["pos"].shape[1]
    none = torch.zeros(1, t)
    p = Positions(Batch(none.long(), kept["doc"], kept["pos"], none.long(), none), model.text, *model.freq)
    own, owner = f"layers.{layer}.attn.indexer.", f"layers.{role.owner}.attn.indexer."
    cos, sin = p.rotation("compressed", role.ratio)
    keys = L.index_keys(kept["latents"][role.owner], model.w(owner + "wk.weight"), model.w(owner + "k_norm.weight"), cos, sin)
    cos, sin = p.rotation("compressed")
    s, rows = kept["sources"][layer], kept["rows"]
    score = L.index_scores(s["x"], s["qr"], keys.reshape(1, t // role.ratio, -1), model.w(own + "wq_b.weight"),
                           model.w(own + "weights_proj.weight"), cos[rows], sin[rows])
    return score[0], p.rows_mask(role.ratio)[0, rows], s["mass"].float()


def caught(score: Tensor, allowed: Tensor, mass: Tensor, k: int) -> Tensor:
    """[n] share of the attention mass that the top k rows hold."""
    picked = torch.where(allowed, score, float("-inf")).topk(min(k, score.shape[-1]), dim=-1).indices
    return torch.gather(mass, -1, picked).sum(dim=-1) / mass.sum(dim=-1).clamp(min=1e-6)


def goal_mass(model: Model, kept: dict[str, Any], layer: int) -> Tensor:
    """[n, J] what `layer` should score high: where its own group looked; for the candidate source also where every later group
    looked, since those may only choose among its candidates."""
    own = kept["sources"][layer]["mass"].float()
    if layer != model.text["candidate_source_layer_id"]:
        return own
    later = [s["mass"].float() for k, s in kept["sources"].items() if k > layer]
    return (own + sum(later)) / (1 + len(later))


def caught_by_blocks(model: Model, score: Tensor, allowed: Tensor, mass: Tensor, keep: int) -> Tensor:
    """[n] share of the mass inside the best `keep` candidate blocks."""
    kept = L.candidate_mask(score[None], allowed[None], model.text["candidate_block_size"], keep)[0]
    return (mass * kept).sum(dim=-1) / mass.sum(dim=-1).clamp(min=1e-6)


def tune(args: argparse.Namespace) -> None:
    model = evaluate.load_folder(args.model)
    files = sorted(os.listdir(args.features))
    kept = [torch.load(os.path.join(args.features, f), weights_only=True) for f in files]
    held, train = kept[: max(1, len(kept) // 10)], kept[max(1, len(kept) // 10) :]
    k = model.text["index_topk"]
    names = [n for n in model.weights.specs if ".indexer." in n]
    groups = {id(model.weights.index[n][0]): model.weights.index[n][0] for n in names}.values()
    moments = [(torch.zeros_like(g.master), torch.zeros_like(g.master)) for g in groups]
    candidate = model.text["candidate_source_layer_id"]
    sources = [s for s in model.text["index_source_layer_ids"] if s >= (candidate if args.decoder_only else 0)]

    def judge(step: int) -> None:
        with torch.no_grad():
            table = {}
            for layer in sources:
                parts = [(caught(*scores(model, h, layer), k), h["answer"], h["sources"][layer]["mass"].float().sum(dim=-1)) for h in held]
                share, answer, mass = (torch.cat(x) for x in zip(*parts))
                far = mass > 0.3
                if layer > candidate:
                    blocks = torch.cat([caught_by_blocks(model, *scores(model, h, candidate)[:2], h["sources"][layer]["mass"].float(), 32) for h in held])
                    print(f"  {layer}: in 32 blocks {blocks[answer & far].mean():.3f}, {(blocks[answer & far] > 0.9).float().mean():.3f}")
                table[layer] = f"{share[answer & far].mean():.3f}/{(share[answer & far] > 0.9).float().mean():.3f}/{share[~answer & far].mean():.3f}"
        print(f"step {step}: caught at answers / answers above 0.9 / at others {table}", flush=True)

    rng = random.Random(0)
    judge(0)
    begin = time.time()
    for step in range(1, args.steps + 1):
        model.weights.zero_grad()
        h = rng.choice(train)
        total = torch.zeros(())
        for layer in sources:
            score, allowed, _ = scores(model, h, layer)
            mass = goal_mass(model, h, layer)
            amount = mass.sum(dim=-1, keepdim=True)
            goal = mass / amount.clamp(min=1e-6)
            weight = amount[:, 0].clamp(max=1) * torch.where(h["answer"], 5.0, 1.0)
            logits = torch.where(allowed, score * args.sharpness, -1e30)
            logp = logits - torch.logsumexp(logits, dim=-1, keepdim=True)
            total = total - ((goal * torch.where(allowed, logp, 0.0)).sum(dim=-1) * weight).sum() / weight.sum().clamp(min=1e-6)
        total.backward()
        rate = args.rate * min(1, step / 30) * (1 - (step - 1) / args.steps)
        with torch.no_grad():
            for g, (m, v) in zip(groups, moments):
                grad = g.grad.float()
                m.lerp_(grad, 0.1)
                v.lerp_(grad.square(), 0.05)
                scale = rate * (m / (1 - 0.9**step)) / ((v / (1 - 0.95**step)).sqrt() + 1e-10)
                g.master.sub_(scale)
                g.refresh()
        if step % args.report == 0:
            print(f"step {step}: loss {total.item():.3f}, {time.time() - begin:.0f} s", flush=True)
            judge(step)
    export.export(model.config, model.weights.state(), os.path.join(args.model, "tokenizer.json"), args.out)
    print("saved", args.out)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("action", choices=["collect", "tune"])
    p.add_argument("--model", required=True)
    p.add_argument("--features", required=True)
    p.add_argument("--out", default="")
    p.add_argument("--first", type=int, default=0)
    p.add_argument("--sequences", type=int, default=100)
    p.add_argument("--length", type=int, default=1024)
    p.add_argument("--steps", type=int, default=600)
    p.add_argument("--rate", type=float, default=1e-3)
    p.add_argument("--report", type=int, default=100, help="steps between reports")
    p.add_argument("--decoder-only", action="store_true", help="only the candidate source and the layers that use it")
    p.add_argument("--sharpness", type=float, default=1.0, help="of the index scores before the softmax")
    args = p.parse_args()
    torch.set_num_threads(1)
    collect(args) if args.action == "collect" else tune(args)


if __name__ == "__main__":
    main()
