"""The arithmetic of one layer as functions of tensors (model.md 2): no modules, no state, so a compiler sees each once.

N tokens, B sequences of T tokens (N = B*T), C streams, D hidden, H heads, d head dim, r rope dims, W window, J compressed rows.
BF16 where model.md 2.11 says so. Training runs matrix products in BF16 (FP32 accumulation). `exact()` switches the products
to float32 operands and scores to float32, for comparing with other implementations.
"""

from __future__ import annotations

import contextlib
from typing import Iterator

import torch
import torch.nn.functional as F

import quant

Tensor = torch.Tensor
BF16 = torch.bfloat16
EPS = 1e-20

_exact = False


@contextlib.contextmanager
def exact() -> Iterator[None]:
    """Float32 products and scores, per-expert rounding; slow, for a CPU."""
    global _exact
    _exact, before = True, _exact
    try:
        yield
    finally:
        _exact = before


def is_exact() -> bool:
    return _exact


def linear(x: Tensor, w: Tensor) -> Tensor:
    """BF16 [..., K] x [N, K] -> BF16."""
    if _exact:
        return F.linear(x.float(), w.float()).to(BF16)
    return F.linear(x, w)


def linear_f32(x: Tensor, w: Tensor) -> Tensor:
    """BF16-valued operands, float32 result."""
    return F.linear(x.float(), w.float())


def q8(x: Tensor) -> Tensor:
    f = x.float()
    return (f + (quant.q8_grid(f) - f).detach()).to(x.dtype)


def q4_index(x: Tensor) -> Tensor:
    f = x.float()
    return (f + (quant.q4_index_grid(f) - f).detach()).to(x.dtype)


def q4_latent(x: Tensor) -> Tensor:
    f = x.float()
    return (f + (quant.q4_latent_grid(f) - f).detach()).to(x.dtype)


def rms_norm(x: Tensor, w: Tensor) -> Tensor:
    f = x.float()
    return (w.float() * (f * torch.rsqrt(f.square().mean(dim=-1, keepdim=True) + EPS))).to(BF16)


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [..., dim] BF16, cos and sin broadcastable to [..., r/2]: rotates adjacent pairs of the last r channels."""
    r = 2 * cos.shape[-1]
    tail = x[..., -r:].float()
    a, b = tail[..., 0::2], tail[..., 1::2]
    out = torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)
    return torch.cat([x[..., :-r], out.to(x.dtype)], dim=-1)


# ---- residual streams, model.md 2.9 -----------------------------------------------------------------------------------

def mixer(h: Tensor, fn: Tensor, scale: Tensor, base: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """h [N, C, D] -> pre [N, C], post [N, C], logits of the mixing matrix [N, C, C], all float32."""
    n, c, _ = h.shape
    v = h.reshape(n, -1).float()
    rho = torch.rsqrt(v.square().mean(dim=-1, keepdim=True) + EPS)
    z = F.linear(v, fn) * rho
    pre = torch.sigmoid(z[:, :c] * scale[0] + base[:c]) + 1e-6
    post = 2 * torch.sigmoid(z[:, c : 2 * c] * scale[1] + base[c : 2 * c])
    comb = (z[:, 2 * c :] * scale[2] + base[2 * c :]).reshape(n, c, c)
    return pre, post, comb


def collapse(m: Tensor, h: Tensor) -> Tensor:
    return (m[:, :, None] * h.float()).sum(dim=1).to(BF16)


def enter(h: Tensor, m: Tensor, fn: Tensor, scale: Tensor, base: Tensor, norm: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The input of a sublayer from the incoming pre-mix m, and the coefficients made from h."""
    pre, post, comb = mixer(h, fn, scale, base)
    return rms_norm(collapse(m, h), norm), pre, post, comb


def expand(h: Tensor, y: Tensor, post: Tensor, comb: Tensor) -> Tensor:
    """Row i of comb is the old stream, column j the new one."""
    mixed = (comb[:, :, :, None] * h.float()[:, :, None, :]).sum(dim=1)
    return (post[:, :, None] * y.float()[:, None, :] + mixed).to(BF16)


# ---- Engram, model.md 2.10 --------------------------------------------------------------------------------------------

