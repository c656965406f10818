#include "checkpoint/schema.h"

#include <cstdio>

#include "checkpoint/topology.h"

namespace ps::checkpoint {
namespace {

constexpr int64_t kBlock = 32;

class Lister {
 public:
  Lister(const Config& config, Storage storage, const std::function<void(const TensorSpec&)>& visit)
      : config_(config),
        text_(config.text_config),
        storage_(storage),
        visit_(visit),
        topology_(layer_topology(text_)) {}

  void run() {
    const int64_t d = text_.hidden_size;
    const int first_layer_shard = (config_.has_vision() ? 1 : 0) + 1;
    const int head_shard = first_layer_shard + static_cast<int>(text_.num_hidden_layers);
    place(Group::kBackbone, first_layer_shard - 1);
    plain("embed.weight", {text_.vocab_size, d}, DType::kBF16);
    place(Group::kBackbone, head_shard);
    plain("head.weight", {text_.vocab_size, d}, DType::kBF16);
    plain("norm.weight", {d}, DType::kBF16);
    for (const LayerInfo& layer : topology_.layers) {
      place(Group::kBackbone, first_layer_shard + layer.layer);
      add_block("layers." + std::to_string(layer.layer), layer);
    }
    for (const LayerInfo& stage : topology_.drafts) {
      place(Group::kDraft, head_shard + 1 + stage.layer);
      add_draft_stage(stage);
    }
    const int engram_shard = head_shard + 1 + static_cast<int>(topology_.drafts.size());
    for (const LayerInfo& layer : topology_.layers) {
      if (layer.engram >= 0) add_engram(layer, engram_shard + layer.engram);
    }
    if (config_.has_vision()) {
      place(Group::kVision, 0);
      add_vision(*config_.vision_config);
    }
  }

 private:
  void place(Group group, int shard) {
    spec_.group = group;
    spec_.shard = shard;
  }

  void emit(std::string name, DType dtype, Shape shape, Shape logical, Form form) {
    spec_.name = std::move(name);
    spec_.dtype = dtype;
    spec_.shape = shape;
    spec_.logical_shape = logical;
    spec_.form = form;
    visit_(spec_);
  }
  void plain(std::string name, Shape shape, DType dtype) { emit(std::move(name), dtype, shape, shape, Form::kPlain); }
  void bf16(std::string name, Shape shape) { plain(std::move(name), shape, DType::kBF16); }
  void f32(std::string name, Shape shape) { plain(std::move(name), shape, DType::kF32); }

  // "<name>.weight" of n x k values, and "<name>.scale" with one scale per `scale_rows` x 32 when quantized.
  void linear(const std::string& name, int64_t n, int64_t k, Form weight, Form scale, int64_t scale_rows) {
    if (storage_ != Storage::kOfficial) {
      return emit(name + ".weight", storage_ == Storage::kF32 ? DType::kF32 : DType::kBF16, {n, k}, {n, k}, weight);
    }
    const bool is_fp4 = weight == Form::kFp4Weight;
    emit(name + ".weight", is_fp4 ? DType::kI8 : DType::kF8E4M3, {n, is_fp4 ? k / 2 : k}, {n, k}, weight);
    const Shape scales = {n / scale_rows, k / kBlock};
    emit(name + ".scale", DType::kF8E8M0, scales, scales, scale);
  }
  void fp8(const std::string& name, int64_t n, int64_t k) {
    linear(name, n, k, Form::kBlockWeight, Form::kBlockScale, kBlock);
  }
  void fp4(const std::string& name, int64_t n, int64_t k) { linear(name, n, k, Form::kFp4Weight, Form::kFp4Scale, 1); }

  void add_block(const std::string& name, const LayerInfo& layer) {
    const int64_t d = text_.hidden_size;
    const int64_t streams = text_.hc_mult;
    const int64_t mixes = streams * (streams + 2);
    for (const char* part : {"attn", "ffn"}) {
      bf16(name + "." + part + "_norm.weight", {d});
      const std::string hc = name + ".hc_" + part;
      f32(hc + "_fn", {mixes, streams * d});
      f32(hc + "_base", {mixes});
      f32(hc + "_scale", {3});
    }
    add_attention(name + ".attn", layer);
    add_moe(name + ".ffn", layer);
  }

