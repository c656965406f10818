// The answers of POST /v1/chat/completions: chunks of a stream, or one body (encoding.md 3.4).
//
// Key order and null fields are those of the hosted API. The usage lies in the last chunk of the last choice, not in a
// chunk of its own. Threading: one thread at a time.
#pragma once

#include <memory>

#include "server/chat_reply.h"

namespace ps::server {

struct OpenAiChatOptions {
  ReplyHead head;
  size_t choices = 1;
  bool is_stream = false;
  bool includes_usage = false;  // stream_options.include_usage; a body always has it
  bool has_logprobs = false;
};

[[nodiscard]] std::unique_ptr<ChatReply> make_openai_chat_reply(OpenAiChatOptions options);

}  // namespace ps::server
