#include "cache/pool.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/macros.h"

namespace ps::cache {
namespace {

constexpr int kPoison = 0xFF;

}  // namespace

Result<CachePool> CachePool::allocate(const CacheGeometry& geometry, int64_t pages, int64_t slots) {
  PS_TRY(PoolLayout layout, PoolLayout::create(geometry, pages, slots));
  Result<HostBuffer> buffer = HostBuffer::allocate(layout.total_bytes);
  if (!buffer.ok()) {
    return std::move(buffer).status().with("cache of " + std::to_string(layout.total_bytes) + " bytes (" +
                                           std::to_string(pages) + " PAGEs of " +
                                           std::to_string(geometry.paged_bytes()) + ", " + std::to_string(slots) +
                                           " STATE slots of " + std::to_string(geometry.state_bytes) + ")");
  }
  return CachePool(std::move(layout), std::move(buffer).value());
}

std::span<int64_t> CachePool::cursor(SlotId slot) noexcept {
  std::byte* at = slot_bytes(slot).data() + geometry().cursor_offset;
  return {reinterpret_cast<int64_t*>(at), static_cast<size_t>(1 + geometry().history)};
}

std::span<std::byte> CachePool::slot_bytes(SlotId slot) noexcept {
  PS_DCHECK(ordinal(slot) >= 0 && ordinal(slot) < layout_.slots, "slot", ordinal(slot), "of", layout_.slots);
  return {buffer_.data() + layout_.slot_start(ordinal(slot)), static_cast<size_t>(geometry().state_bytes)};
}

std::span<std::byte> CachePool::page_part(PageId page, int part) noexcept {
  PS_DCHECK(ordinal(page) >= 0 && ordinal(page) < layout_.pages, "PAGE", ordinal(page), "of", layout_.pages);
  const ByteRange range = layout_.page_part(ordinal(page), part);
  return {buffer_.data() + range.start_bytes, static_cast<size_t>(range.size_bytes)};
}

void CachePool::zero_slot(SlotId slot) noexcept {
  std::ranges::fill(slot_bytes(slot), std::byte{0});
  std::ranges::fill(history(slot), kDeadId);
}

void CachePool::poison_slot(SlotId slot) noexcept { std::ranges::fill(slot_bytes(slot), std::byte{kPoison}); }

void CachePool::poison_pages(PageId first, int64_t count) noexcept {
  const int64_t begin = ordinal(first);
  PS_CHECK(begin >= 0 && count >= 0 && count <= layout_.pages - begin, "PAGEs", begin, count, "of", layout_.pages);
  for (int part = 0; part < layout_.page_parts(); ++part) {
    const ByteRange range = layout_.page_part(ordinal(first), part);
    std::memset(buffer_.data() + range.start_bytes, kPoison, static_cast<size_t>(count * range.size_bytes));
  }
}

}  // namespace ps::cache
