// The routes of the chat surfaces:
//   POST /v1/chat/completions, also without /v1        OpenAI, as the hosted API
//   POST /v1/responses                                 OpenAI
//   POST /v1/messages, /v1/messages/count_tokens, also behind /anthropic      Anthropic
// Threading: the I/O thread.
#pragma once

#include "server/chat_answer.h"
#include "server/router.h"

namespace ps::server {

// REQUIRES: the context outlives the router.
void add_chat_routes(Router& router, ChatContext& context);

}  // namespace ps::server
