"""The text backbone of DeepSeek-V4.1-Flash, restated in NumPy from model.md sections 0 to 3.

A whole prompt from position 0 in one call; no cache, no chunks, no draft stages, no vision. Written to be compared with,
not to be fast: every rounding point of model.md is a `store`, every sum has the order of `numerics`.

Two modes:
  * compute="bf16": the official arithmetic. `store` rounds to bfloat16.
  * compute="f32": `store` is the identity. The window, compressed-row and index quantizers still apply (they are part of
    the model); the input of a linear op is Q8-quantized only where its weight is FP8 or FP4, in both modes.

Shapes: T tokens, C = hc_mult streams, D hidden, H heads, d head_dim, r rope dims, W window, J compressed rows.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import engram_address
import numerics as nx
from checkpoint_io import Checkpoint
from numerics import F32, F64


class Capture:
    """Named intermediate values. Names are `<layer>.<part>.<point>`; a disabled capture keeps nothing."""

    def __init__(self, enabled: bool = True) -> None:
        self.enabled = enabled
        self.values: dict[str, np.ndarray] = {}

    def __call__(self, name: str, value: np.ndarray) -> np.ndarray:
        if self.enabled:
            self.values[name] = np.array(value)
        return value


@dataclass(frozen=True)
class LayerRole:
    """What a layer does besides its window (model.md 0): ratio, where its rows and its selection come from."""

    kind: str  # WINDOW, FULL, REINDEX, REUSE
    ratio: int
    owner: int  # layer whose compressed rows it reads, -1 for WINDOW
    index_source: int  # layer whose selection it reads, -1 for WINDOW


def layer_roles(text: dict[str, Any]) -> list[LayerRole]:
    roles: list[LayerRole] = []
    owner = source = -1
    for layer in range(text["num_hidden_layers"]):
        ratio = text["compress_ratios"][layer]
        if ratio == 0:
            roles.append(LayerRole("WINDOW", 0, -1, -1))
            continue
        is_kv, is_index = layer in text["kv_source_layer_ids"], layer in text["index_source_layer_ids"]
        owner = layer if is_kv else owner
        source = layer if is_index else source
        roles.append(LayerRole("FULL" if is_kv else "REINDEX" if is_index else "REUSE", ratio, owner, source))
    return roles


def rope_frequencies(r: int, base: float, yarn: dict[str, Any] | None) -> np.ndarray:
    """[r/2] float32, model.md 2.4."""
    i = np.arange(r // 2)
    f = nx.div(F32(1), np.power(F64(base), 2 * i / r).astype(F32))
    if yarn is None:
        return f

    def correction(rotations: float) -> float:
        return r * math.log(yarn["original_max_position_embeddings"] / (2 * math.pi * rotations)) / (2 * math.log(base))

    low = max(math.floor(correction(yarn["beta_fast"])), 0)
    high = min(math.ceil(correction(yarn["beta_slow"])), r - 1)
    ramp = np.clip(nx.div((i - low).astype(F32), F32(high - low)), F32(0), F32(1))
    keep = nx.sub(F32(1), ramp)
    return nx.add(nx.mul(nx.div(f, F32(yarn["factor"])), ramp), nx.mul(f, keep))


def rope_table(positions: np.ndarray, frequencies: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[n] positions -> cos, sin [n, r/2]: float32 of the double functions of the float32 angle."""
    angle = nx.mul(positions.astype(F32)[:, None], frequencies[None, :]).astype(F64)
    return np.cos(angle).astype(F32), np.sin(angle).astype(F32)


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: F32) -> np.ndarray:
    """[..., N] -> [..., N], before the store: w * (x * rsqrt(mean x^2 + eps)), model.md 2.3."""
    r = nx.rsqrt_mean(nx.dot16(x, x), x.shape[-1], eps)
    return nx.mul(weight, nx.mul(x, r[..., None]))