def engram(h: Tensor, e: Tensor, wkv: Tensor, qw: Tensor, kw: Tensor) -> Tensor:
    """h [N, C, D], e [N, columns * dim] looked-up rows."""
    n, c, d = h.shape
    u = linear(q8(e), wkv).float()
    key, value = u[:, : c * d].reshape(n, c, d), u[:, c * d :]
    f = h.float()
    rho = torch.rsqrt(f.square().mean(dim=-1) + EPS) * torch.rsqrt(key.square().mean(dim=-1) + EPS)
    dot = (f * (qw.float() * kw.float())[None] * key).sum(dim=-1) * rho * d**-0.5
    gate = torch.sigmoid(torch.copysign(torch.sqrt(dot.abs().clamp(min=1e-6)), dot))
    return (f + gate[:, :, None] * value[:, None, :]).to(BF16)


# ---- attention, model.md 2.5 to 2.7 -----------------------------------------------------------------------------------

def attention_input(x: Tensor, wq_a: Tensor, q_norm: Tensor, wq_b: Tensor, wkv: Tensor, kv_norm: Tensor, cos: Tensor,
                    sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """x [N, D], cos and sin [N, r/2] -> quantized qr [N, rank], q [N, H, d], window rows [N, d]."""
    x8 = q8(x)
    qr = q8(rms_norm(linear(x8, wq_a), q_norm))
    d = wkv.shape[0]
    q = rope(linear(qr, wq_b).reshape(x.shape[0], -1, d), cos[:, None], sin[:, None])
    kv = q8(rope(rms_norm(linear(x8, wkv), kv_norm), cos, sin))
    return qr, q, kv


def attention_output(o: Tensor, cos: Tensor, sin: Tensor, wo_a: Tensor, wo_b: Tensor, groups: int) -> Tensor:
    """o [N, H, d] -> [N, D]. The input of wo_a is not quantized."""
    n = o.shape[0]
    o = rope(o, cos[:, None], -sin[:, None]).reshape(n, groups, -1)
    a = wo_a.reshape(groups, -1, o.shape[-1])
    if _exact:
        y = torch.einsum("ngk,grk->ngr", o.float(), a.float()).to(BF16)
    else:
        y = torch.bmm(o.transpose(0, 1), a.transpose(1, 2)).transpose(0, 1)
    return linear(q8(y.reshape(n, -1)), wo_b)


def latent(x: Tensor, wkv: Tensor, wgate: Tensor | None, norm: Tensor) -> Tensor:
    """x [N, D] -> un-rotated latents [N / ratio, d]; groups are pairs of neighbours in x."""
    if wgate is None:
        return rms_norm(linear(x, wkv), norm)
    v, g = linear_f32(x, wkv), linear_f32(x, wgate)
    d = v.shape[-1]
    weight = torch.softmax(g.reshape(-1, 2, d), dim=1)
    return rms_norm((weight * v.reshape(-1, 2, d)).sum(dim=1).to(BF16), norm)


def compressed_rows(c: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return q4_latent(rope(c, cos, sin))


def index_keys(c: Tensor, wk: Tensor, k_norm: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return q4_index(rope(rms_norm(linear(c, wk), k_norm), cos, sin))


def index_scores(x: Tensor, qr: Tensor, keys: Tensor, wq_b: Tensor, proj: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [N, D], qr [N, rank], keys [B, J, e] -> scores [B, T, J] float32, unmasked."""
    batch, rows, e = keys.shape
    n = x.shape[0]
    q = q4_index(rope(linear(qr, wq_b).reshape(n, -1, e), cos[:, None], sin[:, None]))
    heads = q.shape[1]
    weight = (linear(x, proj).float() * (e**-0.5 * heads**-0.5)).to(BF16)
    q = q.reshape(batch, -1, e)
    if _exact:
        s = torch.bmm(q.float(), keys.float().transpose(1, 2)).to(BF16).reshape(batch, -1, heads, rows)
        w = weight.reshape(batch, -1, heads, 1)
        score = torch.zeros(batch, s.shape[1], rows)
        for h in range(heads):
            score = score + (s[:, :, h].float().relu() * w[:, :, h].float()).to(BF16).float()
        return score.to(BF16).float()
    s = torch.bmm(q, keys.transpose(1, 2)).reshape(batch, -1, heads, rows)
    return (s.float().relu() * weight.reshape(batch, -1, heads, 1).float()).sum(dim=2)


def _weights(parts: list[tuple[Tensor, Tensor]], sink: Tensor, scale: float) -> list[Tensor]:
    """Scores [B, T, H, n] with masks [B, T, n] of several key sets -> their joint softmax with a sink, BF16."""
    scores = [torch.where(mask[:, :, None], s.float() * scale, float("-inf")) for s, mask in parts]
    top = scores[0].amax(dim=-1, keepdim=True)
    for s in scores[1:]:
        top = torch.maximum(top, s.amax(dim=-1, keepdim=True))
    top = top.clamp(min=-1e30).detach()
    e = [torch.exp(s - top) for s in scores]
    total = torch.exp(sink[:, None] - top)
    for part in e:
        total = total + part.sum(dim=-1, keepdim=True)
    return [(part / total).to(BF16) for part in e]


def _products(q: Tensor, k: Tensor) -> Tensor:
    """[b, m, d] x [b, n, d] -> [b, m, n]."""
    if _exact:
        return torch.bmm(q.float(), k.float().transpose(1, 2))
    return torch.bmm(q, k.transpose(1, 2))


def _mix(p: Tensor, v: Tensor) -> Tensor:
    if _exact:
        return torch.bmm(p.float(), v.float())
    return torch.bmm(p, v)


def window_pairs(kv: Tensor, window: int) -> Tensor:
    """[B, T, d] -> [B * T/W, 2W, d]: each block of W rows behind the block before it."""
    b, t, d = kv.shape
    blocks = kv.reshape(b, t // window, window, d)
    before = F.pad(blocks, (0, 0, 0, 0, 1, 0))[:, :-1]
    return torch.cat([before, blocks], dim=2).reshape(-1, 2 * window, d)


def attend_listed(q: Tensor, kv: Tensor, rows: Tensor | None, mask_w: Tensor, mask_c: Tensor | None, sink: Tensor) -> Tensor:
    """The official order (model.md 2.5), for `exact`: keys as a list without holes, window first, then compressed rows ascending;
    blocks of 64 with a running maximum; weights rounded to BF16 before they meet the values, division at the end."""
    b, t, h, d = q.shape
    w = mask_w.shape[-1] // 2
    pairs = window_pairs(kv, w).float().reshape(b, t // w, 2 * w, d)
    out = torch.empty(b, t, h, d, dtype=BF16)
    for i in range(b):
        for n in range(t):
            keys = pairs[i, n // w][mask_w[i, n]]
            if rows is not None and mask_c is not None:
                keys = torch.cat([keys, rows[i].float()[mask_c[i, n]]])
            top = torch.full((h, 1), -1e30)
            total, acc = torch.zeros(h, 1), torch.zeros(h, d)
            for k in keys.split(64):
                s = (q[i, n].float() @ k.t()) * d**-0.5
                new = torch.maximum(top, s.amax(dim=-1, keepdim=True))
                p, shrink = torch.exp(s - new), torch.exp(top - new)
                total = total * shrink + p.sum(dim=-1, keepdim=True)
                acc = acc * shrink + p.to(BF16).float() @ k
                top = new
            out[i, n] = (acc / (total + torch.exp(sink[:, None] - top))).to(BF16)
    return out


def attend_window(q: Tensor, kv: Tensor, mask_w: Tensor, sink: Tensor) -> Tensor:
    """q [B, T, H, d], kv [B, T, d], mask_w [B, T, 2W] -> [B, T, H, d]."""
    if _exact:
        return attend_listed(q, kv, None, mask_w, None, sink)
    b, t, h, d = q.shape
    w = mask_w.shape[-1] // 2
    pairs = window_pairs(kv, w)
    s = _products(q.reshape(-1, w * h, d), pairs).reshape(b, t, h, 2 * w)
    (p,) = _weights([(s, mask_w)], sink, d**-0.5)
    return _mix(p.reshape(-1, w * h, 2 * w), pairs).to(BF16).reshape(b, t, h, d)


def attend_masked(q: Tensor, kv: Tensor, rows: Tensor, mask_w: Tensor, mask_c: Tensor, sink: Tensor) -> tuple[Tensor, Tensor]:
    """Also compressed rows [B, J, d] where mask_c [B, T, J]; returns the output and, without gradient, the weight
    that all heads together gave to each compressed row, [B, T, J]."""
    if _exact:
        return attend_listed(q, kv, rows, mask_w, mask_c, sink), mask_c.to(BF16)
    b, t, h, d = q.shape
    w = mask_w.shape[-1] // 2
    pairs = window_pairs(kv, w)
    s_w = _products(q.reshape(-1, w * h, d), pairs).reshape(b, t, h, 2 * w)
    s_c = _products(q.reshape(b, t * h, d), rows).reshape(b, t, h, -1)
    p_w, p_c = _weights([(s_w, mask_w), (s_c, mask_c)], sink, d**-0.5)
    o = _mix(p_w.reshape(-1, w * h, 2 * w), pairs).reshape(b, t, h, d)
    o = o + _mix(p_c.reshape(b, t * h, -1), rows).reshape(b, t, h, d)
    return o.to(BF16), p_c.detach().float().sum(dim=2).to(BF16)


def attend_gathered(q: Tensor, kv: Tensor, rows: Tensor, mask_w: Tensor, picked: Tensor, valid: Tensor, sink: Tensor) -> Tensor:
    """The same with the selection as numbers picked [B, T, K] and their validity: cost grows with K, not with J."""
    b, t, h, d = q.shape
    w, k = mask_w.shape[-1] // 2, picked.shape[-1]
    pairs = window_pairs(kv, w)
    s_w = _products(q.reshape(-1, w * h, d), pairs).reshape(b, t, h, 2 * w)
    flat = (picked + torch.arange(b, device=q.device)[:, None, None] * rows.shape[1]).reshape(-1)
    keys = F.embedding(flat, rows.reshape(-1, d)).reshape(b * t, k, d)
    s_c = _products(q.reshape(b * t, h, d), keys).reshape(b, t, h, k)
    p_w, p_c = _weights([(s_w, mask_w), (s_c, valid)], sink, d**-0.5)
    o = _mix(p_w.reshape(-1, w * h, 2 * w), pairs).reshape(b, t, h, d)
    return (o + _mix(p_c.reshape(b * t, h, k), keys).reshape(b, t, h, d)).to(BF16)


def attend_block(q: Tensor, kv: Tensor, context: Tensor, mask: Tensor, sink: Tensor) -> Tensor:
    """Draft block: q [M, 5, H, d], its rows kv [M, 5, d] all visible to all, context [M, W, d] where mask [M, W]."""
    m, five, h, d = q.shape
    keys = torch.cat([context, kv], dim=1)
    mask = torch.cat([mask, torch.ones_like(mask[:, :1]).expand(m, five)], dim=1)
    s = _products(q.reshape(m, five * h, d), keys).reshape(m, five, h, -1)
    (p,) = _weights([(s, mask[:, None].expand(m, five, keys.shape[1]))], sink, d**-0.5)
    return _mix(p.reshape(m, five * h, -1), keys).to(BF16).reshape(m, five, h, d)


# ---- selection, model.md 2.7 ------------------------------------------------------------------------------------------

def top_rows(score: Tensor, allowed: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """score, allowed [B, T, J] -> numbers [B, T, K] of the K best allowed rows and which of them are real."""
    score = torch.where(allowed, score, float("-inf"))
    k = min(k, score.shape[-1])
    if _exact:  # among equals the smaller position wins
        picked = torch.sort(score, dim=-1, descending=True, stable=True).indices[..., :k]
        return picked, torch.gather(allowed, -1, picked)
    best = torch.topk(score, k, dim=-1, sorted=False)
    return best.indices, best.values > float("-inf")


def as_mask(picked: Tensor, valid: Tensor, rows: int) -> Tensor:
    out = torch.zeros(*picked.shape[:-1], rows, dtype=torch.bool, device=picked.device)
    return out.scatter_(-1, picked, valid)


def candidate_mask(score: Tensor, allowed: Tensor, size: int, keep: int) -> Tensor:
    """[B, T, J] rows of the best `keep` blocks of `size`; the block of the newest visible row is always one of them."""
    b, t, j = score.shape
    pad = -j % size
    score = F.pad(torch.where(allowed, score, float("-inf")), (0, pad), value=float("-inf"))
    seen = F.pad(allowed, (0, pad)).reshape(b, t, -1, size).any(dim=-1)
    best = score.reshape(b, t, -1, size).amax(dim=-1)
    count = best.shape[-1]
    newest = torch.where(seen, torch.arange(count, device=score.device), -1).amax(dim=-1, keepdim=True)
    best = torch.where(torch.arange(count, device=score.device) == newest, float("inf"), best)
    picked, valid = top_rows(best, seen, keep)
    return as_mask(picked, valid, count).repeat_interleave(size, dim=-1)[..., :j] & allowed


# ---- MoE, model.md 2.8 ------------------------------------------------------------------------------------------------

LIMIT = 10.0


def gated(a: Tensor, u: Tensor, g: Tensor) -> Tensor:
    a, u = a.float().clamp(max=LIMIT), u.float().clamp(-LIMIT, LIMIT)
    return (g * (F.silu(a) * u)).to(BF16)


def route(x: Tensor, gate: Tensor, bias: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """-> weights [N, E] (zero where not picked), picked [N, E] bool. The lowest id wins a tie."""
    s = torch.sqrt(F.softplus(linear_f32(x, gate), threshold=20.0))
    open_ = s.detach() + bias
    ids = torch.arange(s.shape[-1], device=x.device)
    picked = torch.zeros_like(open_, dtype=torch.bool)
    for _ in range(k):
        best = ids == open_.argmax(dim=-1, keepdim=True)
        picked = picked | best
        open_ = torch.where(best, float("-inf"), open_)
    s = torch.where(picked, s, 0.0)
    return 1.5 * s / (s.sum(dim=-1, keepdim=True) + 1e-20), picked


def moe(x: Tensor, gate: Tensor, bias: Tensor, w13: Tensor, w2: Tensor, s13: Tensor, s2: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """x [N, D], w13 [E, 2, I, D], w2 [D, E, I] -> y [N, D], tokens per expert [E]. Every expert runs on every token; the
    routing weight 0 makes the unpicked ones vanish (Q8 of a zero group is zero)."""
    experts, _, inner, d = w13.shape
    n = x.shape[0]
    g, picked = route(x, gate, bias, k)
    x8 = q8(x)
    au = linear(x8, w13.reshape(-1, d)).reshape(n, experts, 2, inner)
    t = q8(gated(au[:, :, 0], au[:, :, 1], g[:, :, None]))
    su = linear(x8, s13)
    shared = linear(q8(gated(su[:, :inner], su[:, inner:], torch.ones_like(g[:, :1]))), s2)
    if _exact:
        y = torch.zeros(n, d)
        for e in range(experts):
            y = y + linear(t[:, e], w2[:, e]).float()
    else:
        y = linear(t.reshape(n, -1), w2.reshape(d, -1)).float()
    return (y + shared.float()).to(BF16), picked.float().sum(dim=0)


def cross_entropy(x: Tensor, head: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """x [N, D] BF16, target [N] -> weighted sum of losses, and the unweighted losses [N] without gradient."""
    logits = linear(x, head).float() if not _exact else linear_f32(x, head)
    loss = torch.logsumexp(logits, dim=-1) - torch.gather(logits, -1, target[:, None])[:, 0]
    return (loss * weight).sum(), loss.detach()


def index_loss(score: Tensor, allowed: Tensor, mass: Tensor, weight: Tensor) -> Tensor:
    """Sum over queries of weight [B, T] times the cross-entropy from where the heads looked to the softmax of the index
    scores. mass [B, T, J] sums over heads; it is normalized only down to a total of 1, so queries without far attention
    count little."""
    logits = torch.where(allowed, score, -1e30)
    logp = logits - torch.logsumexp(logits, dim=-1, keepdim=True)
    goal = mass.float()
    goal = goal / goal.sum(dim=-1, keepdim=True).clamp(min=1)
    return -((goal * torch.where(allowed, logp, 0.0)).sum(dim=-1) * weight).sum()
