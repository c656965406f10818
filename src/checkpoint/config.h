// The typed config.json (model.md 1.1): every field of the published file, checked before anything is sized by it.
//
// ENSURES: a Config that parse_config() returned is legal (runtime.md 0.3, pitfalls 10): the layer topology derives,
// every K and N of a quantized matrix is a multiple of 32, and no product of sizes in this program overflows int64.
// All problems of a file are reported at once. Fields nobody knows are listed, not refused.
// Nothing here is fixed to the published sizes; the comments give them.
// Threading: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace ps::checkpoint {

// One thing wrong with a file: the field's path ("text_config.head_dim") and what its value must be.
struct Problem {
  std::string field;
  std::string message;
};

// One invalid Status that lists all problems, or ok for none.
[[nodiscard]] Status join_problems(const std::vector<Problem>& problems);

struct QuantizationConfig {
  std::string quant_method = "fp8";
  std::string activation_scheme = "dynamic";
  std::vector<int64_t> weight_block_size = {32, 32};  // [N, K] weights per E8M0 scale
  std::string scale_fmt = "ue8m0";
  std::string expert_dtype = "fp4";
};

struct RopeScaling {
  std::string rope_type = "yarn";
  double factor = 16;
  double beta_fast = 32;
  double beta_slow = 1;
  int64_t original_max_position_embeddings = 65536;
};

struct TextConfig {
  std::string model_type = "deepseek_v41_text";
  int64_t vocab_size = 0;             // 129280
  int64_t hidden_size = 0;            // D = 5120
  int64_t moe_intermediate_size = 0;  // 2304, of routed and shared experts
  int64_t num_hidden_layers = 0;      // 40
  int64_t num_attention_heads = 0;    // H = 64
  int64_t num_key_value_heads = 1;
  int64_t head_dim = 0;          // d = 512; K and V are this one vector
  int64_t qk_rope_head_dim = 0;  // r = 64, the last channels of a head and of an index head
  int64_t q_lora_rank = 0;       // 1280
  int64_t o_lora_rank = 0;       // 1024 per group
  int64_t o_groups = 0;          // 8
  std::string hidden_act = "silu";
  double swiglu_limit = 10;
  double rms_norm_eps = 1e-20;
  bool attention_bias = false;
  double attention_dropout = 0;
  double initializer_range = 0.02;
  bool use_cache = true;
  bool tie_word_embeddings = false;
  int64_t max_position_embeddings = 0;      // 1048576
  double rope_theta = 10000;                // ratio-0 layers and draft stages, without YaRN
  std::optional<RopeScaling> rope_scaling;  // YaRN of the compressed layers; null means none

  int64_t n_routed_experts = 0;  // 384
  int64_t n_shared_experts = 1;
  int64_t num_experts_per_tok = 0;  // 6
  std::string scoring_func = "sqrtsoftplus";
  std::string topk_method = "noaux_tc";
  bool norm_topk_prob = true;
  double routed_scaling_factor = 1.5;

  int64_t sliding_window = 0;               // W = 128, the current token included
  std::vector<int> compress_ratios;         // [num_hidden_layers + num_nextn_predict_layers] of 0, 1, 2
  double compress_rope_theta = 160000;      // every layer with ratio > 0
  std::vector<int> kv_source_layer_ids;     // 2 8 14 20
  std::vector<int> index_source_layer_ids;  // 2 8 14 20 24 28 32 36
  int64_t index_n_heads = 0;                // 32
  int64_t index_head_dim = 0;               // 128
  int64_t index_topk = 0;                   // 512 compressed rows per query
  int candidate_source_layer_id = -1;       // 20; -1 for none
  int64_t candidate_topk_blocks = 0;        // 2048
  int64_t candidate_block_size = 0;         // 8 rows

  int64_t hc_mult = 0;            // C = 4 residual streams
  int64_t hc_sinkhorn_iters = 0;  // 20 column passes
  double hc_eps = 1e-6;

  std::vector<int> engram_layer_ids;           // 1 14; empty for a model without Engram
  std::vector<int64_t> engram_num_embeddings;  // table rows per Engram layer, the sum of its primes
  int64_t engram_max_ngram_size = 0;           // 4
  int64_t engram_vocab_size = 0;               // 16000000, where the scan for primes starts
  int64_t engram_n_heads = 0;                  // 8 hashes per n-gram size
  int64_t engram_head_dim = 0;                 // 256 values per row
  int32_t engram_pad_token_id = 0;             // 2, a token id; its class pads blocked lookbacks
  int64_t engram_compressed_vocab_size = 0;    // 99092 token classes; scales the multipliers

  int64_t num_nextn_predict_layers = 0;      // 3 draft stages; 0 for a model without DSpark
  int64_t dspark_block_size = 0;             // 5 rows per draft pass
  int32_t dspark_noise_token_id = 0;         // 128799
  std::vector<int> dspark_target_layer_ids;  // 37 38 39: the residual entering these layers is tapped
  int64_t dspark_markov_rank = 0;            // 256
  int64_t dspark_n_routed_experts = 0;       // 128
  int64_t dspark_num_experts_per_tok = 0;    // 3

  [[nodiscard]] int64_t num_engram_layers() const noexcept { return static_cast<int64_t>(engram_layer_ids.size()); }
  // Rows looked up per token and Engram layer: 24.
  [[nodiscard]] int64_t engram_columns() const noexcept { return (engram_max_ngram_size - 1) * engram_n_heads; }
  [[nodiscard]] bool has_draft() const noexcept { return num_nextn_predict_layers > 0; }
};

struct VisionConfig {
  std::string model_type = "deepseek_v41_vision";
  int64_t num_hidden_layers = 0;    // 32
  int64_t hidden_size = 0;          // 1024
  int64_t num_attention_heads = 0;  // 16
  int64_t intermediate_size = 0;    // 2816
  int64_t patch_size = 0;           // 14 pixels
  double rope_theta = 10000;
  int64_t downsample_ratio = 0;  // 3: 3x3 patches become one token
  int64_t max_image_tokens = 0;  // 1024
  int64_t min_pixels = 0;        // 295936
  std::optional<double> max_wh_ratio;
};

struct Config {
  std::vector<std::string> architectures = {"DeepseekV41ForCausalLM"};
  std::string model_type = "deepseek_v41";
  std::string dtype = "bfloat16";
  std::string transformers_version = "5.6.0";
  int32_t bos_token_id = 0;
  int32_t eos_token_id = 1;
  int32_t pad_token_id = 2;
  int32_t image_token_id = -1;                            // 129264; -1 only without a vision tower
  std::optional<QuantizationConfig> quantization_config;  // absent: an unquantized export
  TextConfig text_config;
  std::optional<VisionConfig> vision_config;

  // Paths of the fields of the file that this program does not know. They had no effect.
  std::vector<std::string> unknown_fields;

  [[nodiscard]] bool has_vision() const noexcept { return vision_config.has_value(); }
};

// invalid: malformed JSON, another model_type, the flat inference/config.json, or every illegal field of a right one.
[[nodiscard]] Result<Config> parse_config(std::string_view json);

// Everything illegal about values that have the right type; empty for a legal config.
[[nodiscard]] std::vector<Problem> validate(const Config& config);

// The text of a config.json in the published order; parse_config() reads back an equal value.
[[nodiscard]] std::string write_config(const Config& config);

}  // namespace ps::checkpoint
