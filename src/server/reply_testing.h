// Helpers for tests of replies: events in short, and the parts of a stream. Test programs only.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "server/chat_reply.h"

namespace ps::server::test {

using Kind = text::ParserEvent::Kind;

inline text::ParserEvent event(Kind kind, std::string text = {}, int32_t call = -1) {
  return {.kind = kind, .text = std::move(text), .call = call};
}

// A call with its arguments in fragments.
inline std::vector<text::ParserEvent> call(int32_t index, std::string name, const std::vector<std::string>& fragments) {
  std::vector<text::ParserEvent> events = {event(Kind::kCallStart, std::move(name), index)};
  for (const std::string& fragment : fragments) events.push_back(event(Kind::kArguments, fragment, index));
  events.push_back(event(Kind::kCallEnd, {}, index));
  return events;
}

struct StreamEvent {
  std::string name;  // empty where the stream names none
  std::string data;
};

// The events of a stream; anything else in it is a fault that shows as an event named "?".
inline std::vector<StreamEvent> split_stream(std::string_view stream) {
  std::vector<StreamEvent> events;
  while (!stream.empty()) {
    const size_t end = stream.find("\n\n");
    std::string_view block = stream.substr(0, end);
    StreamEvent event;
    if (block.starts_with("event: ")) {
      event.name = block.substr(7, block.find('\n') - 7);
      block.remove_prefix(std::min(block.size(), block.find('\n') + 1));
    }
    if (end == std::string_view::npos || !block.starts_with("data: ") || block.find('\n') != std::string_view::npos) {
      events.push_back({"?", std::string(stream)});
      break;
    }
    event.data = block.substr(6);
    events.push_back(std::move(event));
    stream.remove_prefix(end + 2);
  }
  return events;
}

// A parsed value; null for what is no JSON.
inline JsonValue json(std::string_view text) {
  Result<JsonValue> value = JsonValue::parse(text);
  return value.ok() ? std::move(value).value() : JsonValue();
}

// Follows keys and indices: at(value, {"choices", "0", "delta"}). Null where the path ends early.
inline JsonValue at(const JsonValue& value, const std::vector<std::string>& path) {
  const JsonValue* here = &value;
  for (const std::string& step : path) {
    if (here->is_array()) {
      const size_t index = std::stoul(step);
      if (index >= here->items().size()) return {};
      here = &here->items()[index];
    } else {
      here = here->find(step);
      if (here == nullptr) return {};
    }
  }
  return *here;
}

// The value in compact JSON.
inline std::string compact(const JsonValue& value) {
  return JsonWriter(JsonWriter::Style::kCompact).value(value).text();
}

}  // namespace ps::server::test
