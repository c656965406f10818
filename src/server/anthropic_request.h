// The body of POST /v1/messages (Anthropic), read into the conversation that every surface shares (encoding.md 5.2).
//
// What differs from a chat-completions body is settled here: tool results become messages of their own and come first
// in their turn, neighbouring turns of one role are one turn, a conversation that ends in an assistant's text is
// continued, and forcing a tool turns thinking off where the client did not ask for it. Tools that a client defers,
// adds or removes are shown where the conversation names them, so that the prompt before that place stays as it was.
// Listed tools, call ids and images are checked by encode_prompt(), which comes next. Fields that only Anthropic's
// own service can act on are ignored (docs/api.md). Errors are always `invalid`. Must not know: HTTP, the engine.
// Threading: pure functions.
#pragma once

#include <string>

#include "base/json.h"
#include "base/status.h"
#include "text/chat.h"
#include "text/chat_completions_request.h"

namespace ps::server {

struct AnthropicRequest {
  std::string model;
  text::ChatRequest chat;
  text::SamplingFields sampling;
  bool is_stream = false;
  bool allows_parallel_calls = true;  // tool_choice.disable_parallel_tool_use is not set
};

// What the body asks for.
enum class AnthropicTask : uint8_t {
  kMessage,      // an answer: max_tokens is required
  kCountTokens,  // of the prompt: sampling fields are not read
};

[[nodiscard]] Result<AnthropicRequest> read_anthropic_request(const JsonValue& body, AnthropicTask task,
                                                              const text::ChatDefaults& defaults);

}  // namespace ps::server
