// A checkpoint folder, opened: config.json, the shards mapped read-only, and every tensor held against the schema.
//
// ENSURES: after open() each tensor of the schema (schema.h) is there with its shape and dtype, and there is no other
// one.
// A linear may be stored quantized (FP8 or packed FP4 with its scale) or as BF16 or F32 without scale; the routed
// experts of one layer share one format, and a config without quantization_config admits no quantized tensor.
// Nothing is read but headers: weights page in when touched, or by prefault(). The folder may be read-only.
// Threading: immutable after open; views are readable from any thread while the object lives.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "checkpoint/config.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/topology.h"

namespace ps::checkpoint {

// How a matrix is stored; it decides how the input of the linear op is treated (design.md C1).
enum class WeightFormat : uint8_t {
  kFp8Block,  // E4M3 [N, K], E8M0 scale [N/32, K/32]
  kFp4Row,    // packed E2M1 [N, K/2], E8M0 scale [N, K/32]
  kFp8Row,    // E4M3 [N, K], E8M0 scale [N, K/32]: Engram rows
  kBf16,      // [N, K]
  kF32,       // [N, K]
};

// "FP8 32x32", "FP4 1x32", "FP8 1x32", "BF16", "F32".
[[nodiscard]] std::string_view weight_format_name(WeightFormat format) noexcept;

// A matrix W[N, K] where it lies in the file, whatever its format. y[n] = sum over k of W[n,k] x[k].
struct MatrixView {
  WeightFormat format = WeightFormat::kBf16;
  int64_t rows = 0;     // N
  int64_t columns = 0;  // K in values, also for packed FP4
  const std::byte* data = nullptr;
  const uint8_t* scale = nullptr;  // nullptr for BF16 and F32
};

class Checkpoint {
 public:
  // not_found, corrupt or invalid. Mismatches with the schema are listed by name, the first 20 and their count.
  [[nodiscard]] static Result<Checkpoint> open(const std::filesystem::path& folder);

  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }
  [[nodiscard]] const Config& config() const noexcept { return config_; }
  [[nodiscard]] const LayerTopology& topology() const noexcept { return topology_; }
  // Whether it exists is the reader's matter.
  [[nodiscard]] std::filesystem::path tokenizer_path() const { return folder_ / "tokenizer.json"; }

  // nullptr for a name that the file does not have.
  [[nodiscard]] const TensorView* find(std::string_view name) const noexcept;
  // REQUIRES: the schema has that name.
  [[nodiscard]] const TensorView& tensor(std::string_view name) const noexcept;
  // "<prefix>.weight" and its scale, e.g. matrix("layers.0.attn.wq_a").
  // REQUIRES: the schema has it, with two axes.
  [[nodiscard]] MatrixView matrix(std::string_view prefix) const noexcept;

  [[nodiscard]] int64_t num_tensors() const noexcept { return static_cast<int64_t>(tensors_.size()); }
  // Of all tensors, without headers.
  [[nodiscard]] int64_t payload_bytes() const noexcept { return payload_bytes_; }

  // Tells the kernel to read ahead and touches every page of the tensors that `wanted` accepts (all when empty), in
  // file order. `progress(done, total)` in bytes; it may be empty, and returning false stops with cancelled.
  [[nodiscard]] Status prefault(const std::function<bool(std::string_view name)>& wanted,
                                const std::function<bool(int64_t done, int64_t total)>& progress) const;

 private:
  struct NameHash {
    using is_transparent = void;
    size_t operator()(std::string_view name) const noexcept { return std::hash<std::string_view>{}(name); }
  };
  using TensorMap = std::unordered_map<std::string, TensorView, NameHash, std::equal_to<>>;

  Checkpoint() = default;
  Status map_shards();
  Status check_schema();

  std::filesystem::path folder_;
  Config config_;
  LayerTopology topology_;
  std::vector<SafetensorsFile> shards_;
  TensorMap tensors_;
  int64_t payload_bytes_ = 0;
};

}  // namespace ps::checkpoint
