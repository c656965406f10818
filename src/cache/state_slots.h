// StateSlots: which STATE slots are in use. The lowest free one goes first, so equal request orders get equal slots.
//
// It knows no bytes: whoever takes a slot zeroes it (CachePool::zero_slot) or has an image restored into it.
// Nothing allocates memory after construction. Threading: one thread at a time.
#pragma once

#include <cstdint>
#include <optional>

#include "base/macros.h"
#include "cache/id_set.h"
#include "cache/ids.h"

namespace ps::cache {

class StateSlots {
 public:
  explicit StateSlots(int32_t count) : free_(count) {}

  [[nodiscard]] int32_t count() const noexcept { return free_.capacity(); }
  [[nodiscard]] int32_t available() const noexcept { return free_.size(); }

  // Nothing when all are in use.
  [[nodiscard]] std::optional<SlotId> take() noexcept {
    if (free_.empty()) return std::nullopt;
    return SlotId{free_.take_lowest()};
  }
  // REQUIRES: take() gave `slot`, and it was not released since; anything else ends the program.
  void release(SlotId slot) {
    const int32_t id = ordinal(slot);
    PS_CHECK(id >= 0 && id < count(), "slot", id, "of", count());
    PS_CHECK(!free_.contains(id), "slot", id, "is free");
    free_.insert(id);
  }

 private:
  IdSet free_;
};

}  // namespace ps::cache
