// The one table of config.json fields: name, member, legal range, whether it may be absent. The reader, the writer and
// the list of known names all walk it, so they cannot disagree.
//
// A visitor has: size(name, int64&, Range, Need), layer(name, int&, ...), token(name, int32&, ...), real(name, double&,
// RealRange, Need), flag(name, bool&, legal, Need), word(name, string&, legal, Need) and the list forms. Private to
// config.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/engram.h"

namespace ps::checkpoint::fields {

// Inclusive. The upper bounds keep every product of sizes in this program inside int64: see the assertion below.
struct Range {
  int64_t low = 1;
  int64_t high = 1;
};

struct RealRange {
  double low;
  double high;
};

enum class Need : uint8_t { kRequired, kOptional };

inline constexpr Range kWidth = {1, 1 << 17};  // hidden sizes and ranks
inline constexpr Range kHeads = {1, 1024};
inline constexpr Range kHeadDim = {1, 4096};
inline constexpr Range kVocab = {1, 1 << 22};
inline constexpr Range kLayers = {1, 256};
inline constexpr Range kExperts = {1, 2048};
inline constexpr Range kTopK = {1, 1 << 16};
inline constexpr Range kTableRows = {1, int64_t{1} << 36};
inline constexpr Range kPositions = {1, 1 << 30};
inline constexpr int64_t kCandidateRows = 8;  // a candidate block is a block of the index planes (runtime.md 1.5)
inline constexpr RealRange kTheta = {1.0 + 1e-9, 1e12};
inline constexpr RealRange kPositive = {1e-30, 1e6};
inline constexpr RealRange kFraction = {0, 1};

// The largest tensor is a square of widths or an Engram table, times 4 bytes; all experts of all layers come to less
// than this product of the bounds.
static_assert(double{256} * 2048 * 3 * (1 << 17) * (1 << 17) * 4 < 9.2e18);

template <typename Visitor>
void visit(Visitor& v, QuantizationConfig& q) {
  v.word("quant_method", q.quant_method, "fp8", Need::kRequired);
  v.word("activation_scheme", q.activation_scheme, "dynamic", Need::kOptional);
  v.sizes("weight_block_size", q.weight_block_size, {1, 4096}, Need::kRequired);
  v.word("scale_fmt", q.scale_fmt, "ue8m0", Need::kRequired);
  v.word("expert_dtype", q.expert_dtype, "fp4", Need::kRequired);
}

template <typename Visitor>
void visit(Visitor& v, RopeScaling& r) {
  v.word("rope_type", r.rope_type, "yarn", Need::kRequired);
  v.real("factor", r.factor, {1, 1e6}, Need::kRequired);
  v.real("beta_fast", r.beta_fast, kPositive, Need::kRequired);
  v.real("beta_slow", r.beta_slow, kPositive, Need::kRequired);
  v.size("original_max_position_embeddings", r.original_max_position_embeddings, kPositions, Need::kRequired);
}

template <typename Visitor>
void visit_backbone(Visitor& v, TextConfig& t) {
  v.word("model_type", t.model_type, "deepseek_v41_text", Need::kOptional);
  v.size("vocab_size", t.vocab_size, kVocab, Need::kRequired);
  v.size("hidden_size", t.hidden_size, kWidth, Need::kRequired);
  v.size("moe_intermediate_size", t.moe_intermediate_size, kWidth, Need::kRequired);
  v.size("num_hidden_layers", t.num_hidden_layers, kLayers, Need::kRequired);
  v.size("num_attention_heads", t.num_attention_heads, kHeads, Need::kRequired);
  v.size("num_key_value_heads", t.num_key_value_heads, {1, 1}, Need::kOptional);
  v.size("head_dim", t.head_dim, kHeadDim, Need::kRequired);
  v.size("qk_rope_head_dim", t.qk_rope_head_dim, kHeadDim, Need::kRequired);
  v.size("q_lora_rank", t.q_lora_rank, kWidth, Need::kRequired);
  v.size("o_lora_rank", t.o_lora_rank, kWidth, Need::kRequired);
  v.size("o_groups", t.o_groups, kHeads, Need::kRequired);
  v.word("hidden_act", t.hidden_act, "silu", Need::kOptional);
  v.real("swiglu_limit", t.swiglu_limit, kPositive, Need::kRequired);
  v.real("rms_norm_eps", t.rms_norm_eps, {1e-37, 1}, Need::kRequired);
  v.flag("attention_bias", t.attention_bias, {false}, Need::kOptional);
  v.real("attention_dropout", t.attention_dropout, kFraction, Need::kOptional);
  v.real("initializer_range", t.initializer_range, {0, 1e6}, Need::kOptional);
  v.flag("use_cache", t.use_cache, {false, true}, Need::kOptional);
  v.flag("tie_word_embeddings", t.tie_word_embeddings, {false}, Need::kOptional);
  v.size("max_position_embeddings", t.max_position_embeddings, kPositions, Need::kRequired);
  v.real("rope_theta", t.rope_theta, kTheta, Need::kRequired);
  v.section("rope_scaling", t.rope_scaling);
  v.size("n_routed_experts", t.n_routed_experts, kExperts, Need::kRequired);
  v.size("n_shared_experts", t.n_shared_experts, {1, 1}, Need::kOptional);
  v.size("num_experts_per_tok", t.num_experts_per_tok, kExperts, Need::kRequired);
  v.word("scoring_func", t.scoring_func, "sqrtsoftplus", Need::kRequired);
  v.word("topk_method", t.topk_method, "noaux_tc", Need::kOptional);
  v.flag("norm_topk_prob", t.norm_topk_prob, {true}, Need::kOptional);
  v.real("routed_scaling_factor", t.routed_scaling_factor, kPositive, Need::kRequired);
}

template <typename Visitor>
void visit_attention(Visitor& v, TextConfig& t) {
  v.size("sliding_window", t.sliding_window, {1, 1 << 20}, Need::kRequired);
  v.layers("compress_ratios", t.compress_ratios, {0, 2}, Need::kRequired);
  v.real("compress_rope_theta", t.compress_rope_theta, kTheta, Need::kRequired);
  v.layers("kv_source_layer_ids", t.kv_source_layer_ids, {0, 255}, Need::kRequired);
  v.layers("index_source_layer_ids", t.index_source_layer_ids, {0, 255}, Need::kRequired);
  v.size("index_n_heads", t.index_n_heads, kHeads, Need::kRequired);
  v.size("index_head_dim", t.index_head_dim, kHeadDim, Need::kRequired);
  v.size("index_topk", t.index_topk, kTopK, Need::kRequired);
  v.layer("candidate_source_layer_id", t.candidate_source_layer_id, {-1, 255}, Need::kOptional);
  const Need candidates = t.candidate_source_layer_id >= 0 ? Need::kRequired : Need::kOptional;
  v.size("candidate_topk_blocks", t.candidate_topk_blocks, kTopK, candidates);
  v.size("candidate_block_size", t.candidate_block_size, {kCandidateRows, kCandidateRows}, candidates);
  v.size("hc_mult", t.hc_mult, {4, 4}, Need::kRequired);
  v.size("hc_sinkhorn_iters", t.hc_sinkhorn_iters, {1, 1000}, Need::kRequired);
  v.real("hc_eps", t.hc_eps, {0, 1}, Need::kRequired);
}

template <typename Visitor>
void visit_engram(Visitor& v, TextConfig& t) {
  v.layers("engram_layer_ids", t.engram_layer_ids, {0, 255}, Need::kOptional);
  const Need engram = t.engram_layer_ids.empty() ? Need::kOptional : Need::kRequired;
  v.sizes("engram_num_embeddings", t.engram_num_embeddings, kTableRows, engram);
  v.size("engram_max_ngram_size", t.engram_max_ngram_size, {2, kMaxEngramNgram}, engram);
  v.size("engram_vocab_size", t.engram_vocab_size, {2, int64_t{1} << 31}, engram);
  v.size("engram_n_heads", t.engram_n_heads, {1, 32}, engram);
  v.size("engram_head_dim", t.engram_head_dim, kHeadDim, engram);
  v.token("engram_pad_token_id", t.engram_pad_token_id, engram);
  v.size("engram_compressed_vocab_size", t.engram_compressed_vocab_size, kVocab, engram);
}

template <typename Visitor>
void visit_draft(Visitor& v, TextConfig& t) {
  v.size("num_nextn_predict_layers", t.num_nextn_predict_layers, {0, 16}, Need::kOptional);
  const Need draft = t.has_draft() ? Need::kRequired : Need::kOptional;
  v.size("dspark_block_size", t.dspark_block_size, {1, 64}, draft);
  v.token("dspark_noise_token_id", t.dspark_noise_token_id, draft);
  v.layers("dspark_target_layer_ids", t.dspark_target_layer_ids, {0, 255}, draft);
  v.size("dspark_markov_rank", t.dspark_markov_rank, kWidth, draft);
  v.size("dspark_n_routed_experts", t.dspark_n_routed_experts, kExperts, draft);
  v.size("dspark_num_experts_per_tok", t.dspark_num_experts_per_tok, kExperts, draft);
}

template <typename Visitor>
void visit(Visitor& v, TextConfig& t) {
  visit_backbone(v, t);
  visit_attention(v, t);
  visit_engram(v, t);
  visit_draft(v, t);
}

template <typename Visitor>
void visit(Visitor& v, VisionConfig& c) {
  v.word("model_type", c.model_type, "deepseek_v41_vision", Need::kOptional);
  v.size("num_hidden_layers", c.num_hidden_layers, kLayers, Need::kRequired);
  v.size("hidden_size", c.hidden_size, {1, 1 << 14}, Need::kRequired);
  v.size("num_attention_heads", c.num_attention_heads, kHeads, Need::kRequired);
  v.size("intermediate_size", c.intermediate_size, kWidth, Need::kRequired);
  v.size("patch_size", c.patch_size, {1, 256}, Need::kRequired);
  v.real("rope_theta", c.rope_theta, kTheta, Need::kRequired);
  v.size("downsample_ratio", c.downsample_ratio, {1, 16}, Need::kRequired);
  v.size("max_image_tokens", c.max_image_tokens, {1, 1 << 20}, Need::kRequired);
  v.size("min_pixels", c.min_pixels, {1, int64_t{1} << 40}, Need::kRequired);
  v.maybe_real("max_wh_ratio", c.max_wh_ratio, {1, 1e6});
}

template <typename Visitor>
void visit(Visitor& v, Config& c) {
  v.words("architectures", c.architectures, Need::kOptional);
  v.word("model_type", c.model_type, "deepseek_v41", Need::kRequired);
  v.word("dtype", c.dtype, "bfloat16 float32", Need::kOptional);
  v.word("transformers_version", c.transformers_version, "", Need::kOptional);
  v.token("bos_token_id", c.bos_token_id, Need::kRequired);
  v.token("eos_token_id", c.eos_token_id, Need::kRequired);
  v.token("pad_token_id", c.pad_token_id, Need::kRequired);
  v.token("image_token_id", c.image_token_id, Need::kOptional);
  v.section("quantization_config", c.quantization_config);
  v.section("text_config", c.text_config);
  v.section("vision_config", c.vision_config);
}

}  // namespace ps::checkpoint::fields
