"""Sizes, layer roles and the parameter list of a model, from its config.json (model.md 0, 1.1, 1.2).

`tiny_config` is the one place that names the dimensions of models/tiny; `micro_config` is a toy of the same structure for tests.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Role:
    """What a layer does besides its window."""

    kind: str  # WINDOW, FULL, REINDEX, REUSE
    ratio: int
    owner: int  # layer whose compressed rows it reads, -1 for WINDOW
    source: int  # layer whose selection it reads, -1 for WINDOW


def layer_roles(text: Json) -> list[Role]:
    roles: list[Role] = []
    owners = {1: -1, 2: -1}
    source = -1
    for layer in range(text["num_hidden_layers"]):
        ratio = text["compress_ratios"][layer]
        if ratio == 0:
            roles.append(Role("WINDOW", 0, -1, -1))
            continue
        is_owner, is_source = layer in text["kv_source_layer_ids"], layer in text["index_source_layer_ids"]
        owners[ratio] = layer if is_owner else owners[ratio]
        source = layer if is_source else source
        roles.append(Role("FULL" if is_owner else "REINDEX" if is_source else "REUSE", ratio, owners[ratio], source))
    return roles


def first_decoder_layer(text: Json) -> int:
    """The last KV owner: from it on, bounded replay keeps only the tail's windows (runtime.md 3)."""
    return max(text["kv_source_layer_ids"])


def primes_from(start: int, count: int) -> list[int]:
    found: list[int] = []
    n = start
    while len(found) < count:
        if n > 1 and all(n % d for d in range(2, math.isqrt(n) + 1)):
            found.append(n)
        n += 1
    return found


def make_config(text: Json, classes: int, image_token: int) -> Json:
    """Completes the sizes of `text` to a whole config.json."""
    columns = (text["engram_max_ngram_size"] - 1) * text["engram_n_heads"]
    primes = primes_from(text["engram_vocab_size"], columns * len(text["engram_layer_ids"]))
    text = dict(text)
    text["engram_num_embeddings"] = [
        sum(primes[i * columns : (i + 1) * columns]) for i in range(len(text["engram_layer_ids"]))
    ]
    text["engram_compressed_vocab_size"] = classes
    order = ("model_type vocab_size hidden_size moe_intermediate_size num_hidden_layers num_attention_heads num_key_value_heads "
             "head_dim qk_rope_head_dim q_lora_rank o_lora_rank o_groups hidden_act swiglu_limit rms_norm_eps attention_bias "
             "attention_dropout initializer_range use_cache tie_word_embeddings max_position_embeddings rope_theta rope_scaling "
             "n_routed_experts n_shared_experts num_experts_per_tok scoring_func topk_method norm_topk_prob "
             "routed_scaling_factor sliding_window compress_ratios compress_rope_theta kv_source_layer_ids "
             "index_source_layer_ids index_n_heads index_head_dim index_topk candidate_source_layer_id candidate_topk_blocks "
             "candidate_block_size hc_mult hc_sinkhorn_iters hc_eps engram_layer_ids engram_num_embeddings "
             "engram_max_ngram_size engram_vocab_size engram_n_heads engram_head_dim engram_pad_token_id "
             "engram_compressed_vocab_size num_nextn_predict_layers dspark_block_size dspark_noise_token_id "
             "dspark_target_layer_ids dspark_markov_rank dspark_n_routed_experts dspark_num_experts_per_tok").split()
    assert sorted(order) == sorted(text), set(order) ^ set(text)
    return {
        "architectures": ["DeepseekV41ForCausalLM"], "model_type": "deepseek_v41", "dtype": "bfloat16",
        "transformers_version": "5.6.0", "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2,
        "image_token_id": image_token,
        "quantization_config": {
            "quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [32, 32], "scale_fmt": "ue8m0",
            "expert_dtype": "fp4",
        },
        "text_config": {k: text[k] for k in order},
        "vision_config": None,
    }


