// From a conversation to the answer of a chat surface: prompt, sequences, parser, reply.
//
// What differs between surfaces lies behind ChatReply; what is alike lies here: images and schemas are refused, several
// answers are sequences of one prompt, the exact text of calls is remembered for the next turn (pitfalls F8), and an
// answer whose thought took all of max_tokens is pointed out (pitfalls F9).
// Threading: make_chat_answer() and count_prompt_tokens() run on workers; ToolCallMemory locks itself.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "server/answer_job.h"
#include "server/api_context.h"
#include "server/chat_reply.h"
#include "text/chat.h"
#include "text/chat_completions_request.h"
#include "text/prompt_encoder.h"
#include "text/tool_call_memory.h"

namespace ps::server {

struct ChatOptions {
  text::ChatEncoding encoding = text::ChatEncoding::kRecipe;
  text::ChatDefaults defaults;
};

// Built once; outlives every answer.
struct ChatContext {
  ChatContext(ApiContext& the_api, const ChatOptions& the_options) : api(the_api), options(the_options) {}
  ApiContext& api;
  ChatOptions options;
  text::ToolCallMemory memory;
};

// A request of any surface, read.
struct ChatCall {
  std::string model;  // as the client named it; repeated in the answer
  text::ChatRequest chat;
  text::SamplingFields sampling;
  size_t answers = 1;
  bool is_stream = false;
  bool allows_parallel_calls = true;  // false: the answer ends after its first call
  std::function<std::unique_ptr<ChatReply>(ReplyHead head)> make_reply;
  ErrorReply error = error_reply;
  // The surface's own words, in tokens, for what does not fit; the engine's follow them.
  std::string (*length_problem)(int64_t prompt, int64_t answer, int64_t context) = nullptr;
};

[[nodiscard]] Result<AnswerRequest> make_chat_answer(ChatContext& context, ChatCall call);

[[nodiscard]] Result<int64_t> count_prompt_tokens(ChatContext& context, const text::ChatRequest& chat);

}  // namespace ps::server
