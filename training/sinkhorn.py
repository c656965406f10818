"""Sinkhorn normalization of the stream-mixing matrices (model.md 2.9), forward and backward in one pass each.

x = softmax over columns + eps, then column, (row, column) x (iters - 1) normalizations, each `x / (sum + eps)`.
The forward stores every denominator, so the backward walks back without storing the matrices: x = y * denominator.
Two implementations of the same function: plain PyTorch (any device), and a Triton kernel that keeps a token's 4x4 matrix in registers.
"""

from __future__ import annotations

import torch

try:
    import triton
    import triton.language as tl
except ImportError:  # the CPU path needs no Triton
    triton = None

Tensor = torch.Tensor


def _torch_forward(z: Tensor, eps: float, iters: int) -> tuple[Tensor, Tensor]:
    """z [N, C, C] -> matrices [N, C, C], denominators [2 * iters - 1, C, N]."""
    x = torch.softmax(z, dim=-1) + eps
    sums = []
    for it in range(iters):
        if it > 0:
            s = x.sum(dim=2) + eps
            x = x / s[:, :, None]
            sums.append(s.t())
        s = x.sum(dim=1) + eps
        x = x / s[:, None, :]
        sums.append(s.t())
    return x, torch.stack(sums)


def _torch_backward(g: Tensor, y: Tensor, sums: Tensor, eps: float) -> Tensor:
    for k in range(sums.shape[0] - 1, -1, -1):
        is_column = k % 2 == 0
        axis = 1 if is_column else 2
        s = sums[k].t()
        s = s[:, None, :] if is_column else s[:, :, None]
        g = (g - (g * y).sum(dim=axis, keepdim=True)) / s
        y = y * s
    p = y - eps
    return p * (g - (g * p).sum(dim=2, keepdim=True))


if triton is not None:

    @triton.jit
    def _forward_kernel(z_ptr, x_ptr, s_ptr, n, eps, C: tl.constexpr, ITERS: tl.constexpr, BLOCK: tl.constexpr):
        t = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        live = t < n
        c = tl.arange(0, C)
        at = t[:, None, None] * (C * C) + c[None, :, None] * C + c[None, None, :]
        x = tl.load(z_ptr + at, mask=live[:, None, None], other=0.0)
        x = tl.exp(x - tl.max(x, axis=2, keep_dims=True))
        x = x / tl.sum(x, axis=2, keep_dims=True) + eps
        at_s = c[None, :] * n + t[:, None]
        s = tl.sum(x, axis=1) + eps
        tl.store(s_ptr + at_s, s, mask=live[:, None])
        x = x / s[:, None, :]
        for it in range(1, ITERS):
            s = tl.sum(x, axis=2) + eps
            tl.store(s_ptr + (2 * it - 1) * C * n + at_s, s, mask=live[:, None])
            x = x / s[:, :, None]
            s = tl.sum(x, axis=1) + eps
            tl.store(s_ptr + 2 * it * C * n + at_s, s, mask=live[:, None])
            x = x / s[:, None, :]
        tl.store(x_ptr + at, x, mask=live[:, None, None])

    @triton.jit
    def _backward_kernel(g_ptr, y_ptr, s_ptr, out_ptr, n, eps, C: tl.constexpr, ITERS: tl.constexpr, BLOCK: tl.constexpr):
        t = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        live = t < n
        c = tl.arange(0, C)
        at = t[:, None, None] * (C * C) + c[None, :, None] * C + c[None, None, :]
        g = tl.load(g_ptr + at, mask=live[:, None, None], other=0.0)
        y = tl.load(y_ptr + at, mask=live[:, None, None], other=0.0)
        at_s = c[None, :] * n + t[:, None]
        for back in range(1, ITERS):
            it = ITERS - back
            s = tl.load(s_ptr + 2 * it * C * n + at_s, mask=live[:, None], other=1.0)
            g = (g - tl.sum(g * y, axis=1, keep_dims=True)) / s[:, None, :]
            y = y * s[:, None, :]
            s = tl.load(s_ptr + (2 * it - 1) * C * n + at_s, mask=live[:, None], other=1.0)
            g = (g - tl.sum(g * y, axis=2, keep_dims=True)) / s[:, :, None]
            y = y * s[:, :, None]
        s = tl.load(s_ptr + at_s, mask=live[:, None], other=1.0)
        g = (g - tl.sum(g * y, axis=1, keep_dims=True)) / s[:, None, :]
        y = y * s[:, None, :]
        p = y - eps
        tl.store(out_ptr + at, p * (g - tl.sum(g * p, axis=2, keep_dims=True)), mask=live[:, None, None])


class _Sinkhorn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z: Tensor, eps: float, iters: int, use_triton: bool) -> Tensor:  # type: ignore[override]
        z = z.contiguous()
        ctx.eps, ctx.iters, ctx.use_triton = eps, iters, use_triton
        if use_triton:
            n, c = z.shape[0], z.shape[1]
            x = torch.empty_like(z)
            sums = torch.empty(2 * iters - 1, c, n, device=z.device)
            _forward_kernel[(triton.cdiv(n, 64),)](z, x, sums, n, eps, C=c, ITERS=iters, BLOCK=64)
        else:
            x, sums = _torch_forward(z, eps, iters)
        ctx.save_for_backward(x, sums)
        return x

    @staticmethod
    def backward(ctx, g: Tensor):  # type: ignore[override]
        y, sums = ctx.saved_tensors
        g = g.contiguous()
        if not ctx.use_triton:
            return _torch_backward(g, y, sums, ctx.eps), None, None, None
        out = torch.empty_like(y)
        n = y.shape[0]
        _backward_kernel[(triton.cdiv(n, 64),)](g, y, sums, out, n, ctx.eps, C=y.shape[1], ITERS=ctx.iters, BLOCK=64)
        return out, None, None, None


def sinkhorn(z: Tensor, eps: float, iters: int) -> Tensor:
    """z [N, C, C] float32 -> mixing matrices [N, C, C], row = old stream."""
    return _Sinkhorn.apply(z, eps, iters, z.is_cuda and triton is not None)
