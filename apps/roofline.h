// What a step needs at least: the bytes it has to read and the products it has to make, from a model's weights and
// cache geometry. With a machine's read bandwidth and matrix peak that is the floor of its time.
//
// Counted once per step: every dense weight with its scales, and each expert that some row uses. Counted per row: its
// embedding and Engram table rows, the window rows and selected rows of every layer, and the index keys that its
// indexers have to score (after the candidate source, those of candidate blocks only).
#pragma once

#include <cstdint>

#include "cache/geometry.h"
#include "model/forward.h"

namespace ps::apps {

struct Work {
  double bytes = 0;
  double flops = 0;

  Work& operator+=(const Work& other) noexcept {
    bytes += other.bytes;
    flops += other.flops;
    return *this;
  }
  // A memory that streams and units that multiply at the same time.
  [[nodiscard]] double floor_seconds(double bytes_per_second, double flops_per_second) const noexcept;
};

class Roofline {
 public:
  Roofline(const model::Model& model, const cache::CacheGeometry& geometry) : model_(model), geometry_(geometry) {}

  // Dense weights of one step; the head only if some row wants logits.
  [[nodiscard]] double dense_bytes(bool has_logits) const;
  // One routed expert of a layer.
  [[nodiscard]] double expert_bytes(size_t layer) const;
  // One row at `position`, its products in every weight included. A row without logits runs only the cache writes of
  // the last layer.
  [[nodiscard]] Work row(int64_t position, bool has_logits) const;

 private:
  [[nodiscard]] Work cache_reads(const model::LayerWeights& layer, int64_t position) const;
  const model::Model& model_;
  const cache::CacheGeometry& geometry_;
};

}  // namespace ps::apps
