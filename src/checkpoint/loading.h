// Brings ranges of mapped files into memory at the speed of the disk: several threads in the given order, reading far
// ahead in pieces of some megabytes. Knows files and bytes, no tensors.
// Threading: one call owns its threads; callbacks run on the caller's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/mapped_file.h"
#include "base/status.h"

namespace ps::checkpoint {

struct LoadRange {
  const MappedFile* file = nullptr;
  int64_t offset = 0;
  int64_t size_bytes = 0;
  std::byte* copy = nullptr;  // [size_bytes] where a copy goes; nullptr: the page cache and the page tables
};

struct LoadFigures {
  int64_t total_bytes = 0;
  int64_t cached_bytes = 0;  // of those, in the page cache beforehand
};

// done and total in bytes of what is to be done; false stops.
using LoadProgress = std::function<bool(int64_t done, int64_t total)>;

// Ranges without a copy that the page cache holds already cost nothing: they are left alone, and their first touch maps
// them. What was read for a copy alone is forgotten by the page cache again.
// REQUIRES: threads >= 1. cancelled when `progress` (which may be empty) says so; else the first failure of a read.
[[nodiscard]] Result<LoadFigures> load(const std::vector<LoadRange>& ranges, int threads, const LoadProgress& progress);

}  // namespace ps::checkpoint
