// The answers of POST /v1/messages: the events of a stream, or one message (encoding.md 3.5); and Anthropic's errors.
//
// Blocks of the stream open when their first text comes, but the thought opens at once. A thinking block carries the
// message's id as its signature; nothing checks it when it comes back. Threading: one thread at a time.
#pragma once

#include <memory>
#include <string>

#include "server/chat_reply.h"

namespace ps::server {

[[nodiscard]] std::unique_ptr<ChatReply> make_anthropic_reply(ReplyHead head, bool is_stream);

// {"type": "error", "error": {"type", "message"}}, with the type that goes with the error's HTTP status.
[[nodiscard]] std::string anthropic_error_body(const ApiError& error);

// {"input_tokens": n}
[[nodiscard]] std::string anthropic_token_count_body(int64_t tokens);

}  // namespace ps::server
