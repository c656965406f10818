// The distinct integers of the cache: PAGE ids, STATE slot ids and chain hashes never mix.
#pragma once

#include <cstdint>

namespace ps::cache {

// One PAGE: the same ordinal in the main plane and in every index plane.
enum class PageId : int32_t {};
// One STATE entry. Ops receive it as the plain integer of Batch::slots.
enum class SlotId : int32_t {};
// Stands for all tokens from position 0 up to the end of one PAGE (prefix_index.h).
enum class ChainHash : uint64_t {};

[[nodiscard]] constexpr int32_t ordinal(PageId id) noexcept { return static_cast<int32_t>(id); }
[[nodiscard]] constexpr int32_t ordinal(SlotId id) noexcept { return static_cast<int32_t>(id); }

}  // namespace ps::cache