_FIXED: Json = {
    "model_type": "deepseek_v41_text", "num_key_value_heads": 1, "hidden_act": "silu", "swiglu_limit": 10.0,
    "rms_norm_eps": 1e-20, "attention_bias": False, "attention_dropout": 0.0, "initializer_range": 0.02, "use_cache": True,
    "tie_word_embeddings": False, "rope_theta": 10000,
    "rope_scaling": {
        "rope_type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 65536,
    },
    "n_shared_experts": 1, "scoring_func": "sqrtsoftplus", "topk_method": "noaux_tc", "norm_topk_prob": True,
    "routed_scaling_factor": 1.5, "compress_rope_theta": 160000, "candidate_block_size": 8, "hc_mult": 4,
    "hc_sinkhorn_iters": 20, "hc_eps": 1e-06, "engram_max_ngram_size": 4, "engram_pad_token_id": 2,
    "num_nextn_predict_layers": 3, "dspark_block_size": 5,
}
_LAYERS: Json = {
    # 0 1 WINDOW; 2 3 and 4 5 ratio 2, FULL then REUSE; 6 ratio 1, FULL and candidate source, 7 REUSE; 8 and 10 REINDEX, 9 and 11 REUSE.
    "num_hidden_layers": 12, "compress_ratios": [0, 0, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 0, 0, 0],
    "kv_source_layer_ids": [2, 4, 6], "index_source_layer_ids": [2, 4, 6, 8, 10], "candidate_source_layer_id": 6,
    "engram_layer_ids": [1, 4], "dspark_target_layer_ids": [9, 10, 11],
}


def tiny_config(vocab: int, classes: int, image_token: int, noise_token: int) -> Json:
    return make_config({
        **_FIXED, **_LAYERS, "vocab_size": vocab, "hidden_size": 256, "moe_intermediate_size": 96, "num_attention_heads": 4,
        "head_dim": 128, "qk_rope_head_dim": 32, "q_lora_rank": 128, "o_lora_rank": 64, "o_groups": 4,
        "max_position_embeddings": 65536, "n_routed_experts": 16, "num_experts_per_tok": 2, "sliding_window": 128,
        "index_n_heads": 4, "index_head_dim": 64, "index_topk": 128, "candidate_topk_blocks": 128,
        "engram_vocab_size": 3000, "engram_n_heads": 2, "engram_head_dim": 32, "dspark_noise_token_id": noise_token,
        "dspark_markov_rank": 32, "dspark_n_routed_experts": 8, "dspark_num_experts_per_tok": 2,
    }, classes, image_token)


def micro_config(vocab: int, classes: int, image_token: int, noise_token: int) -> Json:
    """The same structure, small enough to step on one CPU thread."""
    config = tiny_config(vocab, classes, image_token, noise_token)
    text = config["text_config"]
    text.update({
        "hidden_size": 64, "moe_intermediate_size": 32, "num_attention_heads": 4, "head_dim": 64, "q_lora_rank": 32,
        "o_lora_rank": 32, "o_groups": 2, "n_routed_experts": 8, "sliding_window": 32, "index_n_heads": 2, "index_head_dim": 32,
        "index_topk": 16, "candidate_topk_blocks": 4, "engram_vocab_size": 300, "dspark_n_routed_experts": 4,
        "dspark_markov_rank": 32,
    })
    return make_config({k: v for k, v in text.items() if k not in ("engram_num_embeddings",)}, classes, image_token)


@dataclass(frozen=True)
class Spec:
    """One master tensor. kind: fp8, fp4, table (storage is quantized), bf16, f32."""

    shape: tuple[int, ...]
    kind: str
    std: float  # of the initial values; 0 = the constant `fill`
    fill: float = 0.0


