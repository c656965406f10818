// The order of a selection (indexer.h), for every backend that runs on the host.
#pragma once

#include <cstdint>

namespace ps::ops {

struct Ranked {
  float score;
  int32_t id;
};

// Larger score first, smaller id among equals. REQUIRES: no NaN.
[[nodiscard]] inline bool ranks_before(const Ranked& a, const Ranked& b) noexcept {
  return a.score > b.score || (a.score == b.score && a.id < b.id);
}

}  // namespace ps::ops