def mhc_coefficients(
    z: np.ndarray, scale: np.ndarray, base: np.ndarray, eps: F32, iters: int, c: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """z [T, 2c + c*c] -> pre [T, c], post [T, c], comb [T, c, c] (row = old stream), model.md 2.9."""
    pre = nx.add(nx.sigmoid(nx.add(nx.mul(z[:, :c], scale[0]), base[:c])), eps)
    post = nx.mul(F32(2), nx.sigmoid(nx.add(nx.mul(z[:, c : 2 * c], scale[1]), base[c : 2 * c])))
    m = nx.add(nx.mul(z[:, 2 * c :], scale[2]), base[2 * c :]).reshape(-1, c, c)
    m = nx.exp(nx.sub(m, m.max(axis=-1, keepdims=True)))
    m = nx.add(nx.div(m, nx.sum_ascending(m)[..., None]), eps)

    def by_columns(x: np.ndarray) -> np.ndarray:
        return nx.div(x, nx.add(nx.sum_ascending(np.swapaxes(x, 1, 2)), eps)[:, None, :])

    def by_rows(x: np.ndarray) -> np.ndarray:
        return nx.div(x, nx.add(nx.sum_ascending(x), eps)[..., None])

    m = by_columns(m)
    for _ in range(iters - 1):
        m = by_columns(by_rows(m))
    return pre, post, m


def engram_gate(dot: np.ndarray) -> np.ndarray:
    """sigmoid(copysign(sqrt(max(|dot|, 1e-6)), dot)), model.md 2.10."""
    return nx.sigmoid(np.copysign(np.sqrt(np.maximum(np.abs(dot), F32(1e-6))), dot))


def router_scores(logits: np.ndarray) -> np.ndarray:
    return np.sqrt(nx.softplus(logits))


def pick_largest(values: np.ndarray, k: int) -> np.ndarray:
    """Indices of the k largest entries of one row, the smaller index first among equals; ascending by index."""
    return np.sort(np.argsort(-values, kind="stable")[:k])


def padded(rows: list[np.ndarray], width: int | None = None) -> np.ndarray:
    """Ragged integer rows -> [T, width] int32, filled up with -1."""
    width = max([len(r) for r in rows] + [1]) if width is None else width
    out = np.full((len(rows), width), -1, np.int32)
    for i, r in enumerate(rows):
        out[i, : len(r)] = r
    return out


@dataclass
class Result:
    """What a forward returns."""

    logits: np.ndarray  # [T, V] float32
    residuals: list[np.ndarray] = field(default_factory=list)  # per layer [T, C, D] float32, after the layer
    selected: dict[int, np.ndarray] = field(default_factory=dict)  # index source -> [T, topk] int32, -1 = none
    blocks: dict[int, np.ndarray] = field(default_factory=dict)  # candidate source -> [T, blocks] int32, -1 = none
    index_scores: dict[int, np.ndarray] = field(default_factory=dict)  # index source -> [T, J], -inf = not allowed
    window_rows: list[np.ndarray] = field(default_factory=list)  # per layer [T, d]
    compressed_rows: dict[int, np.ndarray] = field(default_factory=dict)  # owner -> [J, d]
    index_keys: dict[int, np.ndarray] = field(default_factory=dict)  # owner -> [J, index dim]
    router_margin: list[np.ndarray] = field(default_factory=list)  # per layer [T]: last picked minus first not picked


class ReferenceModel:
    """One checkpoint in one compute mode."""

    def __init__(self, checkpoint: Checkpoint, compute: str = "bf16") -> None:
        if compute not in ("bf16", "f32"):
            raise ValueError("compute is bf16 or f32")
        self.ckpt = checkpoint
        self.store = nx.to_bf16 if compute == "bf16" else nx.identity
        self.cfg: dict[str, Any] = checkpoint.config["text_config"]
        c = self.cfg
        self.eps = F32(c["rms_norm_eps"])
        self.streams: int = c["hc_mult"]
        self.rope_dims: int = c["qk_rope_head_dim"]
        self.roles = layer_roles(c)
        self.freq_window = rope_frequencies(self.rope_dims, c["rope_theta"], None)
        self.freq_compressed = rope_frequencies(self.rope_dims, c["compress_rope_theta"], c["rope_scaling"])
        self.forced_selection: dict[int, np.ndarray] = {}  # index source -> [T, n] to use instead of the own pick
        self.forced_experts: dict[int, np.ndarray] = {}  # layer -> [T, k] to use instead of the own pick
        if c["engram_layer_ids"]:
            path = os.path.join(checkpoint.folder, "tokenizer.json")
            self.classes = engram_address.load_token_classes(path, c["vocab_size"])
            count = int(self.classes.max()) + 1
            assert count == c["engram_compressed_vocab_size"], (count, c["engram_compressed_vocab_size"])
            self.primes = engram_address.table_primes(
                c["engram_vocab_size"], len(c["engram_layer_ids"]), c["engram_max_ngram_size"] - 1, c["engram_n_heads"]
            )
            assert [int(p.sum()) for p in self.primes] == c["engram_num_embeddings"]

    # ---- pieces -------------------------------------------------------------------------------------------------------

    def w(self, name: str) -> np.ndarray:
        return nx.daz(self.ckpt.tensor(name))

    def input_of(self, x: np.ndarray, *names: str) -> np.ndarray:
        """The operand that `names` see: Q8 if their weight is FP8/FP4, x itself otherwise (model.md 2.2)."""
        kinds = {self.ckpt.is_quantized(n + ".weight") for n in names}
        assert len(kinds) == 1, names
        return nx.q8(x) if kinds.pop() else x

    def linear(self, x: np.ndarray, name: str) -> np.ndarray:
        """[T, K] -> [T, N] float32, not stored; x is already what input_of returns."""
        return nx.linear(x, self.w(name + ".weight"))

    def norm(self, x: np.ndarray, name: str) -> np.ndarray:
        return self.store(rms_norm(x, self.w(name), self.eps))

    def rotate(self, x: np.ndarray, positions: np.ndarray, frequencies: np.ndarray, inverse: bool = False) -> np.ndarray:
        """RoPE on the last r channels, adjacent pairs; x [n, ..., dim], positions [n] (model.md 2.4)."""
        cos, sin = rope_table(positions, frequencies)
        middle = tuple(range(1, x.ndim - 1))
        cos, sin = np.expand_dims(cos, middle), np.expand_dims(sin, middle)
        sin = -sin if inverse else sin
        head, tail = x[..., : -self.rope_dims], x[..., -self.rope_dims :]
        a, b = tail[..., 0::2], tail[..., 1::2]
        out = np.empty_like(tail)
        out[..., 0::2] = nx.fma(a, cos, -nx.mul(b, sin))
        out[..., 1::2] = nx.fma(a, sin, nx.mul(b, cos))
        return np.concatenate([head, self.store(out)], axis=-1)

    def mix(self, h: np.ndarray, prefix: str, cap: Capture, at: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """mHC coefficients of streams h [T, C, D]."""
        c = self.cfg
        v = h.reshape(h.shape[0], -1)
        rho = nx.rsqrt_mean(nx.dot16(v, v), v.shape[1], self.eps)
        z = cap(f"{at}.z", nx.mul(nx.linear(v, self.w(prefix + "_fn")), rho[:, None]))
        pre, post, comb = mhc_coefficients(
            z, self.w(prefix + "_scale"), self.w(prefix + "_base"), F32(c["hc_eps"]), c["hc_sinkhorn_iters"], self.streams
        )
        return cap(f"{at}.pre", pre), cap(f"{at}.post", post), cap(f"{at}.comb", comb)

    def collapse(self, m: np.ndarray, h: np.ndarray) -> np.ndarray:
        """m [T, C], h [T, C, D] -> [T, D]."""
        acc = nx.mul(m[:, 0, None], h[:, 0])
        for i in range(1, self.streams):
            acc = nx.fma(m[:, i, None], h[:, i], acc)
        return self.store(acc)

    def expand(self, post: np.ndarray, comb: np.ndarray, y: np.ndarray, h: np.ndarray) -> np.ndarray:
        """y [T, D], h [T, C, D] -> new h [T, C, D]."""
        out = np.empty_like(h)
        for j in range(self.streams):
            acc = nx.mul(post[:, j, None], y)
            for i in range(self.streams):
                acc = nx.fma(comb[:, i, j, None], h[:, i], acc)
            out[:, j] = self.store(acc)
        return out

    # ---- Engram, model.md 2.10 and 3 ----------------------------------------------------------------------------------

    def engram(self, layer: int, h: np.ndarray, ids: np.ndarray, cap: Capture) -> np.ndarray:
        c, p, at = self.cfg, f"layers.{layer}.engram.", f"L{layer}.engram"
        mult = engram_address.multipliers(layer, c["engram_compressed_vocab_size"], c["engram_max_ngram_size"])
        primes = self.primes[c["engram_layer_ids"].index(layer)]
        pad_class = int(self.classes[c["engram_pad_token_id"]])
        rows = cap(f"{at}.rows", engram_address.row_numbers(self.classes[ids], mult, primes, pad_class))
        e = cap(f"{at}.e", self.store(self.w(p + "embed.weight")[rows].reshape(len(ids), -1)))
        u = cap(f"{at}.u", self.store(self.linear(self.input_of(e, p + "wkv"), p + "wkv")))
        D = c["hidden_size"]
        value = u[:, self.streams * D :]
        gamma = np.empty((len(ids), self.streams), F32)
        dots = np.empty_like(gamma)
        out = np.empty_like(h)
        for s in range(self.streams):
            key = u[:, s * D : (s + 1) * D]
            rq = nx.rsqrt_mean(nx.dot16(h[:, s], h[:, s]), D, self.eps)
            rk = nx.rsqrt_mean(nx.dot16(key, key), D, self.eps)
            qk = nx.mul(self.w(p + "q_weight")[s], self.w(p + "k_weight")[s])
            dot = nx.mul(nx.dot16(nx.mul(h[:, s], qk), key), nx.mul(rq, rk))
            dots[:, s] = nx.mul(dot, F32(F64(D) ** -0.5))
            gamma[:, s] = engram_gate(dots[:, s])
            out[:, s] = self.store(nx.fma(gamma[:, s, None], value, h[:, s]))
        cap(f"{at}.dot", dots)
        cap(f"{at}.gate", gamma)
        return cap(f"{at}.h", out)

    # ---- attention, model.md 2.5 to 2.7 -------------------------------------------------------------------------------

    def compress(self, layer: int, ratio: int, x: np.ndarray, cap: Capture) -> np.ndarray:
        """x [T, D] -> un-rotated latents [J, d] of the closed groups."""
        p, at = f"layers.{layer}.attn.compressor.", f"L{layer}.comp"
        operand = self.input_of(x, p + "wkv")
        v = self.linear(operand, p + "wkv")
        if ratio == 1:
            pooled = cap(f"{at}.pooled", self.store(v))
        else:
            assert ratio == 2
            g = cap(f"{at}.g", self.linear(operand, p + "wgate"))
            cap(f"{at}.v", v)
            closed = x.shape[0] // 2
            v0, v1, g0, g1 = (a[i : 2 * closed : 2] for a in (v, g) for i in (0, 1))
            top = np.maximum(g0, g1)
            e0, e1 = nx.exp(nx.sub(g0, top)), nx.exp(nx.sub(g1, top))
            s = nx.add(e0, e1)
            pooled = cap(f"{at}.pooled", self.store(nx.fma(nx.div(e1, s), v1, nx.mul(nx.div(e0, s), v0))))
        return cap(f"{at}.latent", self.norm(pooled, p + "norm.weight"))

    def index_scores(
        self, layer: int, ratio: int, x: np.ndarray, qr_in: np.ndarray, keys: np.ndarray, cap: Capture
    ) -> np.ndarray:
        """Scores [T, J] of every row, -inf where a row is not closed yet."""
        c, p, at = self.cfg, f"layers.{layer}.attn.indexer.", f"L{layer}.index"
        heads, dim, T = c["index_n_heads"], c["index_head_dim"], x.shape[0]
        positions = np.arange(T)
        q = cap(f"{at}.q_raw", self.store(self.linear(qr_in, p + "wq_b")).reshape(T, heads, dim))
        q = cap(f"{at}.q_rope", self.rotate(q, positions, self.freq_compressed))
        q = cap(f"{at}.q", nx.q4_index(q))
        raw = self.store(self.linear(self.input_of(x, p + "weights_proj"), p + "weights_proj"))
        weight = cap(f"{at}.w", self.store(nx.mul(cap(f"{at}.w_raw", raw), F32(F64(dim) ** -0.5 * F64(heads) ** -0.5))))
        score = np.zeros((T, keys.shape[0]), F32)
        products = np.zeros((T, heads, keys.shape[0]), F32)  # q.k, before the ReLU
        weighted = np.zeros_like(products)
        for h in range(heads):
            if keys.shape[0]:
                products[:, h] = self.store(nx.linear(q[:, h], keys))
            weighted[:, h] = self.store(nx.mul(np.maximum(products[:, h], F32(0)), weight[:, h, None]))
            score = nx.add(score, weighted[:, h])
        cap(f"{at}.products", products)
        cap(f"{at}.weighted", weighted)
        score = self.store(score)
        visible = (positions[:, None] + 1) // ratio
        return cap(f"{at}.score", np.where(np.arange(keys.shape[0])[None, :] < visible, score, F32(-np.inf)))

    def candidate_blocks(self, score: np.ndarray, ratio: int) -> np.ndarray:
        """score [T, J] -> kept block numbers [T, candidate_topk_blocks] int32, ascending, -1 = none."""
        size, keep = self.cfg["candidate_block_size"], self.cfg["candidate_topk_blocks"]
        T, J = score.shape
        count = (J + size - 1) // size
        full = np.full((T, count * size), -np.inf, F32)
        full[:, :J] = score
        best = full.reshape(T, count, size).max(axis=-1)
        kept: list[np.ndarray] = []
        for t in range(T):
            newest = (t + 1) // ratio - 1
            row = best[t].copy()
            if newest >= 0:
                row[newest // size] = np.inf
            picks = pick_largest(row, min(keep, count))
            kept.append(picks[row[picks] > -np.inf])
        return padded(kept, keep)

    def select(self, score: np.ndarray, blocks: np.ndarray | None) -> np.ndarray:
        """Top index_topk allowed rows, ascending, -1 = none; `blocks` restricts a REINDEX layer."""
        topk, size = self.cfg["index_topk"], self.cfg["candidate_block_size"]
        picked: list[np.ndarray] = []
        for t in range(score.shape[0]):
            row = score[t]
            if blocks is not None:
                row = np.where(np.isin(np.arange(len(row)) // size, blocks[t][blocks[t] >= 0]), row, F32(-np.inf))
            allowed = pick_largest(row, topk)
            picked.append(allowed[row[allowed] > -np.inf])
        return padded(picked, topk)

    def attend(
        self, q: np.ndarray, rows: np.ndarray, keys: np.ndarray, sink: np.ndarray, cap: Capture, at: str
    ) -> np.ndarray:
        """q [T, H, d]; rows [T, n] numbers into keys [m, d], valid ones first, -1 behind; -> [T, H, d] before the store.

        The key list has no holes: block b of a query is its keys 64b .. 64b+63, whether window or compressed rows.
        """
        T, H, d = q.shape
        scale = F32(F64(d) ** -0.5)
        n = -(-rows.shape[1] // 64) * 64
        table = np.full((T, n), -1, np.int32)
        table[:, : rows.shape[1]] = rows
        m = np.full((T, H), -1e30, F32)
        denominator = np.zeros((T, H), F32)
        acc = np.zeros((T, H, d), F32)
        probabilities = np.zeros((T, H, n), F32)  # as used for P.V: relative to the running maximum of their block
        for b in range(0, n, 64):
            part = table[:, b : b + 64]
            valid = part >= 0
            live = valid.any(axis=1)[:, None]
            k = np.where(valid[..., None], keys[np.maximum(part, 0)], F32(0))  # [T, 64, d]
            s = np.empty((T, H, 64), F32)
            for t in range(T):
                s[t] = nx.dot32(q[t][:, None, :], k[t][None, :, :])
            s = np.where(valid[:, None, :], nx.mul(s, scale), F32(-np.inf))
            m_new = np.maximum(m, s.max(axis=-1))
            alpha = nx.exp(nx.sub(m, m_new))
            p = nx.exp(nx.sub(s, m_new[..., None]))
            denominator = np.where(live, nx.add(nx.mul(denominator, alpha), nx.sum16(p)), denominator)
            acc = np.where(live[..., None], nx.mul(acc, alpha[..., None]), acc)
            p = self.store(p)
            probabilities[:, :, b : b + 64] = p
            for half in (0, 32):
                some = valid[:, half : half + 32].any(axis=1)
                for t in np.flatnonzero(some):
                    v = k[t, half : half + 32].T  # [d, 32]
                    acc[t] = nx.add(acc[t], nx.dot32(p[t, :, None, half : half + 32], v[None, :, :]))
            m = m_new
        cap(f"{at}.p", probabilities)
        denominator = nx.add(denominator, nx.exp(nx.sub(sink, m)))
        return nx.div(acc, denominator[..., None])

    def attention(self, layer: int, x: np.ndarray, out: Result, cap: Capture) -> np.ndarray:
        """x [T, D] (after attn_norm) -> y [T, D]."""
        c, role, at = self.cfg, self.roles[layer], f"L{layer}.attn"
        p = f"layers.{layer}.attn."
        T, H, d = x.shape[0], c["num_attention_heads"], c["head_dim"]
        positions = np.arange(T)
        freq = self.freq_window if role.ratio == 0 else self.freq_compressed
        x_in = cap(f"{at}.x_in", self.input_of(x, p + "wq_a", p + "wkv"))
        qa = cap(f"{at}.qa", self.store(self.linear(x_in, p + "wq_a")))
        qr = cap(f"{at}.qr", self.norm(qa, p + "q_norm.weight"))
        qr_in = cap(f"{at}.qr_in", self.input_of(qr, p + "wq_b"))
        q = cap(f"{at}.q_raw", self.store(self.linear(qr_in, p + "wq_b")).reshape(T, H, d))
        q = cap(f"{at}.q", self.rotate(q, positions, freq))
        kv = cap(f"{at}.kv_raw", self.store(self.linear(x_in, p + "wkv")))
        kv = cap(f"{at}.kv_norm", self.norm(kv, p + "kv_norm.weight"))
        kv = cap(f"{at}.kv_rope", self.rotate(kv, positions, freq))
        kv = cap(f"{at}.kv", nx.q8(kv))
        out.window_rows.append(kv)

        if role.kind == "FULL":
            latent = self.compress(layer, role.ratio, x, cap)
            group_start = np.arange(latent.shape[0]) * role.ratio
            row = cap(f"L{layer}.comp.rope", self.rotate(latent, group_start, freq))
            out.compressed_rows[layer] = cap(f"L{layer}.comp.row", nx.q4_latent(row))
            ip = p + "indexer."
            k = self.store(self.linear(self.input_of(latent, ip + "wk"), ip + "wk"))
            k = cap(f"L{layer}.index.k_norm", self.norm(cap(f"L{layer}.index.k_raw", k), ip + "k_norm.weight"))
            k = cap(f"L{layer}.index.k_rope", self.rotate(k, group_start, freq))
            out.index_keys[layer] = cap(f"L{layer}.index.k", nx.q4_index(k))
        if role.kind in ("FULL", "REINDEX"):
            index_in = self.input_of(qr, p + "indexer.wq_b")
            score = self.index_scores(layer, role.ratio, x, index_in, out.index_keys[role.owner], cap)
            out.index_scores[layer] = score
            if layer == c["candidate_source_layer_id"]:
                out.blocks[layer] = cap(f"L{layer}.index.blocks", self.candidate_blocks(score, role.ratio))
            restriction = out.blocks[c["candidate_source_layer_id"]] if role.kind == "REINDEX" else None
            picked = self.select(score, restriction)
            picked = self.forced_selection.get(layer, picked)
            out.selected[layer] = cap(f"L{layer}.index.selected", picked)

        # Keys of query t: window rows max(0, t-W+1) .. t, then the selected compressed rows, numbered behind the T window rows.
        W = c["sliding_window"]
        lists = [np.arange(max(0, t - W + 1), t + 1) for t in range(T)]
        keys = kv
        if role.ratio:
            chosen = out.selected[role.index_source]
            lists = [np.concatenate([lists[t], T + chosen[t][chosen[t] >= 0]]) for t in range(T)]
            keys = np.concatenate([kv, out.compressed_rows[role.owner]])
        cap(f"{at}.keys", padded(lists))
        o = self.store(self.attend(q, padded(lists), keys, self.w(p + "attn_sink"), cap, at))
        o = self.rotate(cap(f"{at}.o_raw", o), positions, freq, inverse=True)
        cap(f"{at}.o", o)
        groups, rank = c["o_groups"], c["o_lora_rank"]
        wo_a = self.w(p + "wo_a.weight").reshape(groups, rank, -1)  # its input is never quantized
        o = o.reshape(T, groups, -1)
        ya = np.concatenate([nx.linear(o[:, g], wo_a[g]) for g in range(groups)], axis=-1)
        ya = cap(f"{at}.wo_a", self.store(ya))
        ya = cap(f"{at}.wo_a_in", self.input_of(ya, p + "wo_b"))
        return cap(f"{at}.y", self.store(self.linear(ya, p + "wo_b")))

    # ---- MoE, model.md 2.8 --------------------------------------------------------------------------------------------

    def expert(self, prefix: str, x: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """x [n, D], g [n] routing weight -> a, u (stored, unclamped), t, y."""
        limit = F32(self.cfg["swiglu_limit"])
        operand = self.input_of(x, prefix + "w1", prefix + "w3")
        a = self.store(self.linear(operand, prefix + "w1"))
        u = self.store(self.linear(operand, prefix + "w3"))
        gated = nx.mul(nx.silu(np.minimum(a, limit)), np.clip(u, -limit, limit))
        t = self.store(nx.mul(g[:, None], gated))
        y = self.store(self.linear(self.input_of(t, prefix + "w2"), prefix + "w2"))
        return a, u, t, y

    def moe(self, layer: int, x: np.ndarray, out: Result, cap: Capture) -> np.ndarray:
        c, p, at = self.cfg, f"layers.{layer}.ffn.", f"L{layer}.ffn"
        T, k = x.shape[0], c["num_experts_per_tok"]
        logits = cap(f"{at}.logits", nx.linear(x, self.w(p + "gate.weight")))
        s = cap(f"{at}.scores", router_scores(logits))
        biased = nx.add(s, self.w(p + "gate.bias"))
        experts = np.stack([pick_largest(row, k) for row in biased])  # [T, k], ascending expert id
        ordered = -np.sort(-biased, axis=-1)
        out.router_margin.append(ordered[:, k - 1] - ordered[:, k] if ordered.shape[1] > k else np.full(T, np.inf, F32))
        experts = cap(f"{at}.experts", self.forced_experts.get(layer, experts).astype(np.int32))
        picked = np.take_along_axis(s, experts, axis=-1)
        total = nx.add(nx.sum_ascending(picked), F32(1e-20))
        g = cap(f"{at}.weights", nx.mul(nx.div(picked, total[:, None]), F32(c["routed_scaling_factor"])))
        inner = c["moe_intermediate_size"]
        parts = {n: np.zeros((T, k, w), F32) for n, w in (("a", inner), ("u", inner), ("t", inner), ("y", x.shape[1]))}
        for e in range(c["n_routed_experts"]):
            rows, slots = np.nonzero(experts == e)
            if len(rows):
                for name, value in zip("auty", self.expert(f"{p}experts.{e}.", x[rows], g[rows, slots])):
                    parts[name][rows, slots] = value
        shared = self.expert(f"{p}shared_experts.", x, np.ones(T, F32))
        for name, value in zip("auty", shared):
            cap(f"{at}.expert_{name}", parts[name])
            cap(f"{at}.shared_{name}", value)
        y = np.zeros_like(x)
        for slot in range(k):
            y = nx.add(y, parts["y"][:, slot])
        return cap(f"{at}.y", self.store(nx.add(y, shared[3])))

    # ---- the forward, model.md 0 --------------------------------------------------------------------------------------

    def forward(self, ids: np.ndarray, capture: Capture | None = None) -> Result:
        """ids [T] from position 0."""
        c = self.cfg
        cap = capture or Capture(enabled=False)
        out = Result(logits=np.empty(0, F32))
        ids = np.asarray(ids, np.int64)
        h = np.repeat(self.store(self.w("embed.weight")[ids])[:, None, :], self.streams, axis=1)
        m = np.zeros((len(ids), self.streams), F32)
        m[:, 0] = 1
        for layer in range(c["num_hidden_layers"]):
            p = f"layers.{layer}."
            if layer in c["engram_layer_ids"]:
                h = self.engram(layer, h, ids, cap)
            pre_a, post, comb = self.mix(h, p + "hc_attn", cap, f"L{layer}.hc_attn")
            x = cap(f"L{layer}.attn.collapsed", self.collapse(m, h))
            x = cap(f"L{layer}.attn.x", self.norm(x, p + "attn_norm.weight"))
            y = self.attention(layer, x, out, cap)
            h = cap(f"L{layer}.attn.h", self.expand(post, comb, y, h))
            m, post, comb = self.mix(h, p + "hc_ffn", cap, f"L{layer}.hc_ffn")
            x = cap(f"L{layer}.ffn.collapsed", self.collapse(pre_a, h))
            x = cap(f"L{layer}.ffn.x", self.norm(x, p + "ffn_norm.weight"))
            y = self.moe(layer, x, out, cap)
            h = cap(f"L{layer}.h", self.expand(post, comb, y, h))
            out.residuals.append(h)
        x = cap("final.collapsed", self.collapse(m, h))
        x = cap("final.x", self.norm(x, "norm.weight"))
        out.logits = cap("final.logits", nx.linear(x, self.w("head.weight")))
        return out
