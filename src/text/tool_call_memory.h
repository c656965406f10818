// The exact text of blocks of calls that the model wrote, by call id, so that a conversation that comes back from a
// client is rendered with the bytes that are in the prefix cache, whatever the client did to spacing and key order
// (pitfalls F8).
//
// Bounded: the least recently used blocks go first. A block is given out only for the same calls: equal ids and names
// in the same order, and arguments that are the same JSON value. Must not know: tokens, sequences. Threading: any.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/chat.h"

namespace ps::text {

class ToolCallMemory {
 public:
  struct Limits {
    int64_t bytes = 64 << 20;  // of all blocks with their calls
    int64_t blocks = 65536;
  };
  ToolCallMemory() : ToolCallMemory(Limits{}) {}
  explicit ToolCallMemory(const Limits& limits) : limits_(limits) {}

  // Keeps `block` (OutputParser::tool_block() of a closed block) for the calls that were delivered to the client. Calls
  // without ids, an empty block, and one above the limits are not kept. A known id is replaced.
  void remember(std::span<const ToolCall> calls, std::string_view block);

  // The block of exactly these calls, or nullptr. It stays valid as long as it is held.
  [[nodiscard]] std::shared_ptr<const std::string> find(std::span<const ToolCall> calls);

  [[nodiscard]] int64_t blocks() const;
  [[nodiscard]] int64_t bytes() const;

 private:
  struct Entry {
    std::vector<ToolCall> calls;
    std::shared_ptr<const std::string> block;
    int64_t bytes = 0;
  };
  using Entries = std::list<Entry>;

  void erase(Entries::iterator entry);

  const Limits limits_;
  mutable std::mutex mutex_;
  Entries entries_;                                                      // most recently used first
  std::unordered_map<std::string_view, Entries::iterator> entry_of_id_;  // views into the entries
  int64_t bytes_ = 0;
};

}  // namespace ps::text
