// The relations between config fields: topology, divisibility that the kernels need, table sizes.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "checkpoint/config.h"
#include "checkpoint/engram.h"
#include "checkpoint/topology.h"

namespace ps::checkpoint {
namespace {

class Checks {
 public:
  std::vector<Problem> problems;

  void require(bool legal, std::string field, std::string message) {
    if (!legal) problems.push_back({std::move(field), std::move(message)});
  }
  void multiple(const char* field, int64_t value, int64_t of) {
    require(value % of == 0, field, "= " + std::to_string(value) + ": must be a multiple of " + std::to_string(of));
  }
  void at_most(const char* field, int64_t value, int64_t limit, const char* limit_name) {
    require(value <= limit, field,
            "= " + std::to_string(value) + ": at most " + limit_name + " = " + std::to_string(limit));
  }
  void token(const char* field, int64_t value, int64_t vocab) {
    require(value >= 0 && value < vocab, field,
            "= " + std::to_string(value) + ": must be a token id from 0 to " + std::to_string(vocab - 1));
  }
};

constexpr int64_t kBlock = 32;  // values per scale, and the K step of the kernels

void check_dense_shapes(Checks& c, const TextConfig& t) {
  c.multiple("text_config.hidden_size", t.hidden_size, kBlock);
  c.multiple("text_config.moe_intermediate_size", t.moe_intermediate_size, kBlock);
  c.multiple("text_config.head_dim", t.head_dim, kBlock);
  c.multiple("text_config.q_lora_rank", t.q_lora_rank, kBlock);
  c.multiple("text_config.o_lora_rank", t.o_lora_rank, kBlock);
  c.multiple("text_config.index_head_dim", t.index_head_dim, kBlock);
  c.at_most("text_config.index_head_dim", t.index_head_dim, 512, "the widest index key");
  c.multiple("text_config.qk_rope_head_dim", t.qk_rope_head_dim, 2);
  c.at_most("text_config.qk_rope_head_dim", t.qk_rope_head_dim, t.head_dim, "head_dim");
  c.at_most("text_config.qk_rope_head_dim", t.qk_rope_head_dim, t.index_head_dim, "index_head_dim");
  c.require(t.num_attention_heads % t.o_groups == 0, "text_config.o_groups",
            "= " + std::to_string(t.o_groups) +
                ": must divide num_attention_heads = " + std::to_string(t.num_attention_heads));
  c.at_most("text_config.o_groups x o_lora_rank", t.o_groups * t.o_lora_rank, 1 << 17, "the widest matrix");
  c.at_most("text_config.num_attention_heads x head_dim", t.num_attention_heads * t.head_dim, 1 << 20,
            "the widest projection");
  c.at_most("text_config.index_n_heads x index_head_dim", t.index_n_heads * t.index_head_dim, 1 << 20,
            "the widest projection");
  c.at_most("text_config.num_experts_per_tok", t.num_experts_per_tok, t.n_routed_experts, "n_routed_experts");
}

// The YaRN ramp must not be empty: its width divides (model.md 2.4).
void check_rope_scaling(Checks& c, const TextConfig& t) {
  if (!t.rope_scaling.has_value()) return;
  const RopeScaling& s = *t.rope_scaling;
  const double r = static_cast<double>(t.qk_rope_head_dim);
  const auto correction = [&](double rotations) {
    const double positions = static_cast<double>(s.original_max_position_embeddings);
    return r * std::log(positions / (2 * std::numbers::pi * rotations)) / (2 * std::log(t.compress_rope_theta));
  };
  const double low = std::max(std::floor(correction(s.beta_fast)), 0.0);
  const double high = std::min(std::ceil(correction(s.beta_slow)), r - 1);
  c.require(high > low, "text_config.rope_scaling",
            "beta_fast, beta_slow and original_max_position_embeddings give an empty ramp");
}

void check_candidates(Checks& c, const TextConfig& t) {
  if (t.candidate_source_layer_id < 0) return;
  const int64_t rows = t.candidate_topk_blocks * t.candidate_block_size;
  c.require(rows >= t.index_topk, "text_config.candidate_topk_blocks",
            "x candidate_block_size = " + std::to_string(rows) +
                " rows: must be at least index_topk = " + std::to_string(t.index_topk));
}

void check_engram(Checks& c, const TextConfig& t) {
  if (t.engram_layer_ids.empty()) return;
  c.multiple("text_config.engram_head_dim", t.engram_head_dim, kBlock);
  c.token("text_config.engram_pad_token_id", t.engram_pad_token_id, t.vocab_size);
  c.at_most("text_config.engram_compressed_vocab_size", t.engram_compressed_vocab_size, t.vocab_size, "vocab_size");
  c.at_most("text_config.engram columns x engram_head_dim", t.engram_columns() * t.engram_head_dim, 1 << 17,
            "the widest matrix");
  if (t.num_engram_layers() > kMaxEngramLayers) {
    return c.require(
        false, "text_config.engram_layer_ids",
        "has " + std::to_string(t.num_engram_layers()) + " layers: at most " + std::to_string(kMaxEngramLayers));
  }
  const std::vector<int64_t> rows = engram_table_rows(t);
  for (size_t i = 0; i < rows.size() && rows.size() == t.engram_num_embeddings.size(); ++i) {
    c.require(rows[i] == t.engram_num_embeddings[i], "text_config.engram_num_embeddings",
              "[" + std::to_string(i) + "] = " + std::to_string(t.engram_num_embeddings[i]) + ": the primes from " +
                  std::to_string(t.engram_vocab_size) + " give " + std::to_string(rows[i]) + " rows");
  }
  c.require(rows.size() == t.engram_num_embeddings.size(), "text_config.engram_num_embeddings",
            "has " + std::to_string(t.engram_num_embeddings.size()) + " entries: engram_layer_ids has " +
                std::to_string(rows.size()));
}

void check_draft(Checks& c, const TextConfig& t) {
  if (!t.has_draft()) return;
  c.token("text_config.dspark_noise_token_id", t.dspark_noise_token_id, t.vocab_size);
  c.at_most("text_config.dspark_num_experts_per_tok", t.dspark_num_experts_per_tok, t.dspark_n_routed_experts,
            "dspark_n_routed_experts");
  c.require(!t.dspark_target_layer_ids.empty(), "text_config.dspark_target_layer_ids",
            "is empty: draft stages need a tap");
}

void check_vision(Checks& c, const Config& config) {
  if (!config.has_vision()) return;
  const VisionConfig& v = *config.vision_config;
  c.token("image_token_id", config.image_token_id, config.text_config.vocab_size);
  c.require(
      v.hidden_size % v.num_attention_heads == 0, "vision_config.num_attention_heads",
      "= " + std::to_string(v.num_attention_heads) + ": must divide hidden_size = " + std::to_string(v.hidden_size));
  // The two-dimensional RoPE turns pairs, one half of the head by row and the other by column.
  c.require(v.hidden_size % (4 * v.num_attention_heads) == 0, "vision_config.hidden_size",
            "= " + std::to_string(v.hidden_size) + ": hidden_size / num_attention_heads must be a multiple of 4");
}

}  // namespace

std::vector<Problem> validate(const Config& config) {
  Checks c;
  const TextConfig& t = config.text_config;
  c.token("bos_token_id", config.bos_token_id, t.vocab_size);
  c.token("eos_token_id", config.eos_token_id, t.vocab_size);
  c.token("pad_token_id", config.pad_token_id, t.vocab_size);
  if (config.quantization_config.has_value()) {
    const auto& block = config.quantization_config->weight_block_size;
    c.require(block == std::vector<int64_t>{kBlock, kBlock}, "quantization_config.weight_block_size",
              "legal: [32, 32]");
  }
  check_dense_shapes(c, t);
  check_rope_scaling(c, t);
  static_cast<void>(derive_topology(t, c.problems));
  check_candidates(c, t);
  check_engram(c, t);
  check_draft(c, t);
  check_vision(c, config);
  return std::move(c.problems);
}

}  // namespace ps::checkpoint
