// The text backbone over flat rows: embedding, blocks, collapse, norm, head (model.md 0, 2). Written once against the
// op table.
//
// Every rule is per absolute position, so a prompt may arrive in any split of forwards and in any company: a row's
// logits and what it leaves in the cache are the same bits. The cache is seen as views only.
// Threading: a Model is immutable; a Workspace belongs to one forward at a time.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "model/dimensions.h"
#include "model/weights.h"
#include "ops/table.h"

namespace ps::model {

// The cache of one rank: one ring per backbone layer, one plane of each kind per owner in topology order.
struct CacheViews {
  std::vector<ops::WindowRing> windows;          // [layers]
  std::vector<ops::MainPlane> main;              // [owners]
  std::vector<ops::IndexPlane> index;            // [owners]
  std::vector<ops::CompressorRing> compressors;  // [owners]
};

// What one ratio's compressors do in a forward (runtime.md 4.1).
struct CompressionPlan {
  // Ratio 2: the closed groups. Ratio 1: one entry per row of the batch, in order. -1 entries are skipped.
  const ops::CompressedGroup* groups = nullptr;  // [group_count]
  const int32_t* group_positions = nullptr;      // [group_count] of a group's first token: where it is rotated
  int32_t group_count = 0;
  const ops::CompressorRingRow* ring_rows = nullptr;  // [ring_row_count], ratio 2
  int32_t ring_row_count = 0;
};

// Bounded decoder replay (runtime.md 3.2): the rows that run the decoder, i.e. the last KV owner's attention and every
// later layer. Rows outside it leave compressed rows and index keys there, and nothing else.
struct DecoderRows {
  bool is_narrowed = false;       // false: every row runs every layer, the rest is not read
  ops::Batch batch;               // positions, requests and window_start of the decoder rows; cached_until is 0
  const int32_t* rows = nullptr;  // [batch.tokens] rows of ForwardPlan::batch, ascending
};

// Receives logits block by block, so that the buffer need not hold a whole prompt's.
class LogitSink {
 public:
  virtual ~LogitSink() = default;
  // `logits` [rows, vocabulary] of the wanted rows [first, first + rows); gone after the call.
  virtual void logits(int32_t first, int32_t rows, const float* logits) = 0;
};

// Everything that a forward is told. Host memory, read-only, alive during the call.
struct ForwardPlan {
  ops::Batch batch;
  const int32_t* ids = nullptr;                 // [T]
  const uint8_t* is_image = nullptr;            // [T] or nullptr
  const uint8_t* engram_alive = nullptr;        // [T] or nullptr: all alive
  const int64_t* const* engram_rows = nullptr;  // per Engram layer: [T, columns] table rows
  CompressionPlan ratio1;
  CompressionPlan ratio2;
  DecoderRows decoder;
  // [R] rows whose logits are wanted, ascending: of decoder.batch if narrowed, else of batch. Only they run the last
  // layer's query and experts; the other rows of that layer leave their window rows.
  const int32_t* logit_rows = nullptr;
  const int32_t* logit_positions = nullptr;  // [R] their positions
  int32_t logit_row_count = 0;
  float* logits = nullptr;  // [logit_block_rows, V]
  int32_t logit_block_rows = 0;
  LogitSink* sink = nullptr;  // REQUIRES: not nullptr when logit_row_count > 0
};

// Sees every rounding point by name, for tests and debugging. The views die with the call.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void activations(std::string_view point, int layer, const ops::ConstActivations& value) = 0;
  virtual void floats(std::string_view point, int layer, const float* value, int64_t rows, int64_t columns) = 0;
  virtual void ids(std::string_view point, int layer, const int32_t* value, int64_t rows, int64_t columns) = 0;
};

// Scratch that a forward of at most `tokens` rows and `logit_rows` wanted rows takes from its arena, op scratch
// included. Needs no weights.
[[nodiscard]] int64_t forward_scratch_bytes(const Dimensions& dims, const ops::OpTable& table, DType compute,
                                            int64_t tokens, int64_t logit_rows, int threads);

// The first decoder layer: the last KV owner.
[[nodiscard]] int decoder_layer(const checkpoint::LayerTopology& topology) noexcept;
// Why a plan may not narrow the decoder, or ok: no owner, or an Engram layer or a selection of the encoder's behind it.
[[nodiscard]] Status supports_decoder_replay(const checkpoint::LayerTopology& topology);

struct ModelOptions {
  DType compute = DType::kBF16;  // kF32: activations are never rounded to BF16, for comparisons
};

// One checkpoint's backbone, bound to a backend.
class Model {
 public:
  // REQUIRES: the checkpoint and the table outlive the model.
  Model(const checkpoint::Checkpoint& checkpoint, const ops::OpTable& table, ModelOptions options);

  [[nodiscard]] const Dimensions& dims() const noexcept { return dims_; }
  [[nodiscard]] const checkpoint::LayerTopology& topology() const noexcept { return topology_; }
  [[nodiscard]] const Weights& weights() const noexcept { return weights_; }
  [[nodiscard]] const RopeTables& rope() const noexcept { return rope_; }
  [[nodiscard]] const ops::OpTable& table() const noexcept { return table_; }
  [[nodiscard]] DType compute() const noexcept { return options_.compute; }

  // Runs the plan. REQUIRES: exec.scratch has forward_scratch_bytes() left.
  void forward(const ForwardPlan& plan, const CacheViews& cache, ops::Exec& exec, Observer* observer = nullptr) const;

 private:
  ModelOptions options_;
  const ops::OpTable& table_;
  checkpoint::LayerTopology topology_;
  Dimensions dims_;
  RopeTables rope_;
  Weights weights_;
};

}  // namespace ps::model
