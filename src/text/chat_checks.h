// What a conversation must satisfy before it is encoded, with the words of the API (encoding.md 2B.1, 5.3). Private to
// the encoders. Threading: pure functions.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "text/chat.h"
#include "text/prompt_encoder.h"

namespace ps::text {

// "reasoning_effort" and its like.
[[nodiscard]] std::string_view effort_field(Dialect dialect) noexcept;

struct ShownTools {
  std::vector<size_t> indices;       // in ChatRequest::tools
  std::vector<std::string> schemas;  // one line of JSON each, as the encoding writes them
  bool is_call_forced = false;
};
// Names, schemas and tool_choice.
Result<ShownTools> check_tools(const ChatRequest& request, ChatEncoding encoding);

// Roles, contents, and that calls and results answer each other. The model encoder asks less: its conversations are
// those of training.
Status check_messages(const ChatRequest& request, ChatEncoding encoding);

Status check_response_format(const ChatRequest& request, ChatEncoding encoding);

// One line of JSON: rebuilt from name, description and parameters for the recipe, as sent for the model encoder.
[[nodiscard]] std::string tool_schema(const ToolDefinition& tool, ChatEncoding encoding);

}  // namespace ps::text
