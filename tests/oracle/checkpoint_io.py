"""Reading and writing of official-layout checkpoints with NumPy alone.

Owns: the safetensors container (header + raw bytes, including F8_E4M3, F8_E8M0 and packed-FP4 I8 tensors that NumPy has
no type for), the storage formats of model.md 1.4, and the config as a plain dictionary.
Knows nothing of the model's arithmetic.
"""

from __future__ import annotations

import json
import os
import struct
from dataclasses import dataclass
from typing import Any, Iterable

import numpy as np

RAW_DTYPES: dict[str, type] = {
    "F32": np.float32,
    "F64": np.float64,
    "BF16": np.uint16,
    "F8_E4M3": np.uint8,
    "F8_E8M0": np.uint8,
    "I8": np.uint8,  # packed FP4: raw bytes, never signed integers
    "U8": np.uint8,
    "I32": np.int32,
    "I64": np.int64,
}


@dataclass(frozen=True)
class RawTensor:
    """One tensor as stored: its safetensors dtype name and its raw storage array (last axis in storage units)."""

    dtype: str
    data: np.ndarray


def read_safetensors(path: str) -> dict[str, RawTensor]:
    """All tensors of one file, memory-mapped."""
    with open(path, "rb") as f:
        (header_len,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(header_len))
    blob = np.memmap(path, dtype=np.uint8, mode="r", offset=8 + header_len)
    out: dict[str, RawTensor] = {}
    for name, info in header.items():
        if name == "__metadata__":
            continue
        begin, end = info["data_offsets"]
        np_type = RAW_DTYPES[info["dtype"]]
        out[name] = RawTensor(info["dtype"], blob[begin:end].view(np_type).reshape(info["shape"]))
    return out


def write_safetensors(path: str, tensors: dict[str, RawTensor], metadata: dict[str, str] | None = None) -> int:
    """Writes tensors, wider elements first so that each is aligned, else in the given order; returns the payload bytes."""
    tensors = dict(sorted(tensors.items(), key=lambda item: -item[1].data.dtype.itemsize))
    header: dict[str, Any] = {}
    if metadata:
        header["__metadata__"] = metadata
    offset = 0
    for name, t in tensors.items():
        assert t.data.dtype == np.dtype(RAW_DTYPES[t.dtype]), (name, t.dtype, t.data.dtype)
        header[name] = {"dtype": t.dtype, "shape": list(t.data.shape), "data_offsets": [offset, offset + t.data.nbytes]}
        offset += t.data.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)))
        f.write(text)
        for t in tensors.values():
            f.write(np.ascontiguousarray(t.data).tobytes())
    return offset


# ---- storage formats, model.md 1.4 ------------------------------------------------------------------------------------

