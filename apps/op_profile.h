// Where a forward spends its time: an op table that passes every call on to another one and adds up the seconds per op,
// the linear ones apart by the shape of their weight.
//
// Threading: one profile at a time in a process, used by the thread that runs the forward.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ops/table.h"

namespace ps::apps {

class OpProfile {
 public:
  // REQUIRES: `base` outlives the profile.
  explicit OpProfile(const ops::OpTable& base);
  ~OpProfile();
  OpProfile(const OpProfile&) = delete;
  OpProfile& operator=(const OpProfile&) = delete;

  [[nodiscard]] const ops::OpTable& table() const noexcept { return table_; }
  void clear() noexcept { entries_.clear(); }

  struct Entry {
    std::string op;  // "sparse_attention", "linear FP8 32768x1280"
    int64_t calls = 0;
    double seconds = 0;
  };
  // The slowest first.
  [[nodiscard]] std::vector<Entry> entries() const;
  // Those as a text table of seconds and shares.
  [[nodiscard]] std::string to_string() const;

 private:
  template <auto kMember, int kSlot>
  friend struct TimedOp;
  struct Key {
    int slot = 0;  // ordinal of the op in the table
    int64_t rows = 0;
    int64_t columns = 0;
    ops::WeightFormat format = ops::WeightFormat::kBF16;
    auto operator<=>(const Key&) const = default;
  };
  struct Sum {
    int64_t calls = 0;
    double seconds = 0;
  };
  [[nodiscard]] static std::string text(const Key& key);

  const ops::OpTable& base_;
  ops::OpTable table_;
  std::map<Key, Sum> entries_;
};

}  // namespace ps::apps
