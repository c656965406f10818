// Judges tool calls in an answer: whether they are written exactly as the format says, and whether they fit the tools
// that were offered (encoding.md 2.0).
//
// Strict on purpose, unlike a reader that serves clients: a space too many is a fault of the model that a measurement
// must see. Threading: pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace ps::apps::eval {

struct ToolArgument {
  std::string name;
  bool is_string = false;
  std::string value;  // the text itself, or JSON as written
};

struct ToolCall {
  std::string name;
  std::vector<ToolArgument> arguments;
};

// Whether an answer tries to call at all.
[[nodiscard]] bool has_calls(std::string_view answer) noexcept;

// The calls of the block that ends the answer. invalid says what is not as the format wants it.
[[nodiscard]] Result<std::vector<ToolCall>> parse_calls(std::string_view answer);

// Each call names an offered tool and gives every required parameter, no unknown one and none twice, each of the
// declared type. `tools` are definitions {"name", "parameters": JSON schema}.
[[nodiscard]] Status check_calls(std::span<const ToolCall> calls, std::span<const JsonValue> tools);

// Same calls in the same order; arguments in any order, JSON values by meaning.
[[nodiscard]] bool same_calls(std::span<const ToolCall> a, std::span<const ToolCall> b);

}  // namespace ps::apps::eval
