"""Trains the tiny model in phases, each with a share of the run's time:

    dense   every compressed row is attended; the indexer learns from the attention it sees (T = 1,024)
    sparse  top-k selections decide; every second, later every fourth step is dense and teaches the indexer (T = 2,048)
    wide    as sparse, every second step teaching, on the long mix: the indexer meets far rows (T = 4,096, half the tokens)
    long    sparse with gathered rows (T = 8,192)
    finish  long and replay at once, with little of everything: a short last phase
    replay  sparse; windows are cut at random places, in the decoder as bounded replay does, sometimes in the encoder (T = 2,048)
    draft   the backbone is frozen; the draft stages learn to foresee it (T = 2,048)

A state file in --work is written every --save minutes and at the end; the same run continues from it. --resume starts a run
from an exported folder, whose grid values become the masters. Logs: log.csv, eval.jsonl. Result: --out/model (the exported
checkpoint).

    python training/train.py --out OUT --work WORK --total 24 [--phases dense=0.4,sparse=0.38,long=0.06,replay=0.07,draft=0.09]
"""

from __future__ import annotations

import argparse
import collections
import csv
import json
import math
import multiprocessing
import os
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import bpe
import data
import draft
import evaluate
import export
import shapes
from model import Batch, Mode, Model
from optim import Optimizer

Tensor = torch.Tensor


@dataclass(frozen=True)
class Phase:
    name: str
    rows: int  # at the full size
    length: int
    mix: str
    until: float = 1.0  # share of the run's time


KINDS = {p.name: p for p in (
    Phase("dense", 64, 1024, "short"), Phase("sparse", 32, 2048, "medium"), Phase("wide", 8, 4096, "long"), Phase("long", 8, 8192, "long"),
    Phase("finish", 8, 8192, "finish"),
    Phase("replay", 32, 2048, "medium"), Phase("draft", 32, 2048, "medium"),
)}
DEFAULT_PHASES = "dense=0.4,sparse=0.38,long=0.06,replay=0.07,draft=0.09"


