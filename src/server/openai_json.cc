#include "server/openai_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <random>

namespace ps::server {

std::string make_object_id(std::string_view prefix) {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("{}-{:016x}{:016x}", prefix, random(), random());
}

int64_t unix_seconds() { return static_cast<int64_t>(std::time(nullptr)); }

void write_usage(JsonWriter& json, const TokenUsage& usage) {
  json.begin_object().key("prompt_tokens").integer(usage.prompt_tokens);
  json.key("completion_tokens").integer(usage.completion_tokens);
  json.key("total_tokens").integer(usage.prompt_tokens + usage.completion_tokens);
  json.key("prompt_tokens_details").begin_object().key("cached_tokens").integer(usage.cached_tokens).end_object();
  json.key("prompt_cache_hit_tokens").integer(usage.cached_tokens);
  json.key("prompt_cache_miss_tokens").integer(usage.prompt_tokens - usage.cached_tokens).end_object();
}

void write_finish_reason(JsonWriter& json, AnswerEnd end) {
  switch (end) {
    case AnswerEnd::kNone: json.null(); return;
    case AnswerEnd::kStop:
    case AnswerEnd::kStopString: json.string("stop"); return;
    case AnswerEnd::kLength: json.string("length"); return;
    case AnswerEnd::kAborted: json.string("aborted"); return;
  }
}

double json_logprob(float logprob) noexcept { return logprob > -9999.0F ? static_cast<double>(logprob) : -9999.0; }

}  // namespace ps::server
