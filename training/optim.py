"""Muon for the matrices, Adam for the rest, over the stacked groups of `model.Weights`.

Muon: momentum, then the nearest orthogonal matrix by five Newton-Schulz steps, scaled so that an element moves about as far
as with Adam. The router biases follow their own rule: towards equal loads, by a fixed step (noaux_tc).
"""

from __future__ import annotations

import torch

from model import Group, Weights

Tensor = torch.Tensor


def orthogonal(g: Tensor) -> Tensor:
    """[n, N, K] -> approximately U V^T of each matrix, BF16."""
    x = g.to(torch.bfloat16)
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.transpose(-2, -1)
    x = x / (x.float().norm(dim=(-2, -1), keepdim=True) * 1.02 + 1e-12).to(x.dtype)
    for a, b, c in ((4.0848, -6.8946, 2.9270), (3.9505, -6.3029, 2.6377), (3.7418, -5.5913, 2.3037), (2.8769, -3.1427, 1.2046), (2.8366, -3.0525, 1.2012)):
        s = x @ x.transpose(-2, -1)
        x = a * x + (b * s + c * s @ s) @ x
    return x.transpose(-2, -1) if tall else x


def matrices(group: Group, t: Tensor) -> Tensor:
    """A stacked tensor of the group as [n, N, K] matrices (a view or a copy)."""
    if group.names[0].endswith("experts.w2"):
        return t.permute(0, 2, 1, 3).reshape(-1, t.shape[1], t.shape[3])
    return t.reshape(-1, *t.shape[-2:])


def unmatrices(group: Group, m: Tensor) -> Tensor:
    shape = group.master.shape
    if group.names[0].endswith("experts.w2"):
        g, d, e, i = shape
        return m.reshape(g, e, d, i).permute(0, 2, 1, 3)
    return m.reshape(shape)


class Optimizer:
    """One state per group. Learning rates are given per step, so a schedule lives outside."""

    def __init__(self, weights: Weights, muon_decay: float = 0.05) -> None:
        self.weights, self.decay = weights, muon_decay
        self.state: list[dict[str, Tensor]] = []
        self.steps = [0] * len(weights.groups)
        for g in weights.groups:
            self.state.append({"m": torch.zeros_like(g.master)} if self.is_muon(g) else
                              {"m": torch.zeros_like(g.master), "v": torch.zeros_like(g.master)})

    @staticmethod
    def is_muon(group: Group) -> bool:
        name = group.names[0]
        if group.spec.kind in ("fp8", "fp4"):
            return True
        return group.spec.kind == "bf16" and ("compressor.w" in name or "indexer.wk" in name)

    @torch.no_grad()
    def step(self, muon_rate: float, adam_rate: float, only: str = "", skip: str = "") -> None:
        """Groups whose names start with `only` and not with `skip`."""
        for i, g in enumerate(self.weights.groups):
            name = g.names[0]
            if not name.startswith(only) or (skip and name.startswith(skip)):
                continue
            self.steps[i] += 1
            grad, s = g.grad.float(), self.state[i]
            if self.is_muon(g):
                s["m"].mul_(0.95).add_(grad)
                update = matrices(g, grad + 0.95 * s["m"])
                scale = 0.2 * max(update.shape[-2:]) ** 0.5
                update = unmatrices(g, orthogonal(update).float())
                g.master.mul_(1 - muon_rate * self.decay).add_(update, alpha=-muon_rate * scale)
            else:
                slow = g.spec.kind == "table" or "embed" in name
                b1, b2 = 0.9, 0.99 if slow else 0.95
                s["m"].lerp_(grad, 1 - b1)
                s["v"].lerp_(grad.square(), 1 - b2)
                n = self.steps[i]
                m, v = s["m"] / (1 - b1**n), s["v"] / (1 - b2**n)
                rate = adam_rate * (0.3 if ".hc_" in name else 1.0)
                g.master.add_(m / (v.sqrt() + 1e-10), alpha=-rate)
            g.refresh()

    @torch.no_grad()
    def balance(self, loads: dict[str, Tensor], speed: float) -> None:
        for name, load in loads.items():
            bias = self.weights.bias[name]
            bias.add_(torch.sign(load.mean() - load), alpha=speed)
            bias.sub_(bias.mean())