  void add_attention(const std::string& name, const LayerInfo& layer) {
    const int64_t d = text_.hidden_size;
    const int64_t heads = text_.num_attention_heads;
    const int64_t head_dim = text_.head_dim;
    const int64_t o_rank = text_.o_groups * text_.o_lora_rank;
    f32(name + ".attn_sink", {heads});
    bf16(name + ".q_norm.weight", {text_.q_lora_rank});
    bf16(name + ".kv_norm.weight", {head_dim});
    fp8(name + ".wq_a", text_.q_lora_rank, d);
    fp8(name + ".wq_b", heads * head_dim, text_.q_lora_rank);
    fp8(name + ".wkv", head_dim, d);
    fp8(name + ".wo_a", o_rank, heads / text_.o_groups * head_dim);
    fp8(name + ".wo_b", d, o_rank);
    if (layer.is_full()) {
      bf16(name + ".compressor.wkv.weight", {head_dim, d});
      if (layer.ratio == 2) bf16(name + ".compressor.wgate.weight", {head_dim, d});
      bf16(name + ".compressor.norm.weight", {head_dim});
      bf16(name + ".indexer.wk.weight", {text_.index_head_dim, head_dim});
      bf16(name + ".indexer.k_norm.weight", {text_.index_head_dim});
    }
    if (layer.is_index_source()) {
      fp8(name + ".indexer.wq_b", text_.index_n_heads * text_.index_head_dim, text_.q_lora_rank);
      bf16(name + ".indexer.weights_proj.weight", {text_.index_n_heads, d});
    }
  }

  void add_moe(const std::string& name, const LayerInfo& layer) {
    const int64_t d = text_.hidden_size;
    const int64_t inner = text_.moe_intermediate_size;
    const int64_t experts = layer.is_draft ? text_.dspark_n_routed_experts : text_.n_routed_experts;
    bf16(name + ".gate.weight", {experts, d});
    f32(name + ".gate.bias", {experts});
    f32(name + ".gate.bias_vl", {experts});
    spec_.expert_layer = layer.layer + (layer.is_draft ? static_cast<int>(text_.num_hidden_layers) : 0);
    for (int64_t expert = 0; expert < experts; ++expert) {
      const std::string prefix = name + ".experts." + std::to_string(expert);
      fp4(prefix + ".w1", inner, d);
      fp4(prefix + ".w3", inner, d);
      fp4(prefix + ".w2", d, inner);
    }
    spec_.expert_layer = -1;
    fp8(name + ".shared_experts.w1", inner, d);
    fp8(name + ".shared_experts.w3", inner, d);
    fp8(name + ".shared_experts.w2", d, inner);
  }

  // The first stage owns the projection of the taps; the last one the norm and the two heads.
  void add_draft_stage(const LayerInfo& stage) {
    const int64_t d = text_.hidden_size;
    const std::string name = "mtp." + std::to_string(stage.layer);
    add_block(name, stage);
    if (stage.layer == 0) {
      fp8(name + ".main_proj", d, d * static_cast<int64_t>(text_.dspark_target_layer_ids.size()));
      bf16(name + ".main_norm.weight", {d});
    }
    if (stage.layer + 1 == static_cast<int>(text_.num_nextn_predict_layers)) {
      bf16(name + ".markov_head.embed.weight", {text_.vocab_size, text_.dspark_markov_rank});
      bf16(name + ".markov_head.head.weight", {text_.vocab_size, text_.dspark_markov_rank});
      bf16(name + ".confidence_head.proj.weight", {1, d + text_.dspark_markov_rank});
      bf16(name + ".norm.weight", {d});
    }
  }

  void add_engram(const LayerInfo& layer, int shard) {
    const int64_t d = text_.hidden_size;
    const std::string name = "layers." + std::to_string(layer.layer) + ".engram";
    const int64_t rows = text_.engram_num_embeddings[static_cast<size_t>(layer.engram)];
    place(Group::kEngramTable, shard);
    linear(name + ".embed", rows, text_.engram_head_dim, Form::kTableWeight, Form::kTableScale, 1);
    place(Group::kBackbone, shard);
    fp8(name + ".wkv", (text_.hc_mult + 1) * d, text_.engram_columns() * text_.engram_head_dim);
    bf16(name + ".k_weight", {text_.hc_mult, d});
    bf16(name + ".q_weight", {text_.hc_mult, d});
  }

