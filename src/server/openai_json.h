// Pieces of JSON that every surface of the OpenAI family writes. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"
#include "server/generation.h"

namespace ps::server {

// "<prefix>-" and 32 random hexadecimal digits.
[[nodiscard]] std::string make_object_id(std::string_view prefix);
[[nodiscard]] int64_t unix_seconds();

// The object under "usage", cached tokens in OpenAI's and in DeepSeek's fields (encoding.md 3.4).
void write_usage(JsonWriter& json, const TokenUsage& usage);

// "stop", "length", "aborted"; JSON null while the answer goes on.
void write_finish_reason(JsonWriter& json, AnswerEnd end);

// -inf has no JSON: clients expect -9999 in its place.
[[nodiscard]] double json_logprob(float logprob) noexcept;

}  // namespace ps::server
