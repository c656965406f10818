"""Holds the C++ engine to the model that PyTorch reads from the same folder: logits of held-out texts and greedy continuations.

Three computations of the same logits: the engine's (`pagestate generate`), PyTorch's in the exact mode (official rounding points), and PyTorch's
again with the terms of every matrix product added from the last to the first. The last two differ by float32 summation only,
so what they differ by is what the arithmetic itself leaves open; the engine should differ by no more.

A fourth one, the NumPy restatement in tests/oracle, has the engine's summation orders and must give its bits.

The bound that rounding at the end explains: the last hidden state x is BF16, so two computations that agree up to its
rounding differ by at most one step in each component, 2^-7 |x_i|, and a logit by 2^-7 sum_i |W_vi x_i| (its float32 sum
adds less than 2^-15 of that). Where a logit differs by more, an earlier rounding went the other way and a quantizer, a
router or an index selection made a step of it; the list of such positions says how much PyTorch differs from itself there.

    python training/verify.py --program build/release/apps/pagestate --model models/tiny --json report.json
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from typing import Any, Iterator

import numpy as np
import torch
from tokenizers import Tokenizer

import evaluate
import layers as L
from model import Batch, Mode, Model

BF16_STEP = 2.0**-7  # the largest distance of neighbours, relative to the smaller one


def dumped_logits(path: str) -> np.ndarray:
    with open(path, "rb") as f:
        raw = f.read()
    (length,) = struct.unpack("<Q", raw[:8])
    header = {k: v for k, v in json.loads(raw[8 : 8 + length]).items() if k != "__metadata__"}
    info = header["logits"]
    begin, end = (8 + length + x for x in info["data_offsets"])
    return np.frombuffer(raw[begin:end], np.float32).reshape(info["shape"])


class Engine:
    """The program, run once per question."""

    def __init__(self, program: str, model: str) -> None:
        self.base = [program, "generate", "--model", model]

    def _run(self, ids: list[int], options: list[str]) -> str:
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as f:
            f.write(",".join(map(str, ids)))
            f.flush()
            done = subprocess.run(self.base + ["--tokens", "@" + f.name, *options], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        return done.stdout

    def logits(self, ids: list[int]) -> np.ndarray:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "logits.safetensors")
            self._run(ids, ["--dump-logits", path])
            return dumped_logits(path)

    def continuation(self, ids: list[int], count: int) -> list[int]:
        out = self._run(ids, ["--max-tokens", str(count), "--ignore-eos", "--print-ids"])
        return [int(x) for x in out.split(",")]


class _ReversedLinear:
    """torch.nn.functional, but a matrix product adds its terms from the last to the first."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.nn.functional, name)

    @staticmethod
    def linear(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x.flip(-1), w.flip(-1))


@contextlib.contextmanager
def reversed_sums() -> Iterator[None]:
    """The same products in another float32 order. It tells in the residual mixers, whose weights are float32: sums of FP8 and FP4
    products mostly fit into 24 bits and have no order."""
    saved = L.F
    L.F = _ReversedLinear()  # type: ignore[assignment]
    try:
        yield
    finally:
        L.F = saved


