"""The text backbone and the DSpark drafter in PyTorch: weights, batches with packed documents, the forward (model.md 0, 3, 4).

Weights: float32 masters, grouped by kind and shape; `refresh` writes their values on the storage grid (FP8, FP4, BF16) into the
working copies that the forward reads. Gradients arrive at the working copies, which is the straight-through estimator.
A batch is B rows of T tokens; documents are packed behind each other, start at a multiple of 8, and do not see each other.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator

import numpy as np
import torch
import torch.nn.functional as F

import layers as L
import quant
from shapes import Json, Role, Spec, first_decoder_layer, layer_roles, mixer_base, parameter_specs, primes_from
from sinkhorn import sinkhorn

Tensor = torch.Tensor
GRIDS: dict[str, Callable[[Tensor], Tensor]] = {
    "fp8": quant.fp8_block_grid, "fp4": quant.fp4_row_grid, "table": quant.fp8_row_grid, "bf16": lambda w: w, "f32": lambda w: w,
}


class Group:
    """Tensors of one kind and shape, stacked: masters, working copies and gradients each lie in one buffer."""

    def __init__(self, spec: Spec, names: list[str], device: torch.device) -> None:
        self.spec, self.names = spec, names
        shape = (len(names), *spec.shape)
        dtype = torch.float32 if spec.kind == "f32" else torch.bfloat16
        self.master = torch.empty(shape, device=device)
        self.work = torch.empty(shape, dtype=dtype, device=device)
        self.grad = torch.zeros(shape, dtype=dtype, device=device)
        self.leaves = [self.work[i].detach().requires_grad_() for i in range(len(names))]
        for i, leaf in enumerate(self.leaves):
            leaf.grad = self.grad[i]

    def refresh(self) -> None:
        grid = GRIDS[self.spec.kind]
        flat = self.master.reshape(-1, self.master.shape[-1]) if self.spec.kind != "f32" else self.master
        self.work.copy_(grid(flat).reshape(self.master.shape))


class Weights:
    """All groups of a model, and the router biases, which no gradient reaches."""

    def __init__(self, config: Json, device: torch.device, seed: int = 0) -> None:
        self.config = config
        text = config["text_config"]
        self.specs = parameter_specs(config)
        by_key: dict[tuple[Any, ...], list[str]] = {}
        for name, spec in self.specs.items():
            part = "mtp" if name.startswith("mtp.") else "main"
            by_key.setdefault((part, spec.kind, spec.shape, _role_of(name)), []).append(name)
        self.groups = [Group(self.specs[names[0]], names, device) for names in by_key.values()]
        self.index = {n: (g, i) for g in self.groups for i, n in enumerate(g.names)}
        self.leaf = {n: g.leaves[i] for n, (g, i) in self.index.items()}
        self.bias: dict[str, Tensor] = {}
        self._initialize(seed, device)
        for layer in range(text["num_hidden_layers"]):
            self.bias[f"layers.{layer}.ffn"] = torch.zeros(text["n_routed_experts"], device=device)
        for stage in range(text["num_nextn_predict_layers"]):
            self.bias[f"mtp.{stage}.ffn"] = torch.zeros(text["dspark_n_routed_experts"], device=device)

    def _initialize(self, seed: int, device: torch.device) -> None:
        text = self.config["text_config"]
        generator = torch.Generator().manual_seed(seed)
        for name, spec in self.specs.items():
            master = self.master(name)
            if spec.std:
                master.copy_(torch.randn(spec.shape, generator=generator) * spec.std)
            else:
                master.fill_(spec.fill)
            if name.endswith(("hc_attn_base", "hc_ffn_base")):
                layer = int(name.split(".")[1])
                layer = layer if name.startswith("layers.") else layer + text["num_hidden_layers"] - text["num_nextn_predict_layers"]
                master.copy_(torch.tensor(mixer_base(text, layer, "attn" if "attn" in name else "ffn")))
        self.refresh()

    def master(self, name: str) -> Tensor:
        group, i = self.index[name]
        return group.master[i]

    @torch.no_grad()
    def refresh(self) -> None:
        for group in self.groups:
            group.refresh()

    def zero_grad(self) -> None:
        for group in self.groups:
            group.grad.zero_()

    def state(self) -> dict[str, Tensor]:
        out = {n: self.master(n) for n in self.specs}
        out.update({n + ".bias": b for n, b in self.bias.items()})
        return out

    @torch.no_grad()
    def load(self, state: dict[str, Tensor]) -> None:
        for name in self.specs:
            self.master(name).copy_(state[name].float())
        for name, bias in self.bias.items():
            bias.copy_(state[name + ".bias"].float())
        self.refresh()


def _role_of(name: str) -> str:
    """Tensors of one role share a group: the optimizer treats a group alike."""
    parts = name.split(".")
    return ".".join(p for p in parts if not p.isdigit())


# ---- batches ----------------------------------------------------------------------------------------------------------

@dataclass
class Batch:
    """B rows of T tokens (T a multiple of the window). Everything lies on the model's device."""

    ids: Tensor  # [B, T] int64
    doc: Tensor  # [B, T] int32, ascending within a row
    pos: Tensor  # [B, T] int32, within the document
    target: Tensor  # [B, T] int64, the next token
    weight: Tensor  # [B, T] float32, of the loss of the next token; 0 where there is none
    cut_encoder: Tensor | None = None  # [B, T] int32: windows do not reach over a change of the value
    cut_decoder: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.ids.shape[0], self.ids.shape[1]


