// The output parser on any bytes: the joined deltas do not depend on how the text is cut. Input: a byte of options, a
// byte that seeds the cuts, then the text.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/output_parser.h"

namespace {

using ps::text::OutputParser;
using ps::text::ParserEvent;
using ps::text::ParserOptions;
using Kind = ParserEvent::Kind;

void require(bool condition) {
  if (!condition) std::abort();
}

struct Parsed {
  std::vector<std::pair<Kind, std::string>> events;  // neighbouring deltas of one kind and call are joined
  int32_t call = -1;
  int32_t stop = -1;
  ps::text::FinishReason reason = ps::text::FinishReason::kStop;
  std::string block;
  bool is_closed = false;
  bool operator==(const Parsed&) const = default;
};

void take(std::vector<ParserEvent>& events, Parsed& parsed) {
  for (ParserEvent& event : events) {
    if (event.kind == Kind::kCallStart) require(event.call == ++parsed.call);
    if (event.kind == Kind::kArguments || event.kind == Kind::kCallEnd) require(event.call == parsed.call);
    if (event.kind == Kind::kStop) parsed.stop = event.stop;
    const bool is_delta = event.kind != Kind::kCallStart && event.kind != Kind::kCallEnd && event.kind != Kind::kStop;
    if (is_delta) require(!event.text.empty());
    if (is_delta && !parsed.events.empty() && parsed.events.back().first == event.kind) {
      parsed.events.back().second += event.text;
    } else {
      parsed.events.emplace_back(event.kind, std::move(event.text));
    }
  }
  events.clear();
}

Parsed parse(const ParserOptions& options, std::string_view text, size_t most, uint32_t seed) {
  OutputParser parser(options);
  Parsed parsed;
  std::vector<ParserEvent> events;
  while (!text.empty()) {
    seed = seed * 1664525U + 1013904223U;
    const size_t length = most == 0 ? text.size() : 1 + (seed >> 16) % most;
    parser.feed(text.substr(0, length), events);
    text.remove_prefix(std::min(length, text.size()));
    take(events, parsed);
  }
  parsed.reason = parser.finish(ps::text::OutputEnd::kStop, events);
  take(events, parsed);
  parsed.block = parser.tool_block();
  parsed.is_closed = parser.is_tool_block_closed();
  require(parser.call_count() == parsed.call + 1);
  require(parser.stop_hit().value_or(-1) == parsed.stop);
  return parsed;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  ParserOptions options;
  options.start = static_cast<ps::text::ParserStart>(data[0] % 5);
  options.parses_tool_calls = (data[0] & 0x08) != 0;
  options.is_json_mode = (data[0] & 0x10) != 0;
  options.returns_unparsed = (data[0] & 0x20) != 0;
  if ((data[0] & 0x40) != 0) options.stops = {"aab", "", "\n\n<", "{\"", "ab"};
  const std::string_view text(reinterpret_cast<const char*>(data + 2), size - 2);
  const Parsed whole = parse(options, text, 0, 0);
  require(parse(options, text, 1, 0) == whole);
  require(parse(options, text, 3, data[1]) == whole);
  require(parse(options, text, 40, data[1]) == whole);
  return 0;
}
