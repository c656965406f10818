#include "text/tool_call_memory.h"

#include <utility>

#include "base/json.h"

namespace ps::text {
namespace {

bool is_same_call(const ToolCall& a, const ToolCall& b) {
  if (a.id != b.id || a.name != b.name) return false;
  if (a.arguments == b.arguments) return true;
  const auto left = JsonValue::parse(a.arguments);
  const auto right = JsonValue::parse(b.arguments);
  return left.ok() && right.ok() && is_same_json(left.value(), right.value());
}

bool are_same_calls(std::span<const ToolCall> a, std::span<const ToolCall> b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!is_same_call(a[i], b[i])) return false;
  }
  return true;
}

}  // namespace

void ToolCallMemory::remember(std::span<const ToolCall> calls, std::string_view block) {
  if (calls.empty() || block.empty()) return;
  Entry entry{{calls.begin(), calls.end()}, std::make_shared<const std::string>(block), 0};
  entry.bytes = static_cast<int64_t>(sizeof(Entry) + block.size());
  for (const ToolCall& call : calls) {
    if (call.id.empty()) return;
    entry.bytes += static_cast<int64_t>(sizeof(ToolCall) + call.id.size() + call.name.size() + call.arguments.size());
  }
  if (entry.bytes > limits_.bytes || limits_.blocks < 1) return;

  const std::lock_guard lock(mutex_);
  for (const ToolCall& call : calls) {
    if (const auto known = entry_of_id_.find(call.id); known != entry_of_id_.end()) erase(known->second);
  }
  bytes_ += entry.bytes;
  entries_.push_front(std::move(entry));
  for (const ToolCall& call : entries_.front().calls) entry_of_id_.emplace(call.id, entries_.begin());
  while (bytes_ > limits_.bytes || static_cast<int64_t>(entries_.size()) > limits_.blocks) {
    erase(std::prev(entries_.end()));
  }
}

std::shared_ptr<const std::string> ToolCallMemory::find(std::span<const ToolCall> calls) {
  if (calls.empty()) return nullptr;
  const std::lock_guard lock(mutex_);
  const auto known = entry_of_id_.find(calls.front().id);
  if (known == entry_of_id_.end() || !are_same_calls(known->second->calls, calls)) return nullptr;
  entries_.splice(entries_.begin(), entries_, known->second);
  return entries_.front().block;
}

int64_t ToolCallMemory::blocks() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(entries_.size());
}

int64_t ToolCallMemory::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

void ToolCallMemory::erase(Entries::iterator entry) {
  for (const ToolCall& call : entry->calls) entry_of_id_.erase(call.id);
  bytes_ -= entry->bytes;
  entries_.erase(entry);
}

}  // namespace ps::text
