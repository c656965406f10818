"""Weights -> a checkpoint folder in the official layout (model.md 1.2): names, FP8 32x32 and FP4 1x32 with E8M0 scales, index.

What is written is what the forward read: the grid value of each master, split into code and scale. `read_back` decodes a
folder into the working tensors, so a reader of the files can be compared with the model that trained.

    python training/export.py --state FILE --tokenizer FILE --out DIR
"""

from __future__ import annotations

import argparse
import json
import os
import struct
from typing import Iterator

import torch

import quant
from shapes import Json, Spec, parameter_specs

Tensor = torch.Tensor
SHARD_BYTES = 15_000_000  # of tensor data per file
DTYPES = {torch.bfloat16: "BF16", torch.float32: "F32", torch.int8: "I8"}


def _blocks(w: Tensor) -> tuple[Tensor, Tensor]:
    """FP8 [N, K] -> codes, scales [N/32, K/32]."""
    n, k = w.shape
    s = quant.fp8_block_scale(w)
    values = quant.round_e4m3((w.reshape(n // 32, 32, k // 32, 32) / s).clamp(-448, 448)).reshape(n, k)
    return quant.e4m3_code(values), quant.e8m0_code(s.reshape(n // 32, k // 32))


def _rows4(w: Tensor) -> tuple[Tensor, Tensor]:
    """FP4 [N, K] -> packed codes [N, K/2], scales [N, K/32]."""
    n, k = w.shape
    s = quant.fp4_row_scale(w)
    values = quant.round_e2m1((w.reshape(n, k // 32, 32) / s).clamp(-6, 6)).reshape(n, k)
    return quant.e2m1_packed(values).view(torch.int8), quant.e8m0_code(s.reshape(n, k // 32))


def _rows8(w: Tensor) -> tuple[Tensor, Tensor]:
    """Engram rows [R, K] -> codes, scales [R, K/32]."""
    r, k = w.shape
    g = w.reshape(r, k // 32, 32)
    s = quant.power_of_two_at_least(g.abs().amax(dim=-1, keepdim=True).clamp(min=1e-4) * quant.INV448)
    return quant.e4m3_code(quant.round_e4m3((g / s).clamp(-448, 448)).reshape(r, k)), quant.e8m0_code(s.reshape(r, k // 32))


def _split(name: str, w: Tensor) -> Iterator[tuple[str, Tensor]]:
    """A fused tensor -> its official matrices by name without `.weight`."""
    if name.endswith(".experts.w13"):
        base = name[: -len("w13")]
        for e in range(w.shape[0]):
            yield f"{base}{e}.w1", w[e, 0]
            yield f"{base}{e}.w3", w[e, 1]
    elif name.endswith(".experts.w2"):
        base = name[: -len("w2")]
        for e in range(w.shape[1]):
            yield f"{base}{e}.w2", w[:, e].contiguous()
    elif name.endswith(".shared_experts.w13"):
        half = w.shape[0] // 2
        yield name[: -len("w13")] + "w1", w[:half]
        yield name[: -len("w13")] + "w3", w[half:]
    else:
        yield name.removesuffix(".weight"), w


def official_tensors(specs: dict[str, Spec], state: dict[str, Tensor]) -> Iterator[tuple[str, str, Tensor]]:
    """(name, safetensors dtype, tensor of that many bytes)."""
    for name, spec in specs.items():
        w = state[name].float().cpu()
        if spec.kind == "f32":
            yield name, "F32", w
        elif spec.kind == "bf16":
            yield name, "BF16", w.to(torch.bfloat16)
        elif spec.kind == "table":
            codes, scales = _rows8(w)
            yield name, "F8_E4M3", codes
            yield name.removesuffix(".weight") + ".scale", "F8_E8M0", scales
        else:
            for part, matrix in _split(name, w):
                codes, scales = _blocks(matrix) if spec.kind == "fp8" else _rows4(matrix)
                yield part + ".weight", "F8_E4M3" if spec.kind == "fp8" else "I8", codes
                yield part + ".scale", "F8_E8M0", scales
    for name in sorted(state):
        if name.endswith(".ffn.bias"):
            base = name.removesuffix(".bias")
            yield base + ".gate.bias", "F32", state[name].float().cpu()
            yield base + ".gate.bias_vl", "F32", state[name].float().cpu()  # no images in training: the same choice


def _shard_key(name: str) -> tuple[int, int]:
    """Order of the published shards: embed, layers, head and norm, draft stages, Engram."""
    parts = name.split(".")
    if parts[0] == "embed":
        return 0, 0
    if parts[0] == "layers":
        return (4, int(parts[1])) if parts[2] == "engram" else (1, int(parts[1]))
    return (3, int(parts[1])) if parts[0] == "mtp" else (2, 0)


def _bytes(t: Tensor) -> bytes:
    return t.contiguous().view(torch.uint8).numpy().tobytes()


def write_safetensors(path: str, tensors: list[tuple[str, str, Tensor]]) -> None:
    header: Json = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, dtype, t in tensors:
        size = t.numel() * t.element_size()
        header[name] = {"dtype": dtype, "shape": list(t.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    partial = path + ".partial"
    with open(partial, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, _, t in tensors:
            f.write(_bytes(t))
    os.replace(partial, path)


def export(config: Json, state: dict[str, Tensor], tokenizer: str, out: str) -> int:
    """Writes the folder; returns the bytes of tensor data."""
    os.makedirs(out, exist_ok=True)
    tensors = sorted(official_tensors(parameter_specs(config), state), key=lambda t: _shard_key(t[0]))
    shards: list[list[tuple[str, str, Tensor]]] = [[]]
    size = total = 0
    for item in tensors:
        own = item[2].numel() * item[2].element_size()
        if size + own > SHARD_BYTES:
            shards.append([])
            size = 0
        shards[-1].append(item)
        size += own
        total += own
    weight_map: dict[str, str] = {}
    for i, shard in enumerate(shards):
        file = f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors"
        write_safetensors(os.path.join(out, file), shard)
        weight_map.update({name: file for name, _, _ in shard})
    with open(os.path.join(out, "model.safetensors.index.json"), "w", encoding="utf-8") as f:
        json.dump({"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}, f, indent=0)
        f.write("\n")
    with open(os.path.join(out, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f, indent=2)
        f.write("\n")
    with open(tokenizer, encoding="utf-8") as f, open(os.path.join(out, "tokenizer.json"), "w", encoding="utf-8") as g:
        g.write(f.read())
    return total


# ---- reading back -----------------------------------------------------------------------------------------------------

def read_folder(folder: str) -> dict[str, Tensor]:
    """Raw tensors by name: BF16 and F32 as such, FP8, FP4 and scales as bytes."""
    kinds = {"BF16": torch.bfloat16, "F32": torch.float32, "F8_E4M3": torch.uint8, "F8_E8M0": torch.uint8, "I8": torch.uint8}
    out: dict[str, Tensor] = {}
    with open(os.path.join(folder, "model.safetensors.index.json"), encoding="utf-8") as f:
        files = sorted(set(json.load(f)["weight_map"].values()))
    for file in files:
        with open(os.path.join(folder, file), "rb") as f:
            data = f.read()
        (length,) = struct.unpack("<Q", data[:8])
        for name, info in json.loads(data[8 : 8 + length]).items():
            if name == "__metadata__":
                continue
            begin, end = (8 + length + x for x in info["data_offsets"])
            raw = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.uint8)
            out[name] = raw.view(kinds[info["dtype"]]).reshape(info["shape"])
    return out


def read_back(config: Json, folder: str) -> dict[str, Tensor]:
    """A folder -> the state that `Weights.load` takes; every quantized tensor is decoded, so its grid value is itself."""
    raw = read_folder(folder)

    def dense(name: str) -> Tensor:
        codes, scales = raw.pop(name + ".weight"), raw.pop(name + ".scale")
        values = codes.view(torch.float8_e4m3fn).float()
        s = quant.decode_e8m0(scales)
        return values * s.repeat_interleave(values.shape[0] // s.shape[0], 0).repeat_interleave(32, 1)

    def expert(name: str) -> Tensor:
        values, s = quant.decode_e2m1(raw.pop(name + ".weight")), quant.decode_e8m0(raw.pop(name + ".scale"))
        return values * s.repeat_interleave(32, 1)

    out: dict[str, Tensor] = {}
    for name, spec in parameter_specs(config).items():
        if spec.kind in ("bf16", "f32"):
            out[name] = raw.pop(name).float()
        elif name.endswith(".experts.w13"):
            base = name[: -len("w13")]
            out[name] = torch.stack([torch.stack([expert(f"{base}{e}.w1"), expert(f"{base}{e}.w3")]) for e in range(spec.shape[0])])
        elif name.endswith(".experts.w2"):
            base = name[: -len("w2")]
            out[name] = torch.stack([expert(f"{base}{e}.w2") for e in range(spec.shape[1])], dim=1)
        elif name.endswith(".shared_experts.w13"):
            base = name[: -len("w13")]
            out[name] = torch.cat([dense(base + "w1"), dense(base + "w3")])
        else:
            out[name] = dense(name.removesuffix(".weight"))
        assert out[name].shape == spec.shape, name
    for name in [n for n in raw if n.endswith(".gate.bias")]:
        out[name.replace(".gate.bias", ".bias")] = raw.pop(name)
        raw.pop(name + "_vl")
    assert not raw, sorted(raw)[:5]
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--state", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    saved = torch.load(args.state, map_location="cpu", weights_only=True)
    config = json.loads(saved["config"])
    print(f"{export(config, saved['state'], args.tokenizer, args.out):,} bytes of tensors in {args.out}")


if __name__ == "__main__":
    main()
