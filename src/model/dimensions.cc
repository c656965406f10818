#include "model/dimensions.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ps::model {
namespace {

// f_i = F32(1 / F32(base^(2i / dims))).
std::vector<float> inverse_frequencies(double base, int64_t dims) {
  std::vector<float> table;
  for (int64_t i = 0; i < dims / 2; ++i) {
    const float power = static_cast<float>(std::pow(base, static_cast<double>(2 * i) / static_cast<double>(dims)));
    table.push_back(1.0f / power);
  }
  return table;
}

// Slow pairs are stretched by the factor, fast ones kept, with a linear ramp between the two corrected dimensions.
void apply_yarn(std::vector<float>& table, const checkpoint::RopeScaling& yarn, double base, int64_t dims) {
  const auto corrected_dim = [&](double rotations) {
    const double original = static_cast<double>(yarn.original_max_position_embeddings);
    return static_cast<double>(dims) * std::log(original / (rotations * 2 * std::numbers::pi)) / (2 * std::log(base));
  };
  const float low = static_cast<float>(std::max(std::floor(corrected_dim(yarn.beta_fast)), 0.0));
  const float high =
      static_cast<float>(std::min(std::ceil(corrected_dim(yarn.beta_slow)), static_cast<double>(dims - 1)));
  const float width = high == low ? 0.001f : high - low;
  const float factor = static_cast<float>(yarn.factor);
  for (size_t i = 0; i < table.size(); ++i) {
    const float ramp = std::clamp((static_cast<float>(i) - low) / width, 0.0f, 1.0f);
    table[i] = table[i] / factor * ramp + table[i] * (1.0f - ramp);
  }
}

}  // namespace

Dimensions dimensions(const checkpoint::Config& config) {
  const checkpoint::TextConfig& text = config.text_config;
  Dimensions d;
  d.vocabulary = text.vocab_size;
  d.hidden = text.hidden_size;
  d.heads = text.num_attention_heads;
  d.head_dim = text.head_dim;
  d.rope_pairs = text.qk_rope_head_dim / 2;
  d.q_rank = text.q_lora_rank;
  d.o_groups = text.o_groups;
  d.o_rank = text.o_lora_rank;
  d.window = text.sliding_window;
  d.index_heads = text.index_n_heads;
  d.index_dim = text.index_head_dim;
  d.top_k = text.index_topk;
  d.candidate_blocks = text.candidate_source_layer_id >= 0 ? text.candidate_topk_blocks : 0;
  d.experts = text.n_routed_experts;
  d.experts_per_token = text.num_experts_per_tok;
  d.intermediate = text.moe_intermediate_size;
  d.engram_columns = text.engram_layer_ids.empty() ? 0 : text.engram_columns();
  d.engram_dim = text.engram_head_dim;
  d.norm_eps = static_cast<float>(text.rms_norm_eps);
  d.hc_eps = static_cast<float>(text.hc_eps);
  d.hc_iterations = static_cast<int32_t>(text.hc_sinkhorn_iters);
  d.swiglu_limit = static_cast<float>(text.swiglu_limit);
  d.routed_scaling = static_cast<float>(text.routed_scaling_factor);
  d.attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(d.head_dim)));
  d.index_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(d.index_dim * d.index_heads)));
  return d;
}

RopeTables rope_tables(const checkpoint::TextConfig& text) {
  RopeTables tables;
  tables.window = inverse_frequencies(text.rope_theta, text.qk_rope_head_dim);
  tables.compressed = inverse_frequencies(text.compress_rope_theta, text.qk_rope_head_dim);
  if (text.rope_scaling) {
    apply_yarn(tables.compressed, *text.rope_scaling, text.compress_rope_theta, text.qk_rope_head_dim);
  }
  return tables;
}

}  // namespace ps::model
