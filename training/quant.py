"""The number formats of model.md 2.1 and 1.4 in PyTorch: fake quantizers with straight-through gradients, and their codes.

Every `*_grid` function returns the exact value that the format holds (a BF16-exact number), in the dtype of its input.
`through(x, grid)` has the value of the grid and the gradient of x.
"""

from __future__ import annotations

from typing import Callable

import torch

Tensor = torch.Tensor

INV448 = 0.002232142857142857
INV6 = 0.16666666666666666


def power_of_two_at_least(t: Tensor) -> Tensor:
    """P(t) for positive float32 t: the power of two at or above it, from the bits (model.md 2.1)."""
    bits = t.float().view(torch.int32)
    code = (bits >> 23) + ((bits & 0x7FFFFF) != 0).to(torch.int32)
    return (code << 23).view(torch.float32)  # codes below 1 do not occur: every caller floors amax


def round_e4m3(x: Tensor) -> Tensor:
    """Nearest E4M3 value of |x| <= 448, ties to even, from the bits of float32 (no FP8 hardware needed).

    Adding and subtracting 2^k rounds at the wanted bit: for a normal E4M3 number the last bit is 2^(e-3).
    """
    bits = x.view(torch.int32)
    exponent = ((bits >> 23) & 0xFF).clamp(min=121)  # 2^-6 and below share the quantum 2^-9
    magic = ((exponent + 20) << 23).view(torch.float32)  # 2^(e-3) * 2^23: its last bit is the E4M3 last bit
    magic = torch.copysign(magic, x)
    return (x + magic) - magic


def round_e2m1(x: Tensor) -> Tensor:
    """Nearest E2M1 value of |x| <= 6, ties to the even code."""
    bits = x.view(torch.int32)
    exponent = ((bits >> 23) & 0xFF).clamp(min=127)  # below 1 the quantum is 0.5
    magic = torch.copysign(((exponent + 22) << 23).view(torch.float32), x)
    return (x + magic) - magic


def _groups(x: Tensor, size: int) -> tuple[Tensor, Tensor]:
    g = x.float().reshape(*x.shape[:-1], x.shape[-1] // size, size)
    return g, g.abs().amax(dim=-1, keepdim=True)


def q8_grid(x: Tensor) -> Tensor:
    """Q8: groups of 32, E4M3 times a power of two."""
    g, amax = _groups(x, 32)
    s = power_of_two_at_least(amax.clamp(min=1e-4) * INV448)
    return (round_e4m3((g / s).clamp(-448, 448)) * s).reshape(x.shape).to(x.dtype)


def q4_index_grid(x: Tensor) -> Tensor:
    """Q4e: groups of 32, E2M1 times a power of two."""
    g, amax = _groups(x, 32)
    s = power_of_two_at_least(amax.clamp(min=6 * 2.0**-126) * INV6)
    return (round_e2m1((g / s).clamp(-6, 6)) * s).reshape(x.shape).to(x.dtype)


def q4_latent_grid(x: Tensor) -> Tensor:
    """Q4k: groups of 16, E2M1 times an E4M3 scale of at least 2^-9."""
    g, amax = _groups(x, 16)
    s = round_e4m3((amax.clamp(min=6 * 2.0**-9) / 6).clamp(max=448))
    return (round_e2m1((g / s).clamp(-6, 6)) * s).reshape(x.shape).to(x.dtype)


def fp8_block_scale(w: Tensor) -> Tensor:
    """[N, K] -> [N/32, 1, K/32, 1] power-of-two scale of each 32x32 block."""
    n, k = w.shape
    blocks = w.float().reshape(n // 32, 32, k // 32, 32)
    return power_of_two_at_least(blocks.abs().amax(dim=(1, 3), keepdim=True).clamp(min=1e-4) * INV448)


def fp8_block_grid(w: Tensor) -> Tensor:
    """Dense weight [N, K] on its E4M3 grid, 32x32 blocks."""
    n, k = w.shape
    s = fp8_block_scale(w)
    return (round_e4m3((w.float().reshape(n // 32, 32, k // 32, 32) / s).clamp(-448, 448)) * s).reshape(n, k)


def fp4_row_scale(w: Tensor) -> Tensor:
    """[..., K] -> [..., K/32, 1] power-of-two scale."""
    _, amax = _groups(w, 32)
    return power_of_two_at_least(amax.clamp(min=1e-8) * INV6)


def fp4_row_grid(w: Tensor) -> Tensor:
    """Expert weight [..., K] on its E2M1 grid, 1x32 blocks."""
    g, _ = _groups(w, 32)
    s = fp4_row_scale(w)
    return (round_e2m1((g / s).clamp(-6, 6)) * s).reshape(w.shape)


def fp8_row_grid(w: Tensor) -> Tensor:
    """Engram rows [R, K] on their E4M3 grid, 1x32 blocks."""
    return q8_grid(w)


def through(x: Tensor, grid: Callable[[Tensor], Tensor]) -> Tensor:
    """The grid value with the gradient of x. Exact: both terms of the difference round to the dtype of x."""
    return _Through.apply(x, grid)


class _Through(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, grid: Callable[[Tensor], Tensor]) -> Tensor:  # type: ignore[override]
        return grid(x)

    @staticmethod
    def backward(ctx, g: Tensor):  # type: ignore[override]
        return g, None


# ---- codes, for the exporter ------------------------------------------------------------------------------------------

def e8m0_code(scale: Tensor) -> Tensor:
    """Power of two -> its E8M0 byte."""
    return ((scale.float().view(torch.int32) >> 23) & 0xFF).to(torch.uint8)


def e4m3_code(values: Tensor) -> Tensor:
    """E4M3-valued float32 -> bytes."""
    return values.to(torch.float8_e4m3fn).view(torch.uint8)


def e2m1_packed(values: Tensor) -> Tensor:
    """E2M1-valued float32 [..., K] -> [..., K/2] bytes, the even element in the low nibble."""
    levels = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float32)
    code = torch.searchsorted(levels, values.abs().float().contiguous()).to(torch.uint8)
    code = code | (torch.signbit(values).to(torch.uint8) << 3)
    return code[..., 0::2] | (code[..., 1::2] << 4)


def decode_e8m0(code: Tensor) -> Tensor:
    return torch.pow(2.0, code.double() - 127).float()


def decode_e2m1(packed: Tensor) -> Tensor:
    """[..., K/2] bytes -> [..., K] values."""
    table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float32)
    p = packed.view(torch.uint8).to(torch.int64)
    return torch.stack([table[p & 15], table[p >> 4]], dim=-1).flatten(-2)
