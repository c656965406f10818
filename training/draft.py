"""DSpark's training pass (model.md 4): blocks of five rows behind random anchors, against the frozen target's distributions.

M blocks per batch. Stage attention sees the anchor's last W target positions through the stage's own rows, and the block itself.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

import layers as L
from model import Batch, Model, Output
from sinkhorn import sinkhorn

Tensor = torch.Tensor


def block_loss(u: Tensor, teacher: Tensor, confidence: Tensor, live: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """u, teacher logits [M, 5, V], confidence logits [M, 5], live [M, 5] float -> loss, and per position: cross-entropy,
    agreement of the two argmax, overlap 1 - |p - q|/2 (the chance that exact rejection accepts)."""
    logq = u - torch.logsumexp(u, dim=-1, keepdim=True)
    p = torch.softmax(teacher, dim=-1)
    cross = -(p * logq).sum(dim=-1)
    best = teacher.argmax(dim=-1)
    hard = -torch.gather(logq, -1, best[..., None])[..., 0]
    overlap = (1 - 0.5 * (p - logq.exp()).abs().sum(dim=-1)).clamp(0, 1).detach()
    judge = F.binary_cross_entropy_with_logits(confidence, overlap, reduction="none")
    count = live.sum().clamp(min=1)
    loss = ((cross + 0.3 * hard + judge) * live).sum() / count
    per = live.sum(dim=0).clamp(min=1)
    agree = (u.argmax(dim=-1) == best).float()
    return loss, (cross.detach() * live).sum(dim=0) / per, (agree * live).sum(dim=0) / per, (overlap * live).sum(dim=0) / per


def context(model: Model, taps: list[Tensor], cos: Tensor, sin: Tensor) -> list[Tensor]:
    """Tapped residuals [N, D] each -> window rows [N, d] of every stage (model.md 4.1, 4.2)."""
    w = model.w
    x = L.rms_norm(L.linear(L.q8(torch.cat(taps, dim=-1)), w("mtp.0.main_proj.weight")), w("mtp.0.main_norm.weight"))
    x8 = L.q8(x)
    return [L.q8(L.rope(L.rms_norm(L.linear(x8, w(f"mtp.{s}.attn.wkv.weight")), w(f"mtp.{s}.attn.kv_norm.weight")), cos, sin))
            for s in range(model.text["num_nextn_predict_layers"])]


def draft(model: Model, rows: list[Tensor], row: Tensor, anchor: Tensor, batch: Batch, tokens: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """rows: per stage [B, T, d]; block i lies in batch row `row[i]` behind target position `anchor[i]` = P.
    tokens [M, 5]: the input tokens of the Markov head, t_{P+1} first. -> logits [M, 5, V], confidence [M, 5], expert loads."""
    t, w = model.text, model.w
    m_blocks, five = tokens.shape
    window, stages = t["sliding_window"], t["num_nextn_predict_layers"]
    device = tokens.device
    back = anchor[:, None] - window + 1 + torch.arange(window, device=device)  # [M, W]
    clamped = back.clamp(min=0)
    mask = (back >= 0) & (batch.doc[row[:, None], clamped] == batch.doc[row, anchor][:, None])
    pos = batch.pos[row, anchor][:, None] + 1 + torch.arange(five, device=device)  # [M, 5]
    theta = pos.reshape(-1, 1).float() * model.freq[0]
    cos, sin = theta.cos(), theta.sin()
    ids = torch.full((m_blocks, five), t["dspark_noise_token_id"], device=device)
    ids[:, 0] = tokens[:, 0]
    h = F.embedding(ids.reshape(-1), w("embed.weight"))[:, None].expand(-1, t["hc_mult"], -1).contiguous()
    m = torch.zeros(h.shape[0], t["hc_mult"], device=device)
    m[:, 0] = 1
    out = Output(x=h)
    for s in range(stages):
        name = f"mtp.{s}"
        x, pre, post, comb = model.sublayer(h, m, name, "attn")
        _, q, kv = model.attention_input(x, name + ".attn", cos, sin)
        seen = rows[s][row[:, None], clamped]
        o = model.f["attend_block"](q.reshape(m_blocks, five, *q.shape[1:]), kv.reshape(m_blocks, five, -1), seen, mask, w(name + ".attn.attn_sink"))
        y = model.attention_output(o.reshape(-1, *o.shape[2:]), name + ".attn", cos, sin)
        h = model.f["expand"](h, y, post, comb)
        x, m, post, comb = model.sublayer(h, pre, name, "ffn")
        y = model.feed_forward(x, name + ".ffn", t["dspark_num_experts_per_tok"], out)
        h = model.f["expand"](h, y, post, comb)
    last = f"mtp.{stages - 1}"
    x = L.collapse(m, h)
    u = L.linear_f32(L.rms_norm(x, w(last + ".norm.weight")), w("head.weight"))
    e = F.embedding(tokens.reshape(-1), w(last + ".markov_head.embed.weight"))
    u = u + L.linear_f32(e, w(last + ".markov_head.head.weight"))
    confidence = L.linear_f32(torch.cat([x, e], dim=-1), w(last + ".confidence_head.proj.weight"))
    return u.reshape(m_blocks, five, -1), confidence.reshape(m_blocks, five), out.loads


def pick_anchors(batch: Batch, count: int, five: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """`count` random anchors per batch row, answers preferred: batch rows [M], positions [M], and live [M, 5] float."""
    b, t = batch.shape
    device = batch.ids.device
    room = t - five - 2
    chance = batch.weight[:, 1 : room + 1] + 0.02  # weight of predicting t_{P+2} at P+1
    anchor = torch.multinomial(chance, count, generator=generator).reshape(-1)
    row = torch.arange(b, device=device).repeat_interleave(count)
    at = anchor[:, None] + 1 + torch.arange(five, device=device)  # the target's rows P+1 .. P+5
    live = (batch.weight[row[:, None], at] > 0) & (batch.doc[row[:, None], at] == batch.doc[row, anchor][:, None])
    return row, anchor, live.float()


def draft_loss(model: Model, batch: Batch, target: Output, count: int) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
    """-> loss, statistics per draft position, expert loads. The target is frozen: its output is detached."""
    b, t = batch.shape
    five = model.text["dspark_block_size"]
    theta = batch.pos.reshape(-1, 1).float() * model.freq[0]
    rows = context(model, [x.detach() for x in target.taps], theta.cos(), theta.sin())
    rows = [r.reshape(b, t, -1) for r in rows]
    row, anchor, live = pick_anchors(batch, count, five)
    at = anchor[:, None] + 1 + torch.arange(five, device=anchor.device)
    with torch.no_grad():
        x = target.x.detach().reshape(b, t, -1)[row[:, None], at]
        teacher = model.logits(x)
    u, confidence, loads = draft(model, rows, row, anchor, batch, batch.ids[row[:, None], at])
    loss, cross, agree, overlap = block_loss(u, teacher, confidence, live)
    return loss, {"cross": cross, "agree": agree, "overlap": overlap}, loads
