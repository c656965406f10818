// The JSON body of an OpenAI chat-completions request, read into typed fields (encoding.md 2B.1, 5.1, 5.3).
//
// Two kinds of checks live here: whether each field has its type (the message names the path, "messages[1].content[0]
// .type", and what is legal), and the limits of sampling, stop and stream options, in the API's order and with its
// words. Tools, messages and response format are checked by encode_prompt(), which comes next. Unknown fields are
// ignored, as the API does. Errors are always `invalid`. Must not know: HTTP, the engine, the chat encoding.
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "text/chat.h"

namespace ps::text {

struct SamplingFields {
  std::optional<double> temperature;                // 0..2
  std::optional<double> top_p;                      // (0, 1]
  std::optional<int64_t> max_tokens;                // > 0; "max_completion_tokens" is the same field
  std::string_view max_tokens_name = "max_tokens";  // as the client spelled it
  std::optional<int64_t> seed;                      // 0 .. 2^63 - 1
  std::optional<int64_t> top_k;                     // >= 0; 0 = all; an extension, as are min_p and repetition_penalty
  std::optional<double> min_p;                      // 0..1
  std::optional<double> repetition_penalty;         // 0.01..10
  double frequency_penalty = 0;                     // -2..2
  double presence_penalty = 0;                      // -2..2
  std::vector<std::pair<int32_t, float>> logit_bias;  // token id, -100..100
  bool logprobs = false;
  int32_t top_logprobs = 0;        // 0..20
  std::vector<std::string> stops;  // at most 16; empty ones are kept
  bool ignore_eos = false;         // an extension, for measurements
};

struct ChatCompletionsRequest {
  std::string model;
  ChatRequest chat;
  SamplingFields sampling;
  int64_t answers = 1;  // "n"
  bool is_stream = false;
  bool includes_usage = false;  // stream_options.include_usage
};

struct ChatDefaults {
  bool is_thinking = true;   // where the request says nothing
  int64_t most_answers = 1;  // legal values of "n" end here
};

// What "n" may be at most where several answers are given.
inline constexpr int64_t kMostAnswers = 128;

// Limits of a body: bytes as the server's (encoding.md 5.2), nesting as base/json.h.
inline constexpr JsonLimits kChatBodyLimits{.bytes = 96 << 20, .depth = 64};

[[nodiscard]] Result<ChatCompletionsRequest> parse_chat_completions(std::string_view body,
                                                                    const ChatDefaults& defaults = {});
// The same from a parsed value.
[[nodiscard]] Result<ChatCompletionsRequest> read_chat_completions(const JsonValue& body,
                                                                   const ChatDefaults& defaults = {});

// The parts of a request that other surfaces have too. `path` begins the field's name in messages, such as "messages".
[[nodiscard]] Result<std::vector<ChatMessage>> read_chat_messages(const JsonValue& value, std::string_view path);
[[nodiscard]] Result<std::vector<ToolDefinition>> read_tool_definitions(const JsonValue& value, std::string_view path);
// A name (none gives nothing: no thinking) or an integer from 1 to 100.
[[nodiscard]] Result<std::optional<ReasoningEffort>> read_reasoning_effort(const JsonValue& value,
                                                                           std::string_view path);

// The body that goes with an error: {"error":{"message":...,"type":...,"param":null,"code":...}}; `invalid` is an
// invalid_request_error, everything else an internal_error.
[[nodiscard]] std::string openai_error_body(const Status& status);

}  // namespace ps::text
