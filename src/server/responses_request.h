// The body of POST /v1/responses (OpenAI), read into the conversation that every surface shares (encoding.md 3.5).
//
// Nothing is stored between requests: a body that refers to an earlier response or to a stored conversation is refused,
// "store" is ignored and answered with false. Thoughts travel in reasoning items, as text, and as "encrypted_content"
// for clients that keep only that; the latter is the text behind a prefix, not a secret. Neighbouring items of the
// assistant are one turn. What becomes of the tools: responses_tools.h.
// Errors are always `invalid`. Must not know: HTTP, the engine. Threading: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "server/responses_tools.h"
#include "text/chat.h"
#include "text/chat_completions_request.h"

namespace ps::server {

// Fields that the answer repeats, as JSON text.
struct ResponsesEcho {
  std::string instructions = "null";
  std::string max_output_tokens = "null";
  std::string metadata = "{}";
  std::string reasoning = R"({"effort":null,"summary":null})";
  std::string temperature = "1.0";
  std::string text = R"({"format":{"type":"text"}})";
  std::string tool_choice = R"("auto")";
  std::string top_p = "1.0";
  std::string user = "null";
  bool parallel_tool_calls = true;
};

struct ResponsesRequest {
  std::string model;
  text::ChatRequest chat;
  text::SamplingFields sampling;
  bool is_stream = false;
  bool includes_encrypted_reasoning = false;  // include: "reasoning.encrypted_content"
  ResponsesTools tools;
  ResponsesEcho echo;
};

// What "encrypted_content" begins with when it is ours.
inline constexpr std::string_view kReasoningPrefix = "pagestate:";

[[nodiscard]] Result<ResponsesRequest> read_responses_request(const JsonValue& body,
                                                              const text::ChatDefaults& defaults);

}  // namespace ps::server
