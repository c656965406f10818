#include "text/prompt_turns.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

namespace ps::text {
namespace {

using CallRanks = std::unordered_map<std::string_view, size_t>;

CallRanks ranks_of(std::span<const ToolCall> calls) {
  CallRanks ranks;
  for (size_t i = 0; i < calls.size(); ++i) ranks[calls[i].id] = i;
  return ranks;
}

// Results move among their own places; what users wrote between them stays where it is.
void sort_results(std::span<const ChatMessage> messages, const CallRanks& ranks, std::vector<size_t>& blocks) {
  std::vector<size_t> results;
  for (const size_t block : blocks) {
    if (messages[block].role == Role::kTool) results.push_back(block);
  }
  const auto rank = [&](size_t block) {
    const auto found = ranks.find(messages[block].tool_call_id);
    return found == ranks.end() ? 0 : found->second;
  };
  std::stable_sort(results.begin(), results.end(), [&](size_t a, size_t b) { return rank(a) < rank(b); });
  auto next = results.begin();
  for (size_t& block : blocks) {
    if (messages[block].role == Role::kTool) block = *next++;
  }
}

}  // namespace

std::vector<Turn> merge_turns(std::span<const ChatMessage> messages, std::span<const size_t> kept) {
  const auto is_user = [](Role role) { return role == Role::kUser || role == Role::kTool; };
  std::vector<Turn> turns;
  CallRanks ranks;  // of the latest calls
  for (size_t i = 0; i < kept.size(); ++i) {
    const ChatMessage& message = messages[kept[i]];
    if (!is_user(message.role)) {
      turns.push_back({message.role, kept[i], {}, message.task});
      if (!message.tool_calls.empty()) ranks = ranks_of(message.tool_calls);
      continue;
    }
    if (turns.empty() || turns.back().role != Role::kUser || turns.back().task != Task::kNone) {
      turns.push_back({Role::kUser, kept[i], {}, Task::kNone});
    }
    Turn& turn = turns.back();
    turn.blocks.push_back(kept[i]);
    turn.task = message.task;
    const bool goes_on = i + 1 < kept.size() && is_user(messages[kept[i + 1]].role) && turn.task == Task::kNone;
    if (!goes_on) sort_results(messages, ranks, turn.blocks);
  }
  return turns;
}

}  // namespace ps::text