def _block(out: dict[str, Spec], name: str, text: Json, role: Role, experts: int) -> None:
    d, c = text["hidden_size"], text["hc_mult"]
    heads, dim, rank = text["num_attention_heads"], text["head_dim"], text["q_lora_rank"]
    o_rank, inner = text["o_groups"] * text["o_lora_rank"], text["moe_intermediate_size"]
    depth = 1 / math.sqrt(2 * text["num_hidden_layers"])
    for part in ("attn", "ffn"):
        out[f"{name}.{part}_norm.weight"] = Spec((d,), "bf16", 0, 1)
        out[f"{name}.hc_{part}_fn"] = Spec((c * (c + 2), c * d), "f32", 0.01)
        out[f"{name}.hc_{part}_base"] = Spec((c * (c + 2),), "f32", 0)
        out[f"{name}.hc_{part}_scale"] = Spec((3,), "f32", 0, 0.2)
    a = name + ".attn"
    out[a + ".attn_sink"] = Spec((heads,), "f32", 0)
    out[a + ".q_norm.weight"] = Spec((rank,), "bf16", 0, 1)
    out[a + ".kv_norm.weight"] = Spec((dim,), "bf16", 0, 1)
    out[a + ".wq_a.weight"] = Spec((rank, d), "fp8", d**-0.5)
    out[a + ".wq_b.weight"] = Spec((heads * dim, rank), "fp8", rank**-0.5)
    out[a + ".wkv.weight"] = Spec((dim, d), "fp8", d**-0.5)
    out[a + ".wo_a.weight"] = Spec((o_rank, heads // text["o_groups"] * dim), "fp8", (heads // text["o_groups"] * dim) ** -0.5)
    out[a + ".wo_b.weight"] = Spec((d, o_rank), "fp8", o_rank**-0.5 * depth)
    if role.kind == "FULL":
        out[a + ".compressor.wkv.weight"] = Spec((dim, d), "bf16", d**-0.5)
        if role.ratio == 2:
            out[a + ".compressor.wgate.weight"] = Spec((dim, d), "bf16", 0.1 * d**-0.5)
        out[a + ".compressor.norm.weight"] = Spec((dim,), "bf16", 0, 1)
        out[a + ".indexer.wk.weight"] = Spec((text["index_head_dim"], dim), "bf16", dim**-0.5)
        out[a + ".indexer.k_norm.weight"] = Spec((text["index_head_dim"],), "bf16", 0, 1)
    if role.kind in ("FULL", "REINDEX"):
        out[a + ".indexer.wq_b.weight"] = Spec((text["index_n_heads"] * text["index_head_dim"], rank), "fp8", rank**-0.5)
        out[a + ".indexer.weights_proj.weight"] = Spec((text["index_n_heads"], d), "bf16", d**-0.5)
    f = name + ".ffn"
    out[f + ".gate.weight"] = Spec((experts, d), "bf16", d**-0.5)
    out[f + ".experts.w13"] = Spec((experts, 2, inner, d), "fp4", d**-0.5)
    out[f + ".experts.w2"] = Spec((d, experts, inner), "fp4", inner**-0.5 * depth)
    out[f + ".shared_experts.w13"] = Spec((2 * inner, d), "fp8", d**-0.5)
    out[f + ".shared_experts.w2.weight"] = Spec((d, inner), "fp8", inner**-0.5 * depth)


def parameter_specs(config: Json) -> dict[str, Spec]:
    """Every trained tensor. Official names, but a layer's experts are one tensor, and w1 and w3 are one: see export.py."""
    text = config["text_config"]
    d, vocab = text["hidden_size"], text["vocab_size"]
    out: dict[str, Spec] = {
        "embed.weight": Spec((vocab, d), "bf16", 0.5),
        "head.weight": Spec((vocab, d), "bf16", 0.02),
        "norm.weight": Spec((d,), "bf16", 0, 1),
    }
    roles = layer_roles(text)
    for layer, role in enumerate(roles):
        _block(out, f"layers.{layer}", text, role, text["n_routed_experts"])
    columns = (text["engram_max_ngram_size"] - 1) * text["engram_n_heads"]
    for i, layer in enumerate(text["engram_layer_ids"]):
        e, dim = f"layers.{layer}.engram", text["engram_head_dim"]
        out[e + ".embed.weight"] = Spec((text["engram_num_embeddings"][i], dim), "table", 0.3)
        out[e + ".wkv.weight"] = Spec(((text["hc_mult"] + 1) * d, columns * dim), "fp8", (columns * dim) ** -0.5)
        out[e + ".q_weight"] = Spec((text["hc_mult"], d), "bf16", 0, 1)
        out[e + ".k_weight"] = Spec((text["hc_mult"], d), "bf16", 0, 1)
    stages = text["num_nextn_predict_layers"]
    for stage in range(stages):
        _block(out, f"mtp.{stage}", text, Role("WINDOW", 0, -1, -1), text["dspark_n_routed_experts"])
    if stages:
        taps, last, r = len(text["dspark_target_layer_ids"]), f"mtp.{stages - 1}", text["dspark_markov_rank"]
        out["mtp.0.main_proj.weight"] = Spec((d, taps * d), "fp8", (taps * d) ** -0.5)
        out["mtp.0.main_norm.weight"] = Spec((d,), "bf16", 0, 1)
        out[last + ".norm.weight"] = Spec((d,), "bf16", 0, 1)
        out[last + ".markov_head.embed.weight"] = Spec((vocab, r), "bf16", 0.5)
        out[last + ".markov_head.head.weight"] = Spec((vocab, r), "bf16", 0.02)
        out[last + ".confidence_head.proj.weight"] = Spec((1, d + r), "bf16", 0.01)
    return out


def mixer_base(text: Json, layer: int, part: str) -> list[float]:
    """Initial hc_*_base: mostly read one stream, write all alike, keep streams apart."""
    c = text["hc_mult"]
    last = layer == text["num_hidden_layers"] - 1 and part == "ffn"
    pre = [0.0 if last else (1.5 if s == layer % c else -1.5) for s in range(c)]
    comb = [4.0 if i == j else 0.0 for i in range(c) for j in range(c)]
    return pre + [0.0] * c + comb
