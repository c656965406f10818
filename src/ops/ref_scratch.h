// What the reference ops take from Exec::scratch, at most, within the bounds: one function per file of ops. An op gives
// all of it back, so reference_table().scratch_bytes is the largest of them. Internal to the reference backend.
#pragma once

#include <cstdint>

#include "base/buffer.h"
#include "ops/table.h"

namespace ps::ops::ref {

// Bytes that Arena::take<T>(count) uses up.
template <typename T>
[[nodiscard]] constexpr int64_t taken_bytes(int64_t count) noexcept {
  const int64_t size = count * static_cast<int64_t>(sizeof(T));
  return (size + Arena::kAlignment - 1) / Arena::kAlignment * Arena::kAlignment;
}

[[nodiscard]] int64_t elementwise_scratch_bytes(const ScratchBounds& bounds) noexcept;
[[nodiscard]] int64_t linear_scratch_bytes(const ScratchBounds& bounds) noexcept;
[[nodiscard]] int64_t hyper_connection_scratch_bytes(const ScratchBounds& bounds) noexcept;
[[nodiscard]] int64_t moe_scratch_bytes(const ScratchBounds& bounds) noexcept;
[[nodiscard]] int64_t engram_scratch_bytes(const ScratchBounds& bounds) noexcept;
[[nodiscard]] int64_t attention_scratch_bytes(const ScratchBounds& bounds) noexcept;
[[nodiscard]] int64_t compressor_scratch_bytes(const ScratchBounds& bounds) noexcept;
[[nodiscard]] int64_t indexer_scratch_bytes(const ScratchBounds& bounds) noexcept;

}  // namespace ps::ops::ref
