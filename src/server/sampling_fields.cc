#include "server/sampling_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <random>
#include <utility>

namespace ps::server {
namespace {

constexpr double kMaxBias = 100;

double penalty(RequestFields& fields, std::string_view name) {
  const JsonValue* value = fields.find(name);
  if (value == nullptr) return 0;
  const auto number = value->is_number() ? value->real() : Result<double>(Status::invalid("no number"));
  if (number.ok() && number.value() >= -2 && number.value() <= 2) return number.value();
  fields.fail(ApiError::invalid(fmt::format("{} must be in [-2, 2]", name), std::string(name)));
  return 0;
}

void read_seed(RequestFields& fields, SamplingFields& out) {
  const JsonValue* value = fields.find("seed");
  if (value == nullptr) return;
  const auto number = value->is_number() ? value->integer() : Result<int64_t>(Status::invalid("no number"));
  if (!number.ok() || number.value() < 0) {
    return fields.fail(ApiError::invalid("seed must be in [0, 2^63)", "seed"));
  }
  out.sampling.seed = static_cast<uint64_t>(number.value());
  out.has_seed = true;
}

void read_stops(RequestFields& fields, SamplingFields& out) {
  const JsonValue* value = fields.find("stop");
  if (value == nullptr) return;
  if (value->is_string()) {
    out.stops.push_back(value->text());
    return;
  }
  if (!value->is_array()) return fields.fail(ApiError::invalid("stop must be a string or an array of strings", "stop"));
  if (value->items().size() > kMaxStops) {
    return fields.fail(ApiError::invalid(
        fmt::format("stop has {} strings; at most {} are legal", value->items().size(), kMaxStops), "stop"));
  }
  for (const JsonValue& item : value->items()) {
    if (!item.is_string())
      return fields.fail(ApiError::invalid("stop must be a string or an array of strings", "stop"));
    out.stops.push_back(item.text());
  }
}

void read_stop_ids(RequestFields& fields, int32_t vocabulary, SamplingFields& out) {
  const JsonValue* value = fields.find("stop_token_ids");
  if (value == nullptr) return;
  const auto refuse = [&] {
    fields.fail(ApiError::invalid(fmt::format("stop_token_ids must be an array of token ids, 0 to {}", vocabulary - 1),
                                  "stop_token_ids"));
  };
  if (!value->is_array()) return refuse();
  for (const JsonValue& item : value->items()) {
    const auto id = item.is_number() ? item.integer() : Result<int64_t>(Status::invalid("no number"));
    if (!id.ok() || id.value() < 0 || id.value() >= vocabulary) return refuse();
    out.stop_ids.push_back(static_cast<int32_t>(id.value()));
  }
}

void read_bias(RequestFields& fields, int32_t vocabulary, SamplingFields& out) {
  const JsonValue* value = fields.find("logit_bias");
  if (value == nullptr) return;
  if (!value->is_object()) {
    return fields.fail(ApiError::invalid("logit_bias must be an object of token ids and numbers", "logit_bias"));
  }
  for (const auto& [key, bias] : value->members()) {
    int32_t id = -1;
    const auto parsed = std::from_chars(key.data(), key.data() + key.size(), id);
    if (parsed.ec != std::errc{} || parsed.ptr != key.data() + key.size() || id < 0 || id >= vocabulary) {
      return fields.fail(ApiError::invalid(
          fmt::format("logit_bias has the token id \"{}\"; legal values are 0 to {}", key, vocabulary - 1),
          "logit_bias"));
    }
    const auto number = bias.is_number() ? bias.real() : Result<double>(Status::invalid("no number"));
    if (!number.ok() || number.value() < -kMaxBias || number.value() > kMaxBias) {
      return fields.fail(
          ApiError::invalid(fmt::format("logit_bias of {} must be a number, -100 to 100", key), "logit_bias"));
    }
    out.sampling.logit_bias.emplace_back(id, static_cast<float>(number.value()));
  }
}

void read_stream(RequestFields& fields, SamplingFields& out) {
  out.is_stream = fields.boolean("stream", false);
  const JsonValue* options = fields.find("stream_options");
  if (options == nullptr) return;
  if (!out.is_stream) {
    return fields.fail(ApiError::invalid("stream_options should be set along with stream = true", "stream_options"));
  }
  if (!options->is_object())
    return fields.fail(ApiError::invalid("stream_options must be an object", "stream_options"));
  RequestFields inner(*options);
  out.includes_usage = inner.boolean("include_usage", false);
  if (!inner.error()) return;
  ApiError error = *inner.error();
  error.message.insert(0, "stream_options.");
  error.param.insert(0, "stream_options.");
  fields.fail(std::move(error));
}

}  // namespace

SamplingFields read_sampling(RequestFields& fields, int32_t vocabulary) {
  SamplingFields out;
  engine::SamplingOptions& sampling = out.sampling;
  sampling.frequency_penalty = penalty(fields, "frequency_penalty");
  sampling.presence_penalty = penalty(fields, "presence_penalty");
  sampling.temperature = fields.real("temperature", 1, 0, 2);
  sampling.top_p = fields.real("top_p", 1, 0, 1);
  if (sampling.top_p == 0) fields.fail(ApiError::invalid("top_p is 0; it must be above 0, at most 1", "top_p"));
  read_seed(fields, out);
  read_stops(fields, out);
  read_stream(fields, out);
  read_bias(fields, vocabulary, out);
  // vLLM's "all tokens" is -1 where ours is 0.
  sampling.top_k =
      static_cast<int32_t>(std::max<int64_t>(0, fields.integer("top_k", 0, -1, std::numeric_limits<int32_t>::max())));
  sampling.min_p = fields.real("min_p", 0, 0, 1);
  sampling.repetition_penalty = fields.real("repetition_penalty", 1, 0.01, 10);
  read_stop_ids(fields, vocabulary, out);
  out.ignore_eos = fields.boolean("ignore_eos", false);
  if (!fields.error()) {
    if (const Status status = engine::check(sampling); !status.ok()) fields.fail(from_status(status));
  }
  return out;
}

uint64_t sequence_seed(const SamplingFields& fields, size_t index) {
  if (fields.has_seed) return fields.sampling.seed + index;
  thread_local std::mt19937_64 random{std::random_device{}()};
  return random() >> 1;
}

}  // namespace ps::server
