// The sizes and constants of one checkpoint that the arithmetic uses, taken once from its config (model.md 1.1).
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/config.h"

namespace ps::model {

struct Dimensions {
  int64_t vocabulary = 0;
  int64_t hidden = 0;  // D
  int64_t heads = 0;   // H
  int64_t head_dim = 0;
  int64_t rope_pairs = 0;  // pairs of channels rotated, at the end of a head
  int64_t q_rank = 0;
  int64_t o_groups = 0;
  int64_t o_rank = 0;  // per group
  int64_t window = 0;  // W, the current token included
  int64_t index_heads = 0;
  int64_t index_dim = 0;
  int64_t top_k = 0;  // selected compressed rows
  int64_t candidate_blocks = 0;
  int64_t experts = 0;
  int64_t experts_per_token = 0;
  int64_t intermediate = 0;    // of an expert
  int64_t engram_columns = 0;  // table rows per token
  int64_t engram_dim = 0;      // values per table row
  float norm_eps = 0;
  float hc_eps = 0;
  int32_t hc_iterations = 0;
  float swiglu_limit = 0;
  float routed_scaling = 0;
  float attention_scale = 0;  // head_dim^-0.5
  float index_scale = 0;      // index_dim^-0.5 * index_heads^-0.5
};

[[nodiscard]] Dimensions dimensions(const checkpoint::Config& config);

// Inverse frequencies of the rotated pairs, F32 (model.md 2.4).
struct RopeTables {
  std::vector<float> window;      // layers of ratio 0 and draft stages: rope_theta, no YaRN
  std::vector<float> compressed;  // every other layer: compress_rope_theta with YaRN
};
[[nodiscard]] RopeTables rope_tables(const checkpoint::TextConfig& text);

}  // namespace ps::model