def f32_to_bf16_bits(x: np.ndarray) -> np.ndarray:
    """Round to nearest even; finite inputs. Any shape -> uint16."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)


def bf16_bits_to_f32(bits: np.ndarray) -> np.ndarray:
    return (np.asarray(bits, dtype=np.uint32) << np.uint32(16)).view(np.float32)


def _e4m3_table() -> np.ndarray:
    """[256] float32; code 0x7F and 0xFF are NaN."""
    table = np.zeros(256, np.float32)
    for code in range(256):
        exponent, mantissa = (code >> 3) & 15, code & 7
        value = mantissa * 2.0**-9 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
        table[code] = np.nan if (code & 0x7F) == 0x7F else (-value if code & 0x80 else value)
        if code == 0x80:
            table[code] = -0.0
    return table


E4M3 = _e4m3_table()
E2M1 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0], np.float32)


def decode_e8m0(code: np.ndarray) -> np.ndarray:
    """2^(code-127) in float64 (exact for every code, also 0); 255 is NaN."""
    value = np.ldexp(np.float64(1.0), np.asarray(code, np.int32) - 127)
    return np.where(np.asarray(code) == 255, np.nan, value)


def unpack_fp4(packed: np.ndarray) -> np.ndarray:
    """[N, K/2] bytes -> [N, K] nibble codes: the low nibble is the even element."""
    low, high = packed & np.uint8(15), packed >> np.uint8(4)
    return np.stack([low, high], axis=-1).reshape(*packed.shape[:-1], packed.shape[-1] * 2)


def pack_fp4(codes: np.ndarray) -> np.ndarray:
    """Inverse of unpack_fp4."""
    return (codes[..., 0::2] | (codes[..., 1::2] << np.uint8(4))).astype(np.uint8)


def decode_weight(weight: RawTensor, scale: RawTensor | None) -> np.ndarray:
    """Exact float32 value of a stored matrix or vector.

    FP8 with a [N/32, K/32] scale is the 32x32-block dense form; FP8 with [N, K/32] is the Engram row form; I8 with
    [N, K/32] is packed FP4. Which FP8 form it is follows from the scale's row count.
    """
    if weight.dtype == "F32":
        return np.asarray(weight.data)
    if weight.dtype == "BF16":
        return bf16_bits_to_f32(weight.data)
    assert scale is not None, "a quantized tensor needs its scale"
    s = decode_e8m0(scale.data)
    if weight.dtype == "F8_E4M3":
        w = E4M3[weight.data].astype(np.float64)
        rows = w.shape[0] // s.shape[0] if s.shape[0] != w.shape[0] else 1
        full = np.repeat(np.repeat(s, rows, axis=0), 32, axis=1)
    else:
        assert weight.dtype == "I8", weight.dtype
        w = E2M1[unpack_fp4(np.asarray(weight.data))].astype(np.float64)
        full = np.repeat(s, 32, axis=1)
    return (w * full).astype(np.float32)


# ---- checkpoint folder ------------------------------------------------------------------------------------------------

class Checkpoint:
    """A folder with config.json, *.safetensors and (for Engram) tokenizer.json."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
            self.config: dict[str, Any] = json.load(f)
        with open(os.path.join(folder, "model.safetensors.index.json"), encoding="utf-8") as f:
            weight_map: dict[str, str] = json.load(f)["weight_map"]
        self._raw: dict[str, RawTensor] = {}
        for shard in sorted(set(weight_map.values())):
            self._raw.update(read_safetensors(os.path.join(folder, shard)))
        missing = set(weight_map) ^ set(self._raw)
        assert not missing, f"index and shards disagree: {sorted(missing)[:5]}"
        self._decoded: dict[str, np.ndarray] = {}

    def has(self, name: str) -> bool:
        return name in self._raw

    def names(self) -> Iterable[str]:
        return self._raw.keys()

    def dtype(self, name: str) -> str:
        return self._raw[name].dtype

    def is_quantized(self, name: str) -> bool:
        """True for an FP8 or FP4 weight: its input is Q8-quantized first (model.md 2.2)."""
        return self._raw[name].dtype in ("F8_E4M3", "I8")

    def tensor(self, name: str) -> np.ndarray:
        """Decoded float32 values of tensor `name` ("x.weight" finds its "x.scale" by itself)."""
        if name not in self._decoded:
            scale = self._raw.get(name[: -len(".weight")] + ".scale") if name.endswith(".weight") else None
            self._decoded[name] = decode_weight(self._raw[name], scale)
        return self._decoded[name]


def write_checkpoint(folder: str, config: dict[str, Any], tensors: dict[str, RawTensor]) -> int:
    """config.json, model.safetensors and its index; returns the payload byte count."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f, indent=2, ensure_ascii=False)
        f.write("\n")
    total = write_safetensors(os.path.join(folder, "model.safetensors"), tensors)
    index = {"metadata": {"total_size": total}, "weight_map": {name: "model.safetensors" for name in tensors}}
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as f:
        json.dump(index, f, indent=1)
        f.write("\n")
    return total
