"""Float32 arithmetic with one fixed rounding and summation order, in NumPy.

Every function takes and returns float32 arrays and is bit-exact by construction:
  * `fma` is a true fused multiply-add: the product is exact in float64, the float64 sum's error is recovered (TwoSum)
    wherever a second rounding could matter.
  * Subnormal float32 inputs and results count as zero (FTZ/DAZ, sign kept). Tininess is judged after rounding, as the
    hardware does. Tensors are flushed once where they enter (`daz`), results in every op here, so inputs of an op are
    never subnormal. Pure copies (embedding rows) are outside of it.
Orders:
  * `dot32`: the order of every linear op and every q.k product (reductions.md).
  * `sum16`, `dot16`: sixteen lanes, then a halving tree; norms, softmax denominators, Engram statistics.
"""

from __future__ import annotations

from typing import Callable

import numpy as np

F32 = np.float32
F64 = np.float64
_MIN_NORMAL = F64(2.0**-126)
_TINY = F64(2.0**-126 * (1 - 2.0**-25))  # a float64 value below this in magnitude rounds to a subnormal float32
_HALF_ULP = np.int64(1 << 28)  # low 29 bits of a float64 that lies midway between two float32 values
_LOW_BITS = np.int64((1 << 29) - 1)

Store = Callable[[np.ndarray], np.ndarray]


# ---- scalar ops, elementwise ------------------------------------------------------------------------------------------

def daz(x: np.ndarray) -> np.ndarray:
    """float32 with subnormals replaced by a zero of the same sign."""
    x = np.asarray(x, F32)
    return np.where(np.abs(x) < F32(_MIN_NORMAL), np.copysign(F32(0), x), x)


def _round64(s: np.ndarray) -> np.ndarray:
    """float64 values that need only ONE more rounding -> float32-valued float64, subnormals flushed."""
    with np.errstate(over="ignore"):
        r = s.astype(F32).astype(F64)
    small = np.abs(s) < _TINY
    np.multiply(s, 0.0, out=r, where=small)
    return r