  void add_vision(const VisionConfig& v) {
    const int64_t d = text_.hidden_size;
    const int64_t inner = v.hidden_size;
    bf16("image_start", {d});
    bf16("image_end", {d});
    bf16("image_newline", {d});
    bf16("aligner.w1.weight", {d, inner * v.downsample_ratio * v.downsample_ratio});
    bf16("aligner.w1.bias", {d});
    bf16("aligner.w2.weight", {d, d});
    bf16("aligner.w2.bias", {d});
    bf16("vision.patch_embed.proj.weight", {inner, 3 * v.patch_size * v.patch_size});
    bf16("vision.patch_embed.proj.bias", {inner});
    bf16("vision.norm.weight", {inner});
    for (int64_t block = 0; block < v.num_hidden_layers; ++block) {
      const std::string name = "vision.blocks." + std::to_string(block);
      bf16(name + ".norm1.weight", {inner});
      bf16(name + ".norm2.weight", {inner});
      bf16(name + ".attn.wqkv.weight", {3 * inner, inner});
      bf16(name + ".attn.wqkv.bias", {3 * inner});
      bf16(name + ".attn.wo.weight", {inner, inner});
      bf16(name + ".attn.wo.bias", {inner});
      bf16(name + ".mlp.w1.weight", {2 * v.intermediate_size, inner});
      bf16(name + ".mlp.w2.weight", {inner, v.intermediate_size});
    }
  }

  const Config& config_;
  const TextConfig& text_;
  const Storage storage_;
  const std::function<void(const TensorSpec&)>& visit_;
  const LayerTopology topology_;
  TensorSpec spec_;
};

}  // namespace

std::string_view group_name(Group group) noexcept {
  switch (group) {
    case Group::kBackbone: return "backbone";
    case Group::kEngramTable: return "engram tables";
    case Group::kDraft: return "draft";
    case Group::kVision: return "vision";
  }
  return "?";
}

void for_each_tensor(const Config& config, Storage storage, const std::function<void(const TensorSpec&)>& visit) {
  Lister(config, storage, visit).run();
}

std::vector<TensorSpec> expected_tensors(const Config& config, Storage storage) {
  std::vector<TensorSpec> tensors;
  for_each_tensor(config, storage, [&](const TensorSpec& spec) { tensors.push_back(spec); });
  return tensors;
}

Storage announced_storage(const Config& config) noexcept {
  if (config.quantization_config.has_value()) return Storage::kOfficial;
  return config.dtype == "float32" ? Storage::kF32 : Storage::kBf16;
}

int num_shards(const Config& config) noexcept {
  const TextConfig& t = config.text_config;
  return (config.has_vision() ? 1 : 0) + 2 +
         static_cast<int>(t.num_hidden_layers + t.num_nextn_predict_layers + t.num_engram_layers());
}

std::string shard_file_name(int shard, int count) {
  char text[64];
  std::snprintf(text, sizeof text, "model-%05d-of-%05d.safetensors", shard + 1, count);
  return text;
}

CheckpointTotals checkpoint_totals(const Config& config, Storage storage) {
  CheckpointTotals totals;
  for_each_tensor(config, storage, [&](const TensorSpec& spec) {
    const auto group = static_cast<size_t>(spec.group);
    ++totals.tensors;
    ++totals.group_tensors[group];
    totals.bytes += spec.size_bytes();
    totals.group_bytes[group] += spec.size_bytes();
    if (is_scale(spec.form)) return;
    const int64_t parameters = spec.logical_shape.elements();
    totals.parameters += parameters;
    totals.group_parameters[group] += parameters;
    if (spec.group == Group::kBackbone && spec.expert_layer >= 0) totals.routed_expert_parameters += parameters;
  });
  const TextConfig& t = config.text_config;
  // Experts of a layer have equal shapes, so the division is exact.
  totals.parameters_per_token = totals.parameters_of(Group::kBackbone) - totals.routed_expert_parameters +
                                totals.routed_expert_parameters / t.n_routed_experts * t.num_experts_per_tok;
  return totals;
}

}  // namespace ps::checkpoint
