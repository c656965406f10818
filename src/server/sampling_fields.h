// The fields that every generating surface of the OpenAI family shares, read from a request. Check order and the words
// of errors follow encoding.md 5.1 and 5.3. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/sampler.h"
#include "server/request_fields.h"

namespace ps::server {

struct SamplingFields {
  engine::SamplingOptions sampling;
  bool has_seed = false;
  std::vector<std::string> stops;
  std::vector<int32_t> stop_ids;
  bool ignore_eos = false;
  bool is_stream = false;
  bool includes_usage = false;  // stream_options.include_usage
};

inline constexpr size_t kMaxStops = 16;

// Penalties, temperature, top_p, seed, then stop and stream_options, then what goes beyond OpenAI's: top_k, min_p,
// repetition_penalty, stop_token_ids, ignore_eos. `vocabulary`: ids below it are legal.
[[nodiscard]] SamplingFields read_sampling(RequestFields& fields, int32_t vocabulary);

// The seed of one of several sequences of a request: the request's own counted on, or a random one.
[[nodiscard]] uint64_t sequence_seed(const SamplingFields& fields, size_t index);

}  // namespace ps::server
