#include "apps/load/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/pcg64.h"

namespace ps::apps {
namespace {

int64_t around(Pcg64& random, int64_t mean) {
  return std::max<int64_t>(1, random.integer(mean - mean / 2, mean + mean / 2 + 1));
}

std::vector<int32_t> random_tokens(Pcg64& random, int64_t count, int64_t vocabulary) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>(random.integer(3, vocabulary)));
  return tokens;
}

Percentiles percentiles(std::vector<double>& values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    return values[static_cast<size_t>(std::lround(share * static_cast<double>(values.size() - 1)))];
  };
  return {at(0.5), at(0.95), at(0.99)};
}

}  // namespace

Status check(const LoadOptions& options, int64_t max_context) {
  if (options.requests < 1 || options.prompt_tokens < 1 || options.answer_tokens < 1 || options.prefixes < 0 ||
      options.prefix_tokens < 0) {
    return Status::invalid(
        "requests, prompt-tokens and answer-tokens must be 1 or more, prefixes and prefix-tokens 0 or more");
  }
  if (!(options.shared_share >= 0 && options.shared_share <= 1)) {
    return Status::invalid(fmt::format("shared-share is {}; legal values are 0 to 1", options.shared_share));
  }
  if (!(options.rate >= 0))
    return Status::invalid(fmt::format("rate is {}; legal values are 0 (all at once) or more", options.rate));
  if (options.concurrency < 0) {
    return Status::invalid(
        fmt::format("concurrency is {}; legal values are 0 (any number) or more", options.concurrency));
  }
  for (const int64_t tokens : {options.prefix_tokens, options.prompt_tokens, options.answer_tokens}) {
    if (tokens > max_context) {
      return Status::invalid(
          fmt::format("a request of {} tokens is asked for, but a context holds {}", tokens, max_context));
    }
  }
  const int64_t longest = options.prefix_tokens + options.prompt_tokens + options.prompt_tokens / 2 +
                          options.answer_tokens + options.answer_tokens / 2 + 1;
  if (longest > max_context) {
    return Status::invalid(
        fmt::format("the longest request has {} tokens, but a context holds {}: raise --memory or --max-context, or "
                    "shorten prompts and answers",
                    longest, max_context));
  }
  return {};
}

std::vector<Arrival> draw_arrivals(const LoadOptions& options, int64_t vocabulary) {
  Pcg64 random(options.seed);
  std::vector<std::vector<int32_t>> prefixes;
  for (int64_t i = 0; i < options.prefixes; ++i)
    prefixes.push_back(random_tokens(random, options.prefix_tokens, vocabulary));
  std::vector<Arrival> arrivals(static_cast<size_t>(options.requests));
  double clock = 0;
  for (Arrival& arrival : arrivals) {
    const int64_t length = around(random, options.prompt_tokens);
    if (options.prefixes > 0 && random.uniform() < options.shared_share) {
      arrival.request.prompt = prefixes[static_cast<size_t>(random.integer(0, options.prefixes))];
    }
    const std::vector<int32_t> own = random_tokens(random, length, vocabulary);
    arrival.request.prompt.insert(arrival.request.prompt.end(), own.begin(), own.end());
    arrival.request.max_tokens = around(random, options.answer_tokens);
    arrival.request.ignore_eos = true;
    if (options.rate > 0) clock += -std::log(1 - random.uniform()) / options.rate;
    arrival.at_seconds = clock;
  }
  return arrivals;
}

void Latencies::add(Timeline& timeline, double now) {
  if (timeline.last_token < 0) {
    first_token_ms_.push_back((now - timeline.began) * 1e3);
  } else {
    inter_token_ms_.push_back((now - timeline.last_token) * 1e3);
  }
  timeline.last_token = now;
}

void Latencies::report(LoadResult& result) {
  result.time_to_first_token_ms = percentiles(first_token_ms_);
  result.inter_token_ms = percentiles(inter_token_ms_);
}

}  // namespace ps::apps
