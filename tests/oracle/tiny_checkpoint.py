"""Small random checkpoints in the official layout (model.md 1.2): config.json, tokenizer.json, one shard and its index.

`Tiny` names the dimensions; `make` draws the weights from one seed. Three storage formats:
  native: FP8 dense, packed FP4 experts, FP8 Engram rows, everything else BF16/F32 as released;
  f32:    the same tensor names without scales, all F32;
  bf16:   matrices and norms BF16 (hc_*, sinks and router biases stay F32).
Values are drawn so that activations stay of order one, and so that rare paths are walked: expert 1 of every layer is
drawn large enough to reach the SwiGLU clamps; a block of expert 0 is zero, which gives its Q8 an all-zero group.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

import engram_address
from checkpoint_io import E2M1, E4M3, RawTensor, f32_to_bf16_bits, pack_fp4, write_checkpoint
from numerics import round_e2m1, round_e4m3

MERGES = (
    "Ġ t", "Ġ a", "i n", "Ġ Ġ", "h e", "e r", "o n", "r e", "e n", "a t", "Ġ s", "Ġt he", "e s", "i s", "o r", "Ġ c",
    "ĠĠ ĠĠ", "T he", "I n", "O N", "Ġ T",
)
ADDED = (
    ("<｜place▁holder▁no▁0｜>", True), ("<｜System｜>", False), ("<｜User｜>", False), ("<｜Assistant｜>", False),
    ("<think>", False), ("</think>", False), ("｜DSML｜", False), ("<｜deepseek_image｜>", False),
)
SPECIALS = ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>")
VOCAB = 3 + 256 + len(MERGES) + len(ADDED)


def tokenizer() -> dict[str, Any]:
    """A byte-level BPE file of the released structure: 3 specials, 256 byte symbols, merges, added tokens at the end."""
    def added(token: int, content: str, special: bool) -> dict[str, Any]:
        return {
            "id": token, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": content == "<｜System｜>", "special": special,
        }

    vocab = {s: i for i, s in enumerate(SPECIALS)}
    for symbol in sorted(engram_address.byte_symbols()):
        vocab[symbol] = len(vocab)
    for merge in MERGES:
        vocab[merge.replace(" ", "")] = len(vocab)
    tokens = [added(i, s, True) for i, s in enumerate(SPECIALS)]
    tokens += [added(len(vocab) + i, s, special) for i, (s, special) in enumerate(ADDED)]
    split = [
        r"\p{N}{1,3}",
        "[一-龥\u3040-ゟ゠-ヿ]+",
        "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
        " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
    ]
    steps: list[dict[str, Any]] = [
        {"type": "Split", "pattern": {"Regex": s}, "behavior": "Isolated", "invert": False} for s in split
    ]
    steps.append({"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False})
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens,
        "normalizer": {"type": "Sequence", "normalizers": []},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "post_processor": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": list(MERGES),
        },
    }


@dataclass(frozen=True)
class Tiny:
    """Dimensions of one small model. K of every linear op and both head dims are multiples of 32."""

    ratios: tuple[int, ...]
    kv_sources: tuple[int, ...]
    index_sources: tuple[int, ...]
    candidate_source: int
    engram_layers: tuple[int, ...]
    hidden: int = 64
    inner: int = 32
    heads: int = 4
    head_dim: int = 64
    rope: int = 32
    q_rank: int = 32
    o_rank: int = 32
    o_groups: int = 2
    index_heads: int = 4
    index_dim: int = 64
    index_topk: int = 16
    window: int = 16
    block_topk: int = 4
    experts: int = 8
    experts_per_token: int = 2
    engram_start: int = 100
    engram_heads: int = 2
    engram_dim: int = 32

    @property
    def engram_columns(self) -> int:
        return 3 * self.engram_heads


def config(t: Tiny, quantized: bool, dtype: str) -> dict[str, Any]:
    """config.json with the published field names; no draft stages, no vision."""
    classes = engram_address.token_classes(tokenizer(), VOCAB)
    primes = engram_address.table_primes(t.engram_start, len(t.engram_layers), 3, t.engram_heads)
    out: dict[str, Any] = {
        "architectures": ["DeepseekV41ForCausalLM"], "model_type": "deepseek_v41", "dtype": dtype,
        "transformers_version": "5.6.0", "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2,
        "image_token_id": VOCAB - 1,
    }
    if quantized:
        out["quantization_config"] = {
            "quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [32, 32], "scale_fmt": "ue8m0",
            "expert_dtype": "fp4",
        }
    out["text_config"] = {
        "model_type": "deepseek_v41_text", "vocab_size": VOCAB, "hidden_size": t.hidden,
        "moe_intermediate_size": t.inner, "num_hidden_layers": len(t.ratios), "num_attention_heads": t.heads,
        "num_key_value_heads": 1, "head_dim": t.head_dim, "qk_rope_head_dim": t.rope, "q_lora_rank": t.q_rank,
        "o_lora_rank": t.o_rank, "o_groups": t.o_groups, "hidden_act": "silu", "swiglu_limit": 10.0,
        "rms_norm_eps": 1e-20, "attention_bias": False, "attention_dropout": 0.0, "initializer_range": 0.02,
        "use_cache": True, "tie_word_embeddings": False, "max_position_embeddings": 4096, "rope_theta": 10000,
        "rope_scaling": {
            "rope_type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 65536,
        },
        "n_routed_experts": t.experts, "n_shared_experts": 1, "num_experts_per_tok": t.experts_per_token,
        "scoring_func": "sqrtsoftplus", "topk_method": "noaux_tc", "norm_topk_prob": True, "routed_scaling_factor": 1.5,
        "sliding_window": t.window, "compress_ratios": list(t.ratios), "compress_rope_theta": 160000,
        "kv_source_layer_ids": list(t.kv_sources), "index_source_layer_ids": list(t.index_sources),
        "index_n_heads": t.index_heads, "index_head_dim": t.index_dim, "index_topk": t.index_topk,
        "candidate_source_layer_id": t.candidate_source, "candidate_topk_blocks": t.block_topk, "candidate_block_size": 8,
        "hc_mult": 4, "hc_sinkhorn_iters": 20, "hc_eps": 1e-06, "engram_layer_ids": list(t.engram_layers),
        "engram_num_embeddings": [int(p.sum()) for p in primes], "engram_max_ngram_size": 4,
        "engram_vocab_size": t.engram_start, "engram_n_heads": t.engram_heads, "engram_head_dim": t.engram_dim,
        "engram_pad_token_id": 2, "engram_compressed_vocab_size": int(classes.max()) + 1,
        "num_nextn_predict_layers": 0, "dspark_block_size": 5, "dspark_noise_token_id": 281,
        "dspark_target_layer_ids": [], "dspark_markov_rank": 32, "dspark_n_routed_experts": t.experts,
        "dspark_num_experts_per_tok": t.experts_per_token,
    }
    return out


class Writer:
    """Draws tensors in a fixed order and stores them in one format."""

    def __init__(self, seed: int, storage: str) -> None:
        self.rng = np.random.default_rng(seed)
        self.storage = storage
        self.tensors: dict[str, RawTensor] = {}

    def normal(self, shape: tuple[int, ...], std: float, mean: float = 0.0) -> np.ndarray:
        return (mean + std * self.rng.standard_normal(shape)).astype(np.float32)

    def f32(self, name: str, value: np.ndarray) -> None:
        self.tensors[name] = RawTensor("F32", np.ascontiguousarray(value, dtype=np.float32))

    def plain(self, name: str, value: np.ndarray) -> None:
        """A tensor that the release keeps in BF16. In f32 storage it has full float32 values."""
        if self.storage == "f32":
            self.f32(name, value)
        else:
            self.tensors[name] = RawTensor("BF16", f32_to_bf16_bits(value))

    def fp8(self, name: str, value: np.ndarray) -> None:
        """A dense matrix [N, K]; native: 32x32 blocks, each with a scale exponent of its own."""
        if self.storage != "native":
            return self.plain(name + ".weight", value)
        n, k = value.shape
        exponent = np.floor(np.log2(value.std())).astype(int) - self.rng.integers(0, 7, (n // 32, k // 32))
        self._store_fp8(name, value, exponent, 32)

    def fp8_rows(self, name: str, value: np.ndarray) -> None:
        """Engram rows [N, K]; native: one scale per row and 32 columns."""
        if self.storage != "native":
            return self.plain(name + ".weight", value)
        exponent = np.floor(np.log2(value.std())).astype(int) - self.rng.integers(0, 7, (value.shape[0], value.shape[1] // 32))
        self._store_fp8(name, value, exponent, 1)

    def _store_fp8(self, name: str, value: np.ndarray, exponent: np.ndarray, rows: int) -> None:
        scale = np.ldexp(np.float32(1), np.repeat(np.repeat(exponent, rows, axis=0), 32, axis=1))
        rounded = round_e4m3(np.clip(value / scale, -448, 448))
        positive = np.searchsorted(E4M3[:127], np.abs(rounded)).astype(np.uint8)
        self.tensors[name + ".weight"] = RawTensor("F8_E4M3", positive | (np.signbit(rounded).astype(np.uint8) << 7))
        self.tensors[name + ".scale"] = RawTensor("F8_E8M0", (exponent + 127).astype(np.uint8))

    def fp4(self, name: str, value: np.ndarray) -> None:
        """An expert matrix [N, K]; native: packed FP4 with one scale per row and 32 columns."""
        if self.storage != "native":
            return self.plain(name + ".weight", value)
        n, k = value.shape
        std = value.std()
        exponent = np.floor(np.log2(std)).astype(int) - self.rng.integers(0, 2, (n, k // 32))
        scale = np.ldexp(np.float32(1), np.repeat(exponent, 32, axis=1))
        rounded = round_e2m1(np.clip(value / scale, -6, 6))
        positive = np.searchsorted(E2M1[:8], np.abs(rounded)).astype(np.uint8)
        self.tensors[name + ".weight"] = RawTensor("I8", pack_fp4(positive | (np.signbit(rounded).astype(np.uint8) << 3)))
        self.tensors[name + ".scale"] = RawTensor("F8_E8M0", (exponent + 127).astype(np.uint8))


def draw(t: Tiny, seed: int, storage: str) -> dict[str, RawTensor]:
    w = Writer(seed, storage)
    D, d = t.hidden, t.head_dim

    def matrix(n: int, k: int, gain: float = 1.0) -> np.ndarray:
        return w.normal((n, k), gain * k**-0.5)

    def norm(name: str, n: int) -> None:
        w.plain(name, w.normal((n,), 0.15, 1.0))

    w.plain("embed.weight", w.normal((VOCAB, D), 1.0))
    w.plain("head.weight", matrix(VOCAB, D, 2.0))
    norm("norm.weight", D)
    primes = engram_address.table_primes(t.engram_start, len(t.engram_layers), 3, t.engram_heads)
    for layer, ratio in enumerate(t.ratios):
        p = f"layers.{layer}."
        norm(p + "attn_norm.weight", D)
        norm(p + "ffn_norm.weight", D)
        for part in ("attn", "ffn"):
            w.f32(f"{p}hc_{part}_fn", w.normal((24, 4 * D), (4 * D) ** -0.5))
            w.f32(f"{p}hc_{part}_base", w.normal((24,), 0.7))
            w.f32(f"{p}hc_{part}_scale", w.normal((3,), 0.2, 1.0))
        a = p + "attn."
        w.f32(a + "attn_sink", w.normal((t.heads,), 1.0))
        norm(a + "q_norm.weight", t.q_rank)
        norm(a + "kv_norm.weight", d)
        w.fp8(a + "wq_a", matrix(t.q_rank, D))
        w.fp8(a + "wq_b", matrix(t.heads * d, t.q_rank, 1.5))
        w.fp8(a + "wkv", matrix(d, D))
        w.fp8(a + "wo_a", matrix(t.o_groups * t.o_rank, t.heads * d // t.o_groups, 1.5))
        w.fp8(a + "wo_b", matrix(D, t.o_groups * t.o_rank))
        if layer in t.kv_sources:
            w.plain(a + "compressor.wkv.weight", matrix(d, D))
            if ratio == 2:
                w.plain(a + "compressor.wgate.weight", matrix(d, D, 2.0))
            norm(a + "compressor.norm.weight", d)
            w.plain(a + "indexer.wk.weight", matrix(t.index_dim, d))
            norm(a + "indexer.k_norm.weight", t.index_dim)
        if layer in t.index_sources:
            w.fp8(a + "indexer.wq_b", matrix(t.index_heads * t.index_dim, t.q_rank))
            w.plain(a + "indexer.weights_proj.weight", matrix(t.index_heads, D))
        f = p + "ffn."
        w.plain(f + "gate.weight", matrix(t.experts, D, 1.5))
        w.f32(f + "gate.bias", w.normal((t.experts,), 0.2))
        w.f32(f + "gate.bias_vl", w.normal((t.experts,), 0.2))
        for e in range(t.experts):
            gain = 8.0 if e == 1 else 1.0
            for name in ("w1", "w3"):
                value = matrix(t.inner, D, gain)
                if e == 0 and name == "w3":
                    value[:32] = 0 if t.inner > 32 else value[:32] * 2.0**-30
                w.fp4(f"{f}experts.{e}.{name}", value)
            w.fp4(f"{f}experts.{e}.w2", matrix(D, t.inner, 0.2 if e == 1 else 1.0))
        w.fp8(f + "shared_experts.w1", matrix(t.inner, D))
        w.fp8(f + "shared_experts.w3", matrix(t.inner, D))
        w.fp8(f + "shared_experts.w2", matrix(D, t.inner))
        if layer in t.engram_layers:
            rows = int(primes[t.engram_layers.index(layer)].sum())
            k = t.engram_columns * t.engram_dim
            w.fp8_rows(p + "engram.embed", w.normal((rows, t.engram_dim), 1.0))
            w.fp8(p + "engram.wkv", matrix(5 * D, k))
            w.plain(p + "engram.q_weight", w.normal((4, D), 0.3, 1.0))
            w.plain(p + "engram.k_weight", w.normal((4, D), 0.3, 1.0))
    return w.tensors


def make(folder: str, t: Tiny, seed: int, storage: str) -> int:
    """Writes the checkpoint; returns the payload byte count."""
    dtype = "float32" if storage == "f32" else "bfloat16"
    total = write_checkpoint(folder, config(t, storage == "native", dtype), draw(t, seed, storage))
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump(tokenizer(), f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")
    return total


def prompt(seed: int, length: int) -> np.ndarray:
    """[length] int64 ids: BOS, then text-like draws with repeats so that Engram n-grams and index ties occur."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(3, VOCAB - len(ADDED), length)
    for start in range(40, length - 16, 40):  # a phrase seen before
        ids[start : start + 8] = ids[start - 32 : start - 24]
    ids[0] = 0
    if length > 12:
        ids[8:12] = ids[7]  # equal tokens in a row
    return ids.astype(np.int64)
