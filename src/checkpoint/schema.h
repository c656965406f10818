// Which tensors a checkpoint of a config has: names, shapes, dtypes, order, groups, shards (model.md 1.2, 1.3), and the
// counts that follow from them. For the published config: 96,085 tensors, 510,286,023,000 bytes.
//
// Parameters. A *logical parameter* is one value of a weight: packed FP4 counts two per byte, scales count nothing.
// *Per token* counts the backbone's weights that take part in the arithmetic of one text token: everything of
// Group::kBackbone (embedding and head whole, Engram projections included) but only num_experts_per_tok of the
// n_routed_experts experts. Engram tables, draft stages and the vision tower are not counted. Published: 763.21 B and
// 16.79 B.
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/number_formats.h"
#include "checkpoint/config.h"
#include "checkpoint/safetensors.h"

namespace ps::checkpoint {

enum class Group : uint8_t { kBackbone, kEngramTable, kDraft, kVision };
inline constexpr int kNumGroups = 4;

// "backbone", "engram tables", "draft", "vision".
[[nodiscard]] std::string_view group_name(Group group) noexcept;

// How the linears are stored. Norms, biases, mHC, gates and embeddings keep their official dtype in every storage.
enum class Storage : uint8_t {
  kOfficial,  // FP8 and packed FP4 with E8M0 scales
  kBf16,      // the same matrices as BF16 [N, K], no scales
  kF32,
};

// What a tensor is to the storage formats of model.md 1.4.
enum class Form : uint8_t {
  kPlain,  // official dtype in every storage
  kBlockWeight,
  kBlockScale,  // FP8, one scale per 32x32
  kFp4Weight,
  kFp4Scale,  // packed FP4, one scale per 1x32
  kTableWeight,
  kTableScale,  // FP8 Engram rows, one scale per 1x32
};

[[nodiscard]] constexpr bool is_scale(Form form) noexcept {
  return form == Form::kBlockScale || form == Form::kFp4Scale || form == Form::kTableScale;
}
[[nodiscard]] constexpr bool is_quantized_weight(Form form) noexcept {
  return form == Form::kBlockWeight || form == Form::kFp4Weight || form == Form::kTableWeight;
}

struct TensorSpec {
  std::string name;
  DType dtype = DType::kBF16;
  Shape shape;          // as stored
  Shape logical_shape;  // in values: twice the columns for packed FP4, otherwise equal
  Group group = Group::kBackbone;
  Form form = Form::kPlain;
  int shard = 0;          // ordinal of the official shard it lies in, from 0
  int expert_layer = -1;  // ordinal of the MoE layer, backbone then draft, for tensors of routed experts

  [[nodiscard]] int64_t size_bytes() const noexcept { return shape.elements() * dtype_bytes(dtype); }
};

// All tensors in the order of the official list.
// REQUIRES: a legal config.
void for_each_tensor(const Config& config, Storage storage, const std::function<void(const TensorSpec&)>& visit);
[[nodiscard]] std::vector<TensorSpec> expected_tensors(const Config& config, Storage storage = Storage::kOfficial);

// The storage that the config announces: official with a quantization_config, otherwise its dtype.
[[nodiscard]] Storage announced_storage(const Config& config) noexcept;

// 48 for the published config.
[[nodiscard]] int num_shards(const Config& config) noexcept;
// "model-00003-of-00048.safetensors" for ordinal 2.
[[nodiscard]] std::string shard_file_name(int shard, int count);

struct CheckpointTotals {
  int64_t tensors = 0;
  int64_t bytes = 0;
  int64_t group_tensors[kNumGroups] = {};
  int64_t group_bytes[kNumGroups] = {};
  int64_t parameters = 0;  // logical
  int64_t group_parameters[kNumGroups] = {};
  int64_t parameters_per_token = 0;
  int64_t routed_expert_parameters = 0;  // of the backbone

  [[nodiscard]] int64_t bytes_of(Group group) const noexcept { return group_bytes[static_cast<size_t>(group)]; }
  [[nodiscard]] int64_t parameters_of(Group group) const noexcept {
    return group_parameters[static_cast<size_t>(group)];
  }
};

[[nodiscard]] CheckpointTotals checkpoint_totals(const Config& config, Storage storage = Storage::kOfficial);

}  // namespace ps::checkpoint
