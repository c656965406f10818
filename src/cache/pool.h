// CachePool: the host memory of all PAGEs and STATE slots, and the only maker of views into it (runtime.md 1.1).
//
// One HostBuffer, sized by PoolLayout before it is asked for; untouched PAGEs cost no physical memory. The pool hands
// out bytes by id and knows neither requests nor which ids are in use: PageManager and StateSlots do. Threading: view
// makers and const members from any thread; writes to different PAGEs and slots do not interfere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/buffer.h"
#include "base/status.h"
#include "cache/geometry.h"
#include "cache/ids.h"
#include "ops/cache_views.h"

namespace ps::cache {

// No Engram id: before the first token, an image, or a token whose lookback is blocked.
inline constexpr int64_t kDeadId = -1;

class CachePool {
 public:
  // All bytes are zero, untouched; a slot is in use only after zero_slot(). exhausted, with the bytes asked for and
  // their parts, when the system refuses. NOTE: address space is granted before memory is; the planner compares
  // size_bytes with memory.
  [[nodiscard]] static Result<CachePool> allocate(const CacheGeometry& geometry, int64_t pages, int64_t slots);

  [[nodiscard]] const CacheGeometry& geometry() const noexcept { return layout_.geometry; }
  [[nodiscard]] const PoolLayout& layout() const noexcept { return layout_; }
  [[nodiscard]] int64_t size_bytes() const noexcept { return layout_.total_bytes; }

  // Views; they stay valid when the pool object moves. Ordinals as in PoolLayout.
  [[nodiscard]] ops::WindowRing window_ring(int layer) noexcept { return layout_.window_ring(buffer_.data(), layer); }
  [[nodiscard]] ops::MainPlane main_plane(int owner) noexcept { return layout_.main_plane(buffer_.data(), owner); }
  [[nodiscard]] ops::IndexPlane index_plane(int owner) noexcept { return layout_.index_plane(buffer_.data(), owner); }
  [[nodiscard]] ops::CompressorRing compressor_ring(int owner) noexcept {
    return layout_.compressor_ring(buffer_.data(), owner);
  }

  // The cursor of a slot: how many tokens of its request the slot holds, and the newest compressed Engram ids of those,
  // oldest first (kDeadId where there is none).
  [[nodiscard]] int64_t& position(SlotId slot) noexcept { return cursor(slot)[0]; }
  [[nodiscard]] std::span<int64_t> history(SlotId slot) noexcept { return cursor(slot).subspan(1); }
  // cursor[1 + history] as it lies in the slot.
  [[nodiscard]] std::span<int64_t> cursor(SlotId slot) noexcept;

  // Every byte zero, position 0, history dead: how a slot starts at position 0 (runtime.md 2.8).
  void zero_slot(SlotId slot) noexcept;
  // One part of a PAGE, which has layout().page_parts() of them: raw bytes for images and for writing a PAGE elsewhere.
  [[nodiscard]] std::span<std::byte> page_part(PageId page, int part) noexcept;
  // All bytes of one slot.
  [[nodiscard]] std::span<std::byte> slot_bytes(SlotId slot) noexcept;

  // Every byte 0xFF, which is NaN in each row format and -1 in a cursor: whoever reads before writing is found out.
  void poison_slot(SlotId slot) noexcept;
  void poison_pages(PageId first, int64_t count) noexcept;

 private:
  CachePool(PoolLayout layout, HostBuffer buffer) noexcept : layout_(std::move(layout)), buffer_(std::move(buffer)) {}
  PoolLayout layout_;
  HostBuffer buffer_;
};

}  // namespace ps::cache
