// The turns of a conversation: consecutive messages of users and tools are one turn, whose results stand in the order
// of the calls they answer (encoding.md 2A item 2, 2B.3). Private to the encoders. Threading: pure functions.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "text/chat.h"

namespace ps::text {

struct Turn {
  static constexpr size_t kNoMessage = std::numeric_limits<size_t>::max();

  Role role = Role::kUser;
  size_t message = kNoMessage;  // index of its first message; kNoMessage: a system turn that nobody wrote
  std::vector<size_t> blocks;   // of a user turn: its messages in the order of the prompt
  Task task = Task::kNone;
};

// Of the messages with the indices `kept`, ascending. A turn that carries a task ends there: nothing is merged into it.
[[nodiscard]] std::vector<Turn> merge_turns(std::span<const ChatMessage> messages, std::span<const size_t> kept);

}  // namespace ps::text
