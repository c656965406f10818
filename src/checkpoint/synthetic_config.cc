// The configs of synthetic checkpoints: the published one, the nano model, slices of the published one.
#include <algorithm>
#include <string>

#include "base/macros.h"
#include "checkpoint/engram.h"
#include "checkpoint/synthetic.h"
#include "checkpoint/topology.h"

namespace ps::checkpoint {
namespace {

std::vector<int> repeat(std::initializer_list<std::pair<int, int>> runs) {
  std::vector<int> values;
  for (const auto& [value, count] : runs) values.insert(values.end(), static_cast<size_t>(count), value);
  return values;
}

TextConfig published_text() {
  TextConfig t;
  t.vocab_size = 129280;
  t.hidden_size = 5120;
  t.moe_intermediate_size = 2304;
  t.num_hidden_layers = 40;
  t.num_attention_heads = 64;
  t.head_dim = 512;
  t.qk_rope_head_dim = 64;
  t.q_lora_rank = 1280;
  t.o_lora_rank = 1024;
  t.o_groups = 8;
  t.max_position_embeddings = 1048576;
  t.rope_scaling = RopeScaling{};
  t.n_routed_experts = 384;
  t.num_experts_per_tok = 6;
  t.sliding_window = 128;
  t.compress_ratios = repeat({{0, 2}, {2, 18}, {1, 20}, {0, 3}});
  t.kv_source_layer_ids = {2, 8, 14, 20};
  t.index_source_layer_ids = {2, 8, 14, 20, 24, 28, 32, 36};
  t.index_n_heads = 32;
  t.index_head_dim = 128;
  t.index_topk = 512;
  t.candidate_source_layer_id = 20;
  t.candidate_topk_blocks = 2048;
  t.candidate_block_size = 8;
  t.hc_mult = 4;
  t.hc_sinkhorn_iters = 20;
  t.engram_layer_ids = {1, 14};
  t.engram_num_embeddings = {384006168, 384016682};
  t.engram_max_ngram_size = 4;
  t.engram_vocab_size = 16000000;
  t.engram_n_heads = 8;
  t.engram_head_dim = 256;
  t.engram_pad_token_id = 2;
  t.engram_compressed_vocab_size = 99092;
  t.num_nextn_predict_layers = 3;
  t.dspark_block_size = 5;
  t.dspark_noise_token_id = 128799;
  t.dspark_target_layer_ids = {37, 38, 39};
  t.dspark_markov_rank = 256;
  t.dspark_n_routed_experts = 128;
  t.dspark_num_experts_per_tok = 3;
  return t;
}

VisionConfig published_vision() {
  VisionConfig v;
  v.num_hidden_layers = 32;
  v.hidden_size = 1024;
  v.num_attention_heads = 16;
  v.intermediate_size = 2816;
  v.patch_size = 14;
  v.downsample_ratio = 3;
  v.max_image_tokens = 1024;
  v.min_pixels = 295936;
  return v;
}

// Small numbers that differ from each other wherever the model allows, so that no two dimensions can be confused.
void shrink_text(TextConfig& t) {
  t.hidden_size = 128;
  t.moe_intermediate_size = 64;
  t.num_hidden_layers = 12;
  t.num_attention_heads = 4;
  t.head_dim = 64;
  t.qk_rope_head_dim = 32;
  t.q_lora_rank = 96;
  t.o_lora_rank = 32;
  t.o_groups = 2;
  t.swiglu_limit = 2;  // low enough to clamp now and then
  t.max_position_embeddings = 16384;
  t.rope_scaling->original_max_position_embeddings = 1024;  // both ends of the ramp inside 16 pairs
  t.n_routed_experts = 16;
  t.num_experts_per_tok = 3;
  t.sliding_window = 32;
  t.compress_ratios = {0, 0, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 0, 0, 0};
  t.kv_source_layer_ids = {2, 4, 6};
  t.index_source_layer_ids = {2, 4, 6, 8, 10};
  t.index_n_heads = 4;
  t.index_head_dim = 64;
  t.index_topk = 40;
  t.candidate_source_layer_id = 6;
  t.candidate_topk_blocks = 6;
  t.engram_layer_ids = {1, 4};
  t.engram_vocab_size = 1000;
  t.engram_n_heads = 2;
  t.engram_head_dim = 32;
  t.dspark_target_layer_ids = {9, 10, 11};
  t.dspark_markov_rank = 32;
  t.dspark_n_routed_experts = 8;
  t.dspark_num_experts_per_tok = 2;
}

void shrink_vision(VisionConfig& v) {
  v.num_hidden_layers = 2;
  v.hidden_size = 64;
  v.num_attention_heads = 4;
  v.intermediate_size = 96;
  v.max_image_tokens = 64;
  v.min_pixels = 84 * 84;  // 2 x 2 image tokens of 3 x 3 patches
}

// What a layer needs that is not among the kept ones; -1 for nothing. NOTE: the candidate source is an owner here, so
// it needs no question of its own.
int missing_layer(const LayerInfo& layer, const std::vector<int>& kept) {
  for (const int other : {layer.owner, layer.index_source}) {
    if (other >= 0 && !std::binary_search(kept.begin(), kept.end(), other)) return other;
  }
  return -1;
}

// The ordinals of `ids` among the kept layers; the others are dropped.
std::vector<int> renumber(const std::vector<int>& ids, const std::vector<int>& kept) {
  std::vector<int> result;
  for (size_t i = 0; i < kept.size(); ++i) {
    if (std::binary_search(ids.begin(), ids.end(), kept[i])) result.push_back(static_cast<int>(i));
  }
  return result;
}

Status keep_layers(TextConfig& t, std::vector<int> kept) {
  std::sort(kept.begin(), kept.end());
  if (std::adjacent_find(kept.begin(), kept.end()) != kept.end())
    return Status::invalid("--layers names a layer twice");
  const auto count = static_cast<int>(t.num_hidden_layers);
  if (kept.front() < 0 || kept.back() >= count) {
    return Status::invalid("--layers: legal layers are 0 to " + std::to_string(count - 1));
  }
  const LayerTopology topology = layer_topology(t);
  std::vector<int> ratios;
  for (const int id : kept) {
    const LayerInfo& layer = topology.layers[static_cast<size_t>(id)];
    if (const int missing = missing_layer(layer, kept); missing >= 0) {
      return Status::invalid("--layers: layer " + std::to_string(id) + " (" + std::string(layer_role_name(layer.role)) +
                             ") needs layer " + std::to_string(missing) + ", which is not among them");
    }
    ratios.push_back(layer.ratio);
  }
  t.num_hidden_layers = static_cast<int64_t>(kept.size());
  t.compress_ratios = ratios;
  t.compress_ratios.resize(kept.size() + static_cast<size_t>(t.num_nextn_predict_layers), 0);
  t.kv_source_layer_ids = renumber(t.kv_source_layer_ids, kept);
  t.index_source_layer_ids = renumber(t.index_source_layer_ids, kept);
  t.engram_layer_ids = renumber(t.engram_layer_ids, kept);
  const std::vector<int> candidates = renumber({t.candidate_source_layer_id}, kept);
  t.candidate_source_layer_id = candidates.empty() ? -1 : candidates.front();
  const int tapped = std::min<int>(3, static_cast<int>(kept.size()));
  t.dspark_target_layer_ids.clear();
  for (int i = 0; i < tapped; ++i) t.dspark_target_layer_ids.push_back(static_cast<int>(kept.size()) - tapped + i);
  return {};
}

int64_t largest_table(const TextConfig& t) {
  const std::vector<int64_t> rows = engram_table_rows(t);
  return *std::max_element(rows.begin(), rows.end());
}

// The largest start of the prime scan whose tables have at most `limit` rows each.
Status bound_tables(TextConfig& t, int64_t limit) {
  int64_t low = 2;
  int64_t high = std::max<int64_t>(low, limit / t.engram_columns());
  t.engram_vocab_size = low;
  if (largest_table(t) > limit) {
    return Status::invalid("--engram-rows " + std::to_string(limit) + ": the smallest tables have " +
                           std::to_string(largest_table(t)) + " rows");
  }
  while (low < high) {
    t.engram_vocab_size = low + (high - low + 1) / 2;
    if (largest_table(t) <= limit) low = t.engram_vocab_size;
    else high = t.engram_vocab_size - 1;
  }
  t.engram_vocab_size = low;
  return {};
}

Status slice(Config& config, const SyntheticModel& model) {
  TextConfig& t = config.text_config;
  if (!model.has_vision) config.vision_config.reset();
  if (!model.has_draft) {
    t.num_nextn_predict_layers = 0;
    t.compress_ratios.resize(static_cast<size_t>(t.num_hidden_layers));
  }
  if (!model.layers.empty()) PS_RETURN_IF_ERROR(keep_layers(t, model.layers));
  if (model.experts > 0) {
    t.n_routed_experts = model.experts;
    t.dspark_n_routed_experts = std::min(t.dspark_n_routed_experts, model.experts);
  }
  if (model.engram_rows > 0 && !t.engram_layer_ids.empty()) {
    if (model.engram_rows < largest_table(t)) PS_RETURN_IF_ERROR(bound_tables(t, model.engram_rows));
  }
  return {};
}

}  // namespace

Config published_config() {
  Config config;
  config.image_token_id = 129264;
  config.quantization_config = QuantizationConfig{};
  config.text_config = published_text();
  config.vision_config = published_vision();
  return config;
}

Result<Config> synthetic_config(const SyntheticModel& model, const SyntheticTokens& tokens) {
  Config config = published_config();
  TextConfig& t = config.text_config;
  if (model.preset == Preset::kNano) {
    shrink_text(t);
    shrink_vision(*config.vision_config);
  } else {
    PS_RETURN_IF_ERROR(slice(config, model));
  }
  config.bos_token_id = tokens.bos;
  config.eos_token_id = tokens.eos;
  config.pad_token_id = tokens.pad;
  config.image_token_id = tokens.image;
  t.vocab_size = tokens.vocab_size;
  t.dspark_noise_token_id = tokens.noise;
  t.engram_pad_token_id = tokens.pad;
  t.engram_compressed_vocab_size = tokens.num_classes;
  t.engram_num_embeddings = engram_table_rows(t);
  if (model.storage != Storage::kOfficial) {
    config.quantization_config.reset();
    config.dtype = model.storage == Storage::kF32 ? "float32" : "bfloat16";
  }
  // What a reader of the file would find, ranges included.
  return parse_config(write_config(config));
}

}  // namespace ps::checkpoint
