// A checkpoint folder, opened: config.json, the shards mapped read-only, and every tensor held against the schema.
//
// ENSURES: after open() each tensor of the schema (schema.h) is there with its shape and dtype, and there is no other
// one.
// A linear may be stored quantized (FP8 or packed FP4 with its scale) or as BF16 or F32 without scale; the routed
// experts of one layer share one format, and a config without quantization_config admits no quantized tensor.
// Nothing is read but headers: weights page in when touched, or by load(). The folder may be read-only.
// Threading: immutable after open and copy_on_load(); views are readable from any thread while the object lives.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "base/topology.h"
#include "checkpoint/config.h"
#include "checkpoint/loading.h"
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

  // When a forward needs a tensor: lower stages come into memory first; a negative one never comes, and its tensor is
  // read from the disk when touched.
  using LoadStage = std::function<int(std::string_view name)>;
  // Bytes of the tensors that come.
  [[nodiscard]] int64_t load_bytes(const LoadStage& stage) const;

  // From here on the views of all tensors that come point into memory of our own, which load() fills: nothing is read
  // yet. It is spread over the memory nodes, and the rows of the tensors that `splits_rows` accepts are cut into the
  // nodes' shares. exhausted when the system has no room. REQUIRES: called once, before any view is handed out.
  [[nodiscard]] Status copy_on_load(const LoadStage& stage,
                                    const std::function<bool(std::string_view name)>& splits_rows,
                                    std::span<const NodeShare> shares);
  [[nodiscard]] int64_t copied_bytes() const noexcept { return copies_.size_bytes(); }
  [[nodiscard]] bool has_copies() const noexcept { return copied_bytes() > 0; }

  // Brings the tensors that come into memory, in order of their stages, each stage in file order (loading.h).
  // REQUIRES: after copy_on_load() the same tensors come, and no view is read before.
  [[nodiscard]] Result<LoadFigures> load(const LoadStage& stage, int threads, const LoadProgress& progress) const;

 private:
  struct NameHash {
    using is_transparent = void;
    size_t operator()(std::string_view name) const noexcept { return std::hash<std::string_view>{}(name); }
  };
  struct Stored {
    TensorView view;
    size_t shard = 0;    // of shards_
    int64_t offset = 0;  // in the file
  };
  using TensorMap = std::unordered_map<std::string, Stored, NameHash, std::equal_to<>>;

  Checkpoint() = default;
  Status map_shards();
  Status check_schema();
  [[nodiscard]] std::vector<const TensorMap::value_type*> in_load_order(const LoadStage& stage) const;

  std::filesystem::path folder_;
  Config config_;
  LayerTopology topology_;
  std::vector<SafetensorsFile> shards_;
  TensorMap tensors_;
  int64_t payload_bytes_ = 0;
  HostBuffer copies_;
};

}  // namespace ps::checkpoint