@torch.no_grad()
def hidden(model: Model, ids: list[int]) -> torch.Tensor:
    """[T, D], the normalized last hidden state in the exact mode."""
    w = model.text["sliding_window"]
    width = -(-len(ids) // w) * w
    t = torch.tensor([ids + [2] * (width - len(ids))])
    zero = torch.zeros_like(t, dtype=torch.int32)
    batch = Batch(t, zero, torch.arange(width, dtype=torch.int32)[None], t, zero.float())
    with L.exact():
        return model.forward(batch, Mode()).x[: len(ids)]


class Comparison:
    """Collects positions of several texts."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.head = model.w("head.weight").float()
        self.engine: list[np.ndarray] = []  # per position: the largest difference of a logit
        self.torch: list[np.ndarray] = []
        self.over: list[np.ndarray] = []  # the largest ratio of a difference to its bound
        self.over_torch: list[np.ndarray] = []
        self.place: list[tuple[str, int]] = []
        self.loss = np.zeros(3)
        self.predicted = 0
        self.argmax = 0
        self.argmax_torch = 0
        self.spread: list[float] = []

    @torch.no_grad()
    def add(self, name: str, ids: list[int], first: int, engine: np.ndarray) -> np.ndarray:
        """Positions from `first` on; engine [T, V]. Returns PyTorch's logits of them."""
        x = hidden(self.model, ids)[first:]
        a = self.model.logits(x)
        with reversed_sums():
            b = self.model.logits(hidden(self.model, ids)[first:])
        e = torch.from_numpy(engine[first:].copy())
        bound = BF16_STEP * torch.nn.functional.linear(x.float().abs(), self.head.abs())
        self.engine.append((e - a).abs().amax(-1).numpy())
        self.torch.append((b - a).abs().amax(-1).numpy())
        self.over.append(((e - a).abs() / bound).amax(-1).numpy())
        self.over_torch.append(((b - a).abs() / bound).amax(-1).numpy())
        self.place += [(name, p) for p in range(first, len(ids))]
        self.argmax += int((e.argmax(-1) == a.argmax(-1)).sum())
        self.argmax_torch += int((b.argmax(-1) == a.argmax(-1)).sum())
        self.spread.append(float(a.std()))
        target = torch.tensor(ids[first + 1 :])
        for i, z in enumerate((e, a, b)):
            z = z[:-1].double()
            self.loss[i] += float((torch.logsumexp(z, -1) - z.gather(-1, target[:, None])[:, 0]).sum())
        self.predicted += len(target)
        return a.numpy()

    def report(self) -> dict[str, Any]:
        engine, other = np.concatenate(self.engine), np.concatenate(self.torch)
        over, over_other = np.concatenate(self.over), np.concatenate(self.over_torch)

        def quantiles(x: np.ndarray) -> dict[str, float]:
            return {name: float(np.quantile(x, q)) for name, q in (("median", 0.5), ("p90", 0.9), ("p99", 0.99), ("maximum", 1.0))}

        beyond = np.flatnonzero(over > 1)
        worst = beyond[np.argsort(-over[beyond])][:20]
        return {
            "positions": len(engine), "spread": float(np.mean(self.spread)), "argmax_equal": {"engine": self.argmax, "pytorch_reversed": self.argmax_torch},
            "loss": dict(zip(("engine", "pytorch", "pytorch_reversed"), (self.loss / self.predicted).tolist())),
            "difference": {"engine": quantiles(engine), "pytorch_reversed": quantiles(other)},
            "within_bound": {"engine": int((over <= 1).sum()), "pytorch_reversed": int((over_other <= 1).sum())},
            "ratio_to_bound": {"engine": quantiles(over), "pytorch_reversed": quantiles(over_other)},
            "beyond_in_both": int(((over > 1) & (over_other > 1)).sum()),
            "worst": [{"text": self.place[i][0], "position": self.place[i][1], "ratio": float(over[i]), "difference": float(engine[i]),
                       "pytorch_reversed_ratio": float(over_other[i]), "pytorch_reversed_difference": float(other[i])} for i in worst],
        }


def restatement(folder: str, ids: list[int], engine: np.ndarray) -> dict[str, int]:
    """The NumPy restatement with the project's own summation orders must give the engine's bits."""
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "oracle"))
    from checkpoint_io import Checkpoint
    from reference_model import ReferenceModel

    logits = ReferenceModel(Checkpoint(folder), "bf16").forward(np.array(ids)).logits
    return {"positions": len(ids), "equal_bits": int((logits.view(np.uint32) == engine.view(np.uint32)).all(-1).sum())}


def windows(suite: str) -> list[tuple[str, str]]:
    with open(os.path.join(suite, "text.jsonl"), encoding="utf-8") as f:
        return [(r["id"], r["text"]) for r in map(json.loads, f)]


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--program", default="build/release/apps/pagestate")
    p.add_argument("--model", default="models/tiny")
    p.add_argument("--suite", default="", help="default: the folder suite inside the model's")
    p.add_argument("--texts", type=int, default=4)
    p.add_argument("--text-tokens", type=int, default=512)
    p.add_argument("--restatement-tokens", type=int, default=64)
    p.add_argument("--prompts", type=int, default=20)
    p.add_argument("--prompt-tokens", type=int, default=32)
    p.add_argument("--answer-tokens", type=int, default=200)
    p.add_argument("--json", default="")
    args = p.parse_args()
    torch.set_num_threads(1)
    started = time.time()
    engine, model = Engine(args.program, args.model), evaluate.load_folder(args.model)
    tokenizer = Tokenizer.from_file(os.path.join(args.model, "tokenizer.json"))
    texts = [(name, [0, *tokenizer.encode(text, add_special_tokens=False).ids]) for name, text in windows(args.suite or os.path.join(args.model, "suite"))]

    teacher = Comparison(model)
    for name, ids in [t for t in texts if len(t[1]) >= args.text_tokens][: args.texts]:
        ids = ids[: args.text_tokens]
        teacher.add(name, ids, 0, engine.logits(ids))
    report: dict[str, Any] = {"texts": teacher.report()}
    ids = texts[0][1][: args.restatement_tokens]
    report["restatement"] = restatement(args.model, ids, engine.logits(ids))

    # Greedy: PyTorch judges each token that the engine chose behind the same tokens. A tie is near when the summation order
    # alone moves logits by as much: twice the largest of what it moved in 99 % of the positions.
    written = Comparison(model)
    choices: list[dict[str, Any]] = []
    for name, ids in [t for t in texts if len(t[1]) >= args.prompt_tokens][-args.prompts :]:
        prompt = ids[: args.prompt_tokens]
        answer = engine.continuation(prompt, args.answer_tokens)
        whole = prompt + answer[:-1]
        a = written.add(name, whole, len(prompt) - 1, engine.logits(whole))
        for i, token in enumerate(answer):
            best = int(a[i].argmax())
            if best != token:
                choices.append({"text": name, "step": i, "engine": tokenizer.decode([token]), "pytorch": tokenizer.decode([best]),
                                "gap": float(a[i, best] - a[i, token])})
    greedy = written.report()
    near = 2 * greedy["difference"]["pytorch_reversed"]["p99"]
    greedy.update({"tokens": args.answer_tokens * args.prompts, "prompts": args.prompts, "near_tie": near, "other_choices": choices,
                   "other_choices_beyond_near_ties": sum(c["gap"] > near for c in choices)})
    report["greedy"] = greedy
    report["seconds"] = time.time() - started
    text = json.dumps(report, indent=1, ensure_ascii=False)
    print(text)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            f.write(text + "\n")


if __name__ == "__main__":
    main()