def parse_phases(text: str, micro: bool) -> list[Phase]:
    """"name=share,..." -> phases with their ends; shares are scaled to sum to 1."""
    parts = [(n, float(x)) for n, x in (item.split("=") for item in text.split(","))]
    total, at, out = sum(x for _, x in parts), 0.0, []
    for name, share in parts:
        at += share / total
        p = KINDS[name]
        rows, length = (max(1, 512 * 4 // p.length), p.length // 4) if micro else (p.rows, p.length)
        out.append(Phase(name, rows, length, p.mix, at))
    return out


def phase_at(phases: list[Phase], share: float) -> Phase:
    return next((p for p in phases if share < p.until), phases[-1])


# ---- data workers -----------------------------------------------------------------------------------------------------

def _worker(folder: str, tasks: Any, results: Any) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    source = data.Source(folder)
    while True:
        task = tasks.get()
        if task is None:
            return
        results.put(data.batch(source, *task))


class Feed:
    """Batches in order, made ahead by worker processes; batch i always has the same content for the same phase."""

    def __init__(self, folder: str, workers: int, seed: int) -> None:
        self.seed, self.next = seed, 0
        self.pending: collections.deque[tuple[int, Phase]] = collections.deque()
        self.source = data.Source(folder) if workers == 0 else None
        context = multiprocessing.get_context("fork")
        self.queues = [(context.Queue(), context.Queue()) for _ in range(workers)]
        self.processes = [context.Process(target=_worker, args=(folder, *q), daemon=True) for q in self.queues]
        for p in self.processes:
            p.start()

    def _task(self, phase: Phase) -> tuple[str, int, int, str]:
        return f"{self.seed}/{phase.name}/{self.next}", phase.rows, phase.length, phase.mix

    def get(self, phase: Phase) -> tuple[Phase, dict[str, np.ndarray]]:
        """The oldest batch that was asked for; `phase` is what to ask for now."""
        if self.source is not None:
            task = self._task(phase)
            self.next += 1
            return phase, data.batch(self.source, *task)
        while len(self.pending) < 3 * len(self.queues):
            self.queues[self.next % len(self.queues)][0].put(self._task(phase))
            self.pending.append((self.next, phase))
            self.next += 1
        index, made_for = self.pending.popleft()
        return made_for, self.queues[index % len(self.queues)][1].get()

    def close(self) -> None:
        for p in self.processes:
            p.terminate()


# ---- one step ---------------------------------------------------------------------------------------------------------

def add_cuts(batch: Batch, generator: torch.Generator) -> None:
    """Random places over which a window cannot look: all rows in the decoder, every fourth row also in the encoder."""
    b, t = batch.shape
    device = batch.ids.device

    def cut(chance: float) -> Tensor:
        return (torch.rand(b, t, device=device, generator=generator) < chance).int().cumsum(dim=1).int()

    batch.cut_decoder = cut(1 / 250)
    batch.cut_encoder = cut(1 / 400) * (torch.arange(b, device=device) % 4 == 0)[:, None]


class Trainer:
    def __init__(self, model: Model, args: argparse.Namespace) -> None:
        self.model, self.args = model, args
        self.optimizer = Optimizer(model.weights)
        self.step_number = self.tokens = self.run_step = 0
        self.elapsed = 0.0  # seconds of this run
        self.phase_step: collections.Counter[str] = collections.Counter()
        self.generator = torch.Generator(device=model.device).manual_seed(args.seed + 1)

    @property
    def share(self) -> float:
        return self.elapsed / (60 * self.args.total)

    def rates(self) -> tuple[float, float]:
        """Linear warm-up by steps of this run, then linear decay by time."""
        a = self.args
        warm = min(1.0, (self.run_step + 1) / a.warmup)
        level = min(1.0, max(a.decay_to, 1 - (1 - a.decay_to) * (self.share - a.decay_from) / (1 - a.decay_from)))
        return a.muon * warm * level, a.adam * warm * level

    def step(self, phase: Phase, arrays: dict[str, np.ndarray]) -> dict[str, Tensor | float]:
        model, n = self.model, self.phase_step[phase.name]
        batch = evaluate.to_batch(arrays, model.device)
        model.weights.zero_grad()
        stats: dict[str, Tensor | float] = {}
        if phase.name == "draft":
            with torch.no_grad():
                target = model.forward(batch, Mode(taps=True))
            loss, stats, loads = draft.draft_loss(model, batch, target, max(1, self.args.anchors // phase.rows))
            only, skip = "mtp.", ""
        else:
            if phase.name == "dense":
                mode = Mode(sparse=False, learn_index=self.share >= self.args.index_from)
            elif phase.name in ("long", "finish"):
                mode = Mode(gather=True)
            else:
                every = 2 if phase.name == "wide" or phase.name == "sparse" and n < self.args.teach_steps else 4
                teach = n % every == every - 1
                mode = Mode(sparse=not teach, learn_index=teach)
            if phase.name in ("replay", "finish"):
                add_cuts(batch, self.generator)
            out = model.forward(batch, mode)
            loss, each = model.loss(out.x, batch)
            stats["loss"] = loss.detach()
            kind = torch.from_numpy(arrays["kind"]).to(model.device)
            for name, k in (("text", data.TEXT), ("answer", data.ANSWER)):
                chosen = (kind == k).float()
                stats[name] = (each * chosen).sum() / chosen.sum().clamp(min=1)
            stats["index"] = out.index_loss if mode.learn_index else float("nan")
            stats["load"] = torch.stack([l.max() / l.mean() for l in out.loads.values()]).mean()
            loads = out.loads
            if mode.learn_index:
                loss = loss + out.index_loss
            only, skip = "", "mtp."
        loss.backward()
        muon, adam = self.rates()
        self.optimizer.step(muon, adam, only=only, skip=skip)
        if phase.name in ("dense", "sparse", "wide", "draft"):
            self.optimizer.balance(loads, 0.002 if n < 1000 else 0.0005)
        self.step_number += 1
        self.run_step += 1
        self.phase_step[phase.name] += 1
        self.tokens += batch.ids.numel()
        return {"loss": loss.detach(), "muon": muon, **stats}  # of the language model: without the indexer's

    # ---- saving -------------------------------------------------------------------------------------------------------

    def save(self, path: str) -> None:
        torch.save({
            "config": json.dumps(self.model.config), "state": self.model.weights.state(), "optimizer": self.optimizer.state,
            "steps": self.optimizer.steps, "elapsed": self.elapsed, "step": self.step_number, "tokens": self.tokens, "run_step": self.run_step,
            "phase_step": dict(self.phase_step),
        }, path + ".partial")
        os.replace(path + ".partial", path)

    def load(self, path: str) -> None:
        saved = torch.load(path, map_location=self.model.device, weights_only=True)
        self.model.weights.load(saved["state"])
        for own, s in zip(self.optimizer.state, saved["optimizer"]):
            for k in own:
                own[k].copy_(s[k])
        self.optimizer.steps = list(saved["steps"])
        self.elapsed, self.step_number, self.tokens, self.run_step = (saved[k] for k in ("elapsed", "step", "tokens", "run_step"))
        self.phase_step.update(saved["phase_step"])

    def export(self, out: str) -> None:
        folder = os.path.join(out, "model")
        tokenizer = os.path.join(self.args.data, "tokenizer.json")
        export.export(self.model.config, {k: v.float().cpu() for k, v in self.model.weights.state().items()}, tokenizer, folder)
        with open(os.path.join(folder, "progress.json"), "w", encoding="utf-8") as f:
            json.dump({"elapsed": self.elapsed, "step": self.step_number, "tokens": self.tokens, "phase_step": dict(self.phase_step)}, f)


def measure(model: Model, args: argparse.Namespace, full: bool) -> dict[str, Any]:
    """Held-out scores with the shapes of the sparse phase, so nothing new is compiled; needles run eagerly."""
    source = data.Source(args.data, held=True)
    rows, length = KINDS["sparse"].rows, KINDS["sparse"].length
    report: dict[str, Any] = {}
    modes = {"sparse": Mode()} if not full else {"sparse": Mode(), "dense": Mode(sparse=False)}
    for name, mode in modes.items():
        report[name] = {
            "text": evaluate.perplexity(model, source, length, rows, mode, 4 * rows if full else rows),
            "answers": evaluate.answer_scores(model, source, rows, length, rows, mode),
        }
    if full:
        with torch.no_grad(), model.eager():
            for name, mode in (("sparse", Mode(gather=True)), ("dense", Mode(sparse=False))):
                report[name]["needles"] = evaluate.needle_grid(
                    model, source, [100, 250, 500, 1000, 2000, 4000, 8000, 16000], [0.05, 0.25, 0.5, 0.75, 0.95], 4, mode, 36000)
    return report


def make_model(args: argparse.Namespace) -> Model:
    path = os.path.join(args.data, "tokenizer.json")
    classes, ids = bpe.token_classes(path), bpe.added_ids(path)
    build = shapes.micro_config if args.micro else shapes.tiny_config
    config = build(len(classes), int(classes.max()) + 1, ids[bpe.IMAGE], ids[bpe.NOISE])
    return Model(config, classes, args.device, args.seed, compiled=args.compile)


def options() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", default=data.FOLDER)
    p.add_argument("--out", required=True)
    p.add_argument("--work", required=True)
    p.add_argument("--total", type=float, required=True, help="minutes of this run")
    p.add_argument("--minutes", type=float, default=1e9, help="minutes until this process stops; the same command goes on from there")
    p.add_argument("--save", type=float, default=4.0, help="minutes between saved states")
    p.add_argument("--resume", default="", help="an exported folder to start from")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--compile", default="", help="a torch.compile backend, such as inductor")
    p.add_argument("--micro", action="store_true", help="the toy config, short sequences: for tests on a CPU")
    p.add_argument("--workers", type=int, default=12)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--muon", type=float, default=4e-3)
    p.add_argument("--adam", type=float, default=3e-3)
    p.add_argument("--warmup", type=int, default=150)
    p.add_argument("--phases", default=DEFAULT_PHASES, help="name=share,...")
    p.add_argument("--index-from", type=float, default=0.12, help="share of the run from which the indexer learns in the dense phase")
    p.add_argument("--teach-steps", type=int, default=1000, help="sparse steps of which every second one teaches the indexer")
    p.add_argument("--decay-from", type=float, default=0.5, help="share of the run")
    p.add_argument("--decay-to", type=float, default=0.03)
    p.add_argument("--anchors", type=int, default=4096, help="draft blocks per step")
    p.add_argument("--log-every", type=int, default=20)
    p.add_argument("--steps", default="", help="steps per phase, e.g. dense=5,sparse=5: a fixed tour instead of time, for tests")
    p.add_argument("--no-eval", action="store_true")
    return p.parse_args()


def main() -> None:
    args = options()
    phases = parse_phases(args.phases, args.micro)
    os.makedirs(args.out, exist_ok=True)
    os.makedirs(args.work, exist_ok=True)
    feed = Feed(args.data, args.workers, args.seed)  # forks before the accelerator is touched
    torch.backends.cuda.matmul.allow_tf32 = True
    torch._dynamo.config.recompile_limit = 64
    trainer = Trainer(make_model(args), args)
    state = os.path.join(args.work, "state.pt")
    if os.path.exists(state):
        trainer.load(state)
        print(f"continues at step {trainer.step_number}, {trainer.elapsed:.0f} s", flush=True)
    elif args.resume:
        trainer.model.weights.load(export.read_back(trainer.model.config, args.resume))
        with open(os.path.join(args.resume, "progress.json"), encoding="utf-8") as f:
            progress = json.load(f)
        trainer.step_number, trainer.tokens = progress["step"], progress["tokens"]
        trainer.phase_step.update(progress["phase_step"])
    tour = [t.split("=") for t in args.steps.split(",")] if args.steps else []
    plan = [parse_phases(f"{name}=1", args.micro)[0] for name, n in tour for _ in range(int(n))]
    log = open(os.path.join(args.out, "log.csv"), "a", newline="", encoding="utf-8")
    fields = ["step", "seconds", "phase", "tokens", "loss", "text", "answer", "index", "load", "muon", "tokens_per_second", "agree", "overlap", "memory_gib"]
    writer = csv.DictWriter(log, fields)
    if log.tell() == 0:
        writer.writeheader()
    started = last = saved_at = time.time()
    base, last_tokens, before = trainer.elapsed, trainer.tokens, ""
    while True:
        if plan and trainer.run_step >= len(plan) or not plan and trainer.share >= 1 or time.time() - started > 60 * args.minutes:
            break
        phase, arrays = feed.get(plan[min(len(plan) - 1, feed.next)] if plan else phase_at(phases, trainer.share))
        if before and phase.name != before and not args.no_eval:
            report(trainer, args, before, full=False)
        before = phase.name
        stats = trainer.step(phase, arrays)
        if trainer.step_number % args.log_every == 0 or plan:
            now = time.time()
            values = {k: (v.tolist() if isinstance(v, torch.Tensor) else v) for k, v in stats.items()}  # waits for the device
            now = time.time()
            row: dict[str, Any] = {k: values.get(k, "") for k in fields}
            for k in ("agree", "overlap"):
                row[k] = " ".join(f"{x:.3f}" for x in values[k]) if k in values else ""
            row.update(step=trainer.step_number, seconds=round(trainer.elapsed, 1), phase=phase.name, tokens=trainer.tokens,
                       tokens_per_second=round((trainer.tokens - last_tokens) / (now - last)),
                       memory_gib=round(torch.cuda.max_memory_allocated() / 2**30, 1) if torch.cuda.is_available() else 0)
            writer.writerow({k: (f"{v:.4g}" if isinstance(v, float) else v) for k, v in row.items()})
            log.flush()
            if trainer.step_number % (10 * args.log_every) == 0 or plan:
                print({k: (f"{v:.4g}" if isinstance(v, float) else v) for k, v in row.items() if v != ""}, flush=True)
            last, last_tokens = now, trainer.tokens
            if not math.isfinite(values["loss"]):
                raise SystemExit(f"loss is {values['loss']} at step {trainer.step_number}")
        trainer.elapsed = base + time.time() - started
        if time.time() - saved_at > 60 * args.save:
            trainer.save(state)
            trainer.export(args.out)
            saved_at = time.time()
    trainer.save(state)
    trainer.export(args.out)
    print("saved", flush=True)
    if not args.no_eval:
        report(trainer, args, before, full=True)
    feed.close()
    print("finished", flush=True)


def report(trainer: Trainer, args: argparse.Namespace, name: str, full: bool) -> None:
    begin = time.time()
    with torch.set_grad_enabled(name != "draft"):  # as the phase ran, so that nothing is compiled anew
        values = {"after": name, "step": trainer.step_number, "seconds": trainer.elapsed, **measure(trainer.model, args, full)}
    with open(os.path.join(args.out, "eval.jsonl"), "a", encoding="utf-8") as f:
        f.write(json.dumps(values) + "\n")
    short = {m: {**{k: round(v["exact"], 3) for k, v in values[m]["answers"].items()}, "ppl": round(values[m]["text"]["perplexity"], 2)} for m in ("sparse", "dense") if m in values}
    for m in ("sparse", "dense"):
        if "needles" in values.get(m, {}):
            by_length: dict[int, list[float]] = {}
            for cell in values[m]["needles"]:
                by_length.setdefault(cell["tokens"], []).append(cell["exact"])
            short[m]["needles"] = {k: round(sum(v) / len(v), 2) for k, v in by_length.items()}
    print("eval", name, json.dumps(short), f"{time.time() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main()