@dataclass
class Mode:
    """How a forward runs."""

    sparse: bool = True  # selections are used; else every visible compressed row is attended
    learn_index: bool = False  # collect the indexer's distillation loss
    gather: bool = False  # selected rows are gathered instead of masked: for long sequences; needs sparse, no learn_index
    taps: bool = False


@dataclass
class Output:
    x: Tensor  # [N, D] after the final norm
    index_loss: Tensor | float = 0.0
    loads: dict[str, Tensor] = field(default_factory=dict)  # layer -> tokens per expert
    taps: list[Tensor] = field(default_factory=list)  # [N, D] each
    selections: dict[int, Tensor] = field(default_factory=dict)  # index source -> [B, T, K], -1 = none; only on request


class Positions:
    """Rotation tables of a batch and its visibility masks."""

    def __init__(self, batch: Batch, text: Json, window_freq: Tensor, compressed_freq: Tensor) -> None:
        b, t = batch.shape
        w = text["sliding_window"]
        angle = batch.pos.float()[..., None]
        self.cos, self.sin = {}, {}
        for name, freq in (("window", window_freq), ("compressed", compressed_freq)):
            theta = angle * freq
            self.cos[name], self.sin[name] = theta.cos(), theta.sin()  # [B, T, r/2]
        self.window = [self._window_mask(batch, w, cut) for cut in (batch.cut_encoder, batch.cut_decoder)]
        self.compressed: dict[int, Tensor] = {}
        self.t, self.b = t, b
        self.batch = batch

    @staticmethod
    def _window_mask(batch: Batch, w: int, cut: Tensor | None) -> Tensor:
        """[B, T, 2W]: column j of block n is position (n-1)W + j."""
        b, t = batch.shape
        device = batch.ids.device
        # Documents and cuts become one number; two positions may meet iff they are equal.
        key = batch.doc.long() if cut is None else batch.doc.long() * 65536 + cut.long()
        blocks = key.reshape(b, t // w, w)
        before = F.pad(blocks, (0, 0, 1, 0), value=-1)[:, :-1]
        keys = torch.cat([before, blocks], dim=2)  # [B, n, 2W]
        same = (blocks[..., None] == keys[:, :, None]).reshape(b, t, 2 * w)
        i = torch.arange(t, device=device) % w
        j = torch.arange(2 * w, device=device)
        band = (j[None] > i[:, None]) & (j[None] <= i[:, None] + w)
        return same & band[None]

    def rows_mask(self, ratio: int) -> Tensor:
        """[B, T, J]: row j is closed and of the same document."""
        if ratio not in self.compressed:
            first = self.batch.doc[:, ::ratio]
            j = torch.arange(first.shape[1], device=first.device)
            t = torch.arange(self.t, device=first.device)
            closed = (j[None] * ratio + ratio - 1) <= t[:, None]
            self.compressed[ratio] = (self.batch.doc[:, :, None] == first[:, None]) & closed[None]
        return self.compressed[ratio]

    def rotation(self, kind: str, step: int = 1) -> tuple[Tensor, Tensor]:
        cos, sin = self.cos[kind][:, ::step], self.sin[kind][:, ::step]
        return cos.reshape(-1, cos.shape[-1]), sin.reshape(-1, sin.shape[-1])


def frequencies(text: Json) -> tuple[Tensor, Tensor]:
    """[r/2] float32 of the window layers, and with YaRN of the compressed layers (model.md 2.4)."""
    r = text["qk_rope_head_dim"]
    i = np.arange(r // 2)

    def plain(base: float) -> np.ndarray:
        return np.float32(1) / np.power(np.float64(base), 2 * i / r).astype(np.float32)

    y = text["rope_scaling"]
    base = text["compress_rope_theta"]

    def correction(rotations: float) -> float:
        return r * math.log(y["original_max_position_embeddings"] / (2 * math.pi * rotations)) / (2 * math.log(base))

    low, high = max(math.floor(correction(y["beta_fast"])), 0), min(math.ceil(correction(y["beta_slow"])), r - 1)
    ramp = np.clip((i - low).astype(np.float32) / np.float32(high - low), 0, 1).astype(np.float32)
    f = plain(base)
    f = f / np.float32(y["factor"]) * ramp + f * (np.float32(1) - ramp)
    return torch.from_numpy(plain(text["rope_theta"])), torch.from_numpy(f.astype(np.float32))


_FUNCTIONS = ("enter expand engram attention_input attention_output latent compressed_rows index_keys index_scores "
              "attend_window attend_masked attend_gathered attend_block moe index_loss cross_entropy rms_norm collapse").split()


# ---- the model --------------------------------------------------------------------------------------------------------

class Model:
    """Weights plus what the forward needs beside them: frequencies, Engram tables' addresses, compiled functions."""

    def __init__(self, config: Json, classes: np.ndarray, device: str = "cpu", seed: int = 0, compiled: str = "") -> None:
        """`compiled` names a torch.compile backend; empty runs everything eagerly."""
        self.config, self.text = config, config["text_config"]
        self.device = torch.device(device)
        self.weights = Weights(config, self.device, seed)
        self.roles = layer_roles(self.text)
        self.decoder = first_decoder_layer(self.text)
        self.freq = [f.to(self.device) for f in frequencies(self.text)]
        self._init_engram(classes)
        self.plain = {n: getattr(L, n) for n in _FUNCTIONS}
        wrap: Callable[..., Any] = (lambda f: torch.compile(f, dynamic=False, fullgraph=True, backend=compiled)) if compiled else (lambda f: f)
        self.f = {n: wrap(f) for n, f in self.plain.items()}

    @contextlib.contextmanager
    def eager(self) -> Iterator[None]:
        """Without the compiler: for shapes that occur once."""
        compiled, self.f = self.f, self.plain
        try:
            yield
        finally:
            self.f = compiled

    def _init_engram(self, classes: np.ndarray) -> None:
        t = self.text
        self.classes = torch.from_numpy(classes.astype(np.int64)).to(self.device)
        assert int(classes.max()) + 1 == t["engram_compressed_vocab_size"]
        self.pad_class = int(classes[t["engram_pad_token_id"]])
        columns = (t["engram_max_ngram_size"] - 1) * t["engram_n_heads"]
        primes = primes_from(t["engram_vocab_size"], columns * len(t["engram_layer_ids"]))
        self.engram_tables = {}
        for i, layer in enumerate(t["engram_layer_ids"]):
            own = np.array(primes[i * columns : (i + 1) * columns], np.int64)
            bound = max(1, ((2**63 - 1) // t["engram_compressed_vocab_size"]) // 2)
            draw = np.random.default_rng(10007 * layer).integers(0, bound, size=t["engram_max_ngram_size"], dtype=np.int64)
            offsets = np.concatenate([[0], np.cumsum(own)[:-1]])
            self.engram_tables[layer] = tuple(torch.from_numpy(a).to(self.device) for a in (2 * draw + 1, own, offsets))

    def w(self, name: str) -> Tensor:
        return self.weights.leaf[name]

    # ---- pieces -------------------------------------------------------------------------------------------------------

    def engram_rows(self, layer: int, batch: Batch) -> Tensor:
        """[N, columns] table row numbers (model.md 3.3)."""
        mult, primes, offsets = self.engram_tables[layer]
        heads, size = self.text["engram_n_heads"], self.text["engram_max_ngram_size"]
        c = self.classes[batch.ids]
        roll = torch.zeros_like(c)
        columns = []
        for back in range(size):
            shifted = F.pad(c, (back, 0))[:, : c.shape[1]]
            value = torch.where(batch.pos >= back, shifted, self.pad_class)
            roll = roll ^ (value * mult[back])
            if back:
                at = slice((back - 1) * heads, back * heads)
                columns.append(roll[..., None] % primes[at] + offsets[at])
        return torch.cat(columns, dim=-1).reshape(c.numel(), -1)

    def sublayer(self, h: Tensor, m: Tensor, name: str, part: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x, pre, post, logits = self.f["enter"](
            h, m, self.w(f"{name}.hc_{part}_fn"), self.w(f"{name}.hc_{part}_scale"), self.w(f"{name}.hc_{part}_base"),
            self.w(f"{name}.{part}_norm.weight"))
        return x, pre, post, sinkhorn(logits, self.text["hc_eps"], self.text["hc_sinkhorn_iters"])

    def attention_input(self, x: Tensor, a: str, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.f["attention_input"](x, *(self.w(f"{a}.{n}.weight") for n in ("wq_a", "q_norm", "wq_b", "wkv", "kv_norm")), cos, sin)

    def attention_output(self, o: Tensor, a: str, cos: Tensor, sin: Tensor) -> Tensor:
        return self.f["attention_output"](o, cos, sin, self.w(a + ".wo_a.weight"), self.w(a + ".wo_b.weight"), self.text["o_groups"])

    def feed_forward(self, x: Tensor, f: str, k: int, out: Output) -> Tensor:
        y, load = self.f["moe"](x, self.w(f + ".gate.weight"), self.weights.bias[f], self.w(f + ".experts.w13"),
                                self.w(f + ".experts.w2"), self.w(f + ".shared_experts.w13"), self.w(f + ".shared_experts.w2.weight"), k)
        out.loads[f] = load.detach()
        return y

    # ---- the backbone -------------------------------------------------------------------------------------------------

    def forward(self, batch: Batch, mode: Mode) -> Output:
        t = self.text
        b, length = batch.shape
        p = Positions(batch, t, *self.freq)
        out = Output(x=torch.empty(0))
        shared = _Shared()
        h = F.embedding(batch.ids.reshape(-1), self.w("embed.weight"))[:, None].expand(-1, t["hc_mult"], -1)
        m = torch.zeros(h.shape[0], t["hc_mult"], device=self.device)
        m[:, 0] = 1
        for layer, role in enumerate(self.roles):
            name = f"layers.{layer}"
            if layer in t["engram_layer_ids"]:
                rows = self.engram_rows(layer, batch)
                e = F.embedding(rows, self.w(name + ".engram.embed.weight")).flatten(1)
                h = self.f["engram"](h.contiguous(), e, *(self.w(f"{name}.engram.{n}") for n in ("wkv.weight", "q_weight", "k_weight")))
            if mode.taps and layer in t["dspark_target_layer_ids"]:
                out.taps.append(h.float().mean(dim=1).to(L.BF16))
            x, pre, post, comb = self.sublayer(h.contiguous(), m, name, "attn")
            y = self.attention(layer, role, x, p, mode, shared, out)
            h = self.f["expand"](h.contiguous(), y, post, comb)
            x, m, post, comb = self.sublayer(h, pre, name, "ffn")
            y = self.feed_forward(x, name + ".ffn", t["num_experts_per_tok"], out)
            h = self.f["expand"](h, y, post, comb)
        out.x = self.f["rms_norm"](self.f["collapse"](m, h), self.w("norm.weight"))
        if mode.learn_index:
            out.index_loss = self._index_loss(shared, batch.weight)
        return out

    def attention(self, layer: int, role: Role, x: Tensor, p: Positions, mode: Mode, shared: "_Shared", out: Output) -> Tensor:
        a = f"layers.{layer}.attn"
        cos, sin = p.rotation("compressed" if role.ratio else "window")
        qr, q, kv = self.attention_input(x, a, cos, sin)
        q, kv = q.reshape(p.b, p.t, *q.shape[1:]), kv.reshape(p.b, p.t, -1)
        mask_w = p.window[1 if layer >= self.decoder else 0]
        sink = self.w(a + ".attn_sink")
        if role.ratio == 0:
            o = self.f["attend_window"](q, kv, mask_w, sink)
        else:
            visible = p.rows_mask(role.ratio)
            if role.kind == "FULL":
                self._compress(layer, role.ratio, x, p, shared)
            if role.kind in ("FULL", "REINDEX") and (mode.sparse or mode.learn_index):
                self._select(layer, role, x, qr, p, mode, shared, out)
            rows = shared.rows[role.owner]
            if mode.sparse and mode.gather:
                o = self.f["attend_gathered"](q, kv, rows, mask_w, *shared.picked[role.source], sink)
            else:
                mask_c = shared.selected[role.source] if mode.sparse else visible
                o, mass = self.f["attend_masked"](q, kv, rows, mask_w, mask_c, sink)
                if mode.learn_index:
                    shared.mass.setdefault(role.source, []).append(mass)
        return self.attention_output(o.reshape(-1, *o.shape[2:]), a, cos, sin)

    def _compress(self, layer: int, ratio: int, x: Tensor, p: Positions, shared: "_Shared") -> None:
        c = f"layers.{layer}.attn.compressor."
        gate = self.w(c + "wgate.weight") if ratio == 2 else None
        latent = self.f["latent"](x, self.w(c + "wkv.weight"), gate, self.w(c + "norm.weight"))
        cos, sin = p.rotation("compressed", ratio)
        shared.rows[layer] = self.f["compressed_rows"](latent, cos, sin).reshape(p.b, p.t // ratio, -1)
        shared.latents[layer] = latent.detach()

    def _select(self, layer: int, role: Role, x: Tensor, qr: Tensor, p: Positions, mode: Mode, shared: "_Shared", out: Output) -> None:
        """The indexer sees the trunk without passing gradients back; only its own loss trains it."""
        a, owner = f"layers.{layer}.attn.indexer.", f"layers.{role.owner}.attn.indexer."
        t = self.text
        with torch.set_grad_enabled(mode.learn_index and torch.is_grad_enabled()):
            if role.kind == "FULL":
                cos, sin = p.rotation("compressed", role.ratio)
                keys = self.f["index_keys"](shared.latents[layer], self.w(owner + "wk.weight"), self.w(owner + "k_norm.weight"), cos, sin)
                shared.keys[layer] = keys.reshape(p.b, p.t // role.ratio, -1)
            cos, sin = p.rotation("compressed")
            score = self.f["index_scores"](x.detach(), qr.detach(), shared.keys[role.owner], self.w(a + "wq_b.weight"),
                                           self.w(a + "weights_proj.weight"), cos, sin)
        if mode.learn_index:
            shared.scores[layer] = (score, p.rows_mask(role.ratio))
        if not mode.sparse:
            return
        with torch.no_grad():
            score, allowed = score.detach(), p.rows_mask(role.ratio)
            if layer == t["candidate_source_layer_id"]:
                shared.candidates = L.candidate_mask(score, allowed, t["candidate_block_size"], t["candidate_topk_blocks"])
            elif shared.candidates is not None and layer > t["candidate_source_layer_id"]:
                allowed = shared.candidates
            picked, valid = L.top_rows(score, allowed, t["index_topk"])
            if mode.gather:
                shared.picked[layer] = (picked, valid)
            else:
                shared.selected[layer] = L.as_mask(picked, valid, score.shape[-1])
            if L.is_exact():
                out.selections[layer] = torch.where(valid, picked, -1)

    def _index_loss(self, shared: "_Shared", weight: Tensor) -> Tensor:
        """Every layer that reads a selection votes for what its source should have scored high. Queries count by the weight of
        what they predict: most tokens of a long text need nothing from afar, and would drown the few that do."""
        total = torch.zeros((), device=self.device)
        candidate = self.text["candidate_source_layer_id"]
        for source, (score, allowed) in shared.scores.items():
            masses = shared.mass[source]
            if source == candidate:  # later groups choose among its candidates only: it must score high what they look for
                masses = masses + [m for s, later in shared.mass.items() if s > candidate for m in later]
            mass = sum(m.float() for m in masses) / len(masses)
            total = total + self.f["index_loss"](score, allowed, mass.to(L.BF16), weight)
        return total / weight.sum().clamp(min=1)

    # ---- losses -------------------------------------------------------------------------------------------------------

    def loss(self, x: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Weighted mean over the batch, and the loss of every token [B, T] without gradient."""
        total, each = self.f["cross_entropy"](x, self.w("head.weight"), batch.target.reshape(-1), batch.weight.reshape(-1))
        return total / batch.weight.sum().clamp(min=1e-6), each.reshape(batch.shape)

    def logits(self, x: Tensor) -> Tensor:
        return L.linear_f32(x, self.w("head.weight"))


class _Shared:
    """What owners and index sources leave for later layers."""

    def __init__(self) -> None:
        self.rows: dict[int, Tensor] = {}
        self.latents: dict[int, Tensor] = {}
        self.keys: dict[int, Tensor] = {}
        self.scores: dict[int, tuple[Tensor, Tensor]] = {}
        self.mass: dict[int, list[Tensor]] = {}
        self.selected: dict[int, Tensor] = {}
        self.picked: dict[int, tuple[Tensor, Tensor]] = {}
        self.candidates: Tensor | None = None
