// POST /tokenize and /detokenize, with vLLM's field names. Threading: handlers on the I/O thread, the work on a worker.
#pragma once

#include <variant>

#include "server/api_context.h"

namespace ps::server {

// The reply's JSON, or the error.
[[nodiscard]] std::variant<std::string, ApiError> tokenize_reply(const JsonValue& body,
                                                                 const text::Tokenizer& tokenizer, int64_t max_context);
[[nodiscard]] std::variant<std::string, ApiError> detokenize_reply(const JsonValue& body,
                                                                   const text::Tokenizer& tokenizer);

void add_tokens_routes(Router& router, ApiContext& context);

}  // namespace ps::server
