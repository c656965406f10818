// IdSet: a set of integers of [0, capacity) that gives its lowest member, and allocates nothing after construction.
//
// A tree of 64-bit words, widest level first: a bit of one level says that the word below it is not empty. Every
// operation takes one step per level, three for 262,144 ids. Threading: one thread at a time.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "base/macros.h"

namespace ps::cache {

class IdSet {
 public:
  // Holds every id of [0, capacity).
  explicit IdSet(int32_t capacity) : capacity_(capacity) {
    PS_CHECK(capacity >= 0, capacity);
    int64_t bits = capacity;
    do {
      levels_.emplace_back(static_cast<size_t>((bits + 63) / 64), 0);
      bits = std::ssize(levels_.back());
    } while (bits > 1);
    for (int32_t id = 0; id < capacity; ++id) insert(id);
  }

  [[nodiscard]] int32_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] int32_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  // REQUIRES: id in [0, capacity).
  [[nodiscard]] bool contains(int32_t id) const noexcept { return (word(0, id) >> (id & 63) & 1) != 0; }

  // REQUIRES: not a member.
  void insert(int32_t id) noexcept {
    PS_DCHECK(!contains(id), id);
    ++size_;
    for (size_t level = 0; level < levels_.size(); ++level, id >>= 6) word(level, id) |= uint64_t{1} << (id & 63);
  }

  // REQUIRES: not empty.
  int32_t take_lowest() noexcept {
    PS_DCHECK(size_ > 0);
    int32_t id = 0;
    for (size_t level = levels_.size(); level-- > 0;) {
      id = (id << 6) | std::countr_zero(levels_[level][static_cast<size_t>(id)]);
    }
    --size_;
    int32_t bit = id;
    for (size_t level = 0; level < levels_.size(); ++level, bit >>= 6) {
      uint64_t& bits = word(level, bit);
      bits &= ~(uint64_t{1} << (bit & 63));
      if (bits != 0) break;
    }
    return id;
  }

 private:
  [[nodiscard]] uint64_t& word(size_t level, int32_t id) noexcept {
    return levels_[level][static_cast<size_t>(id >> 6)];
  }
  [[nodiscard]] uint64_t word(size_t level, int32_t id) const noexcept {
    return levels_[level][static_cast<size_t>(id >> 6)];
  }

  std::vector<std::vector<uint64_t>> levels_;
  int32_t capacity_ = 0;
  int32_t size_ = 0;
};

}  // namespace ps::cache
