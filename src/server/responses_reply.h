// The answers of POST /v1/responses: the events of a stream, or one response object (encoding.md 3.5).
//
// Output items come in the order of the text: a thought, the answer, calls. Every event has the next sequence_number.
// Threading: one thread at a time.
#pragma once

#include <memory>

#include "server/chat_reply.h"
#include "server/responses_request.h"

namespace ps::server {

struct ResponsesOptions {
  ReplyHead head;
  ResponsesEcho echo;
  ResponsesTools tools;
  bool is_stream = false;
  bool includes_encrypted_reasoning = false;
};

[[nodiscard]] std::unique_ptr<ChatReply> make_responses_reply(ResponsesOptions options);

}  // namespace ps::server