def fma64(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """fma on float32 values carried in float64 arrays (the inner loop of the dots avoids conversions)."""
    p = a * b
    s = p + c
    tie = (s.view(np.int64) & _LOW_BITS) == _HALF_ULP
    if tie.any():
        # s sits midway between two float32 values. If the float64 sum was inexact, the true value lies to one side of
        # s: move s one float64 step there, so that the rounding to float32 goes the right way (round to odd).
        ss = s[tie]
        pp, cc = p[tie], np.broadcast_to(c, s.shape)[tie]
        bb = ss - pp
        err = (pp - (ss - bb)) + (cc - bb)
        s[tie] = np.where(err > 0, np.nextafter(ss, np.inf), np.where(err < 0, np.nextafter(ss, -np.inf), ss))
    return _round64(s)


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """float32(a*b + c), one rounding."""
    a, b, c = np.broadcast_arrays(np.asarray(a, F32), np.asarray(b, F32), np.asarray(c, F32))
    wide = [np.atleast_1d(v).astype(F64) for v in (a, b, c)]
    return fma64(*wide).astype(F32).reshape(a.shape)


def mul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        return daz(np.multiply(np.asarray(a, F32), np.asarray(b, F32), dtype=F32))


def add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return daz(np.add(np.asarray(a, F32), np.asarray(b, F32), dtype=F32))


def sub(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return daz(np.subtract(np.asarray(a, F32), np.asarray(b, F32), dtype=F32))


def div(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return daz(np.divide(np.asarray(a, F32), np.asarray(b, F32), dtype=F32))


def rsqrt_mean(total: np.ndarray, n: int, eps: F32) -> np.ndarray:
    """1 / sqrt(total/n + eps): four rounded float32 operations."""
    return div(F32(1), np.sqrt(add(div(total, F32(n)), eps)))


def exp(x: np.ndarray) -> np.ndarray:
    """The project's exp: range reduction by ln2 in two parts, a degree-5 polynomial, two exact power-of-two factors."""
    x = np.asarray(x, F32)
    low, high = x < F32(-87.33654), x > F32(88.72283)
    safe = np.where(low | high, F32(0), x)
    n = np.rint(mul(safe, F32(1.44269504))).astype(F32)
    r = fma(n, F32(-0.693359375), safe)
    r = fma(n, F32(2.12194440e-4), r)
    p = np.full_like(r, F32(1.9875691500e-4))
    for coefficient in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = fma(p, r, F32(coefficient))
    y = add(fma(p, mul(r, r), r), F32(1))
    k = n.astype(np.int32)
    half = k >> 1  # floor(n/2)
    with np.errstate(over="ignore"):
        y = mul(mul(y, np.ldexp(F32(1), half)), np.ldexp(F32(1), k - half))
    return np.where(low, F32(0), np.where(high, F32(np.inf), y)).astype(F32)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return div(F32(1), add(F32(1), exp(-np.asarray(x, F32))))


def silu(x: np.ndarray) -> np.ndarray:
    return mul(x, sigmoid(x))


def softplus(z: np.ndarray) -> np.ndarray:
    """z above 20, else log1p(exp(z)) with the logarithm in double (model.md 2.8)."""
    z = np.asarray(z, F32)
    small = daz(np.log1p(exp(np.minimum(z, F32(20))).astype(F64)).astype(F32))
    return np.where(z > F32(20), z, small)


def to_bf16(x: np.ndarray) -> np.ndarray:
    """Round to nearest even to bfloat16, kept as float32."""
    bits = np.ascontiguousarray(x, F32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return daz(rounded.view(F32).reshape(np.shape(x)))


def identity(x: np.ndarray) -> np.ndarray:
    return np.asarray(x, F32)


# ---- ordered sums -----------------------------------------------------------------------------------------------------

def sum_ascending(x: np.ndarray) -> np.ndarray:
    """Plain adds over the last axis from its first element."""
    acc = x[..., 0]
    for i in range(1, x.shape[-1]):
        acc = add(acc, x[..., i])
    return acc


def _lanes(x: np.ndarray) -> np.ndarray:
    """[..., N] -> [ceil(N/16), ..., 16], zero padded."""
    x = np.asarray(x, F32)
    pad = -x.shape[-1] % 16
    if pad:
        x = np.concatenate([x, np.zeros((*x.shape[:-1], pad), F32)], axis=-1)
    return np.moveaxis(x.reshape(*x.shape[:-1], x.shape[-1] // 16, 16), -2, 0)


def _tree(lane: np.ndarray) -> np.ndarray:
    for width in (8, 4, 2, 1):
        lane = add(lane[..., :width], lane[..., width : 2 * width])
    return lane[..., 0]


def dot16(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """sum x*y over the last axis: lane[l] = fma(x[16i+l], y[16i+l], lane[l]), then the tree 8, 4, 2, 1."""
    x, y = np.broadcast_arrays(x, y)
    xs, ys = _lanes(x).astype(F64), _lanes(y).astype(F64)
    lane = np.zeros(xs.shape[1:], F64)
    for i in range(xs.shape[0]):
        lane = fma64(xs[i], ys[i], lane)
    return _tree(lane.astype(F32))


def sum16(x: np.ndarray) -> np.ndarray:
    """sum x over the last axis in the same lane order, plain adds."""
    xs = _lanes(x)
    lane = np.zeros(xs.shape[1:], F32)
    for i in range(xs.shape[0]):
        lane = add(lane, xs[i])
    return _tree(lane)


def _chains(x: np.ndarray) -> np.ndarray:
    """[..., K] -> [K/32, 16, 2, ...] float64: block, step, even/odd chain."""
    x = np.asarray(x, F32)
    pad = -x.shape[-1] % 32
    if pad:
        x = np.concatenate([x, np.zeros((*x.shape[:-1], pad), F32)], axis=-1)
    return np.ascontiguousarray(np.moveaxis(x, -1, 0)).reshape(x.shape[-1] // 32, 16, 2, *x.shape[:-1]).astype(F64)


def dot32(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """sum a*b over the last axis K; leading axes broadcast.

    Per 32-wide block in ascending order: an even and an odd fma chain of 16 steps, acc = acc + (even + odd).
    """
    if a.ndim != b.ndim:
        raise ValueError("give both operands the same number of axes")
    a64, b64 = _chains(daz(a)), _chains(daz(b))
    shape = np.broadcast_shapes(a.shape[:-1], b.shape[:-1])
    chain = np.zeros((a64.shape[0], 2, *shape), F64)
    for p in range(16):
        chain = fma64(a64[:, p], b64[:, p], chain)
    acc = np.zeros(shape, F32)
    for block in chain.astype(F32):
        acc = add(acc, add(block[0], block[1]))
    return acc


def linear(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """[T, K] x [N, K] -> [T, N] float32 in dot32 order (rows are cut into pieces only to stay in cache)."""
    out = np.empty((x.shape[0], w.shape[0]), F32)
    step = max(1, 65536 // max(1, 2 * w.shape[0] * ((w.shape[1] + 31) // 32)))
    for t in range(0, x.shape[0], step):
        out[t : t + step] = dot32(x[t : t + step, None, :], w[None, :, :])
    return out


# ---- activation quantizers, model.md 2.1 ------------------------------------------------------------------------------

INV448 = F32(1.0 / 448.0)
INV6 = F32(1.0 / 6.0)


def power_of_two_at_least(t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """P(t): the E8M0 code (biased exponent, plus one if any mantissa bit is set) and its value 2^(code-127)."""
    bits = np.ascontiguousarray(t, F32).view(np.uint32)
    code = (bits >> np.uint32(23)) + ((bits & np.uint32(0x7FFFFF)) != 0)
    return code.astype(np.uint8), np.ldexp(F32(1), code.astype(np.int32) - 127)


def round_e4m3(x: np.ndarray) -> np.ndarray:
    """|x| <= 448 -> the nearest E4M3 value, ties to even; the sign of zero is kept."""
    x = np.asarray(x, F32)
    _, exponent = np.frexp(np.abs(x))
    quantum = np.ldexp(F32(1), np.maximum(exponent - 1, -6) - 3)
    return np.copysign(np.rint(np.abs(x) / quantum) * quantum, x).astype(F32)


def round_e2m1(x: np.ndarray) -> np.ndarray:
    """|x| <= 6 -> the nearest E2M1 value, ties to the even code; the sign of zero is kept."""
    v = np.abs(np.asarray(x, F32))
    code = (
        (v > 0.25).astype(np.int32) + (v >= 0.75) + (v > 1.25) + (v >= 1.75) + (v > 2.5) + (v >= 3.5) + (v > 5.0)
    )
    return np.copysign(np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], F32)[code], x).astype(F32)


def _grouped(x: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.asarray(x, F32)
    groups = x.reshape(*x.shape[:-1], x.shape[-1] // size, size)
    return groups, np.abs(groups).max(axis=-1, keepdims=True)


def q8(x: np.ndarray) -> np.ndarray:
    """Q8 fake quantization: groups of 32 of the last axis, E4M3 values, power-of-two scale."""
    groups, amax = _grouped(x, 32)
    _, s = power_of_two_at_least(mul(np.maximum(amax, F32(1e-4)), INV448))
    values = round_e4m3(np.clip(div(groups, s), F32(-448), F32(448)))
    return mul(values, s).reshape(np.shape(x))


def q4_index(x: np.ndarray) -> np.ndarray:
    """Q4e fake quantization (index queries and keys): groups of 32, E2M1 values, power-of-two scale."""
    groups, amax = _grouped(x, 32)
    _, s = power_of_two_at_least(mul(np.maximum(amax, F32(6 * 2.0**-126)), INV6))
    values = round_e2m1(np.clip(div(groups, s), F32(-6), F32(6)))
    return mul(values, s).reshape(np.shape(x))


def q4_latent(x: np.ndarray) -> np.ndarray:
    """Q4k fake quantization (compressed rows): groups of 16, E2M1 values, E4M3 scale = RNE(amax / 6)."""
    groups, amax = _grouped(x, 16)
    s = round_e4m3(np.minimum(div(np.maximum(amax, F32(6 * 2.0**-9)), F32(6)), F32(448)))
    values = round_e2m1(np.clip(div(groups, s), F32(-6), F32(6)))
    return mul(values, s).reshape(np.shape(x))
