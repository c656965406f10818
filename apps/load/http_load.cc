#include "apps/load/http_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <limits>
#include <optional>
#include <utility>

#include "apps/http/answer_stream.h"
#include "apps/http/http_client.h"
#include "apps/http/served_model.h"
#include "base/json.h"
#include "base/macros.h"

namespace ps::apps {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLongestWait{1000};

Result<ServedModel> served_model(HttpClient& client) {
  PS_TRY(std::optional<ServedModel> model, first_model(client));
  if (model.has_value() && model->vocabulary > 3 && model->max_context > 0) return std::move(*model);
  return Status::unsupported(client.url() +
                             "/v1/models lists no model with vocab_size and max_model_len, as pagestate serve does");
}

// What the server counts, at one moment.
struct Counts {
  double steps = 0;
  double step_seconds = 0;
  double preemptions = 0;
  double prompt_rows = 0;
  double processor_seconds = 0;
};

Result<double> metric(const std::string& text, std::string_view name) {
  const std::string start = "\n" + std::string(name) + " ";
  const size_t at = text.find(start);
  double value = 0;
  if (at != std::string::npos) {
    const char* first = text.data() + at + start.size();
    if (std::from_chars(first, text.data() + text.size(), value).ec == std::errc{}) return value;
  }
  return Status::unsupported(fmt::format("/metrics has no {}, as pagestate serve does", name));
}

Result<Counts> read_counts(HttpClient& client) {
  PS_TRY(const std::string text, client.get("/metrics"));
  Counts counts;
  PS_TRY(counts.steps, metric(text, "pagestate_step_seconds_count"));
  PS_TRY(counts.step_seconds, metric(text, "pagestate_step_seconds_sum"));
  PS_TRY(counts.preemptions, metric(text, "pagestate_preemptions_total"));
  PS_TRY(counts.prompt_rows, metric(text, "pagestate_prompt_rows_total"));
  PS_TRY(counts.processor_seconds, metric(text, "pagestate_processor_seconds_total"));
  return counts;
}

std::string request_body(const std::string& model, const engine::Request& request) {
  JsonWriter json(JsonWriter::Style::kCompact);
  json.begin_object().key("model").string(model).key("prompt").begin_array();
  for (const int32_t id : request.prompt) json.integer(id);
  json.end_array().key("max_tokens").integer(request.max_tokens).key("temperature").integer(0);
  json.key("ignore_eos").boolean(true).key("stream").boolean(true);
  json.key("stream_options").begin_object().key("include_usage").boolean(true).end_object().end_object();
  return std::move(json).text();
}

// Adds the whole answer to the sums, or says why it is none.
Status add_answer(const AnswerStream& stream, const engine::Request& request, LoadResult& result) {
  if (!stream.is_done()) return Status::unavailable("the stream ended before the answer did");
  if (!stream.usage().has_value()) return Status::unavailable("the stream has no usage");
  if (stream.finish_reason() != "length") {
    return Status::unavailable(fmt::format("the answer of {} tokens ended early, with finish_reason \"{}\"",
                                           request.max_tokens, stream.finish_reason()));
  }
  // Tokens at the end that never became a character are not in the usage; "length" says that they were made.
  result.answer_tokens += request.max_tokens;
  result.prompt_tokens += stream.usage()->prompt_tokens;
  result.cached_tokens += stream.usage()->cached_tokens;
  return {};
}

// Sends what is due and reads what comes.
class Run {
 public:
  Run(HttpClient& client, const ServedModel& model, const LoadOptions& options)
      : client_(client), model_(model), options_(options), arrivals_(draw_arrivals(options, model.vocabulary)) {}

  Result<LoadResult> run() {
    start_ = Clock::now();
    while (next_ < arrivals_.size() || under_way_ > 0) {
      while (next_ < arrivals_.size() && under_way_ < limit() && arrivals_[next_].at_seconds <= now()) {
        PS_RETURN_IF_ERROR(send(next_++));
      }
      PS_RETURN_IF_ERROR(client_.advance(wait()));
      PS_RETURN_IF_ERROR(std::move(failure_));
    }
    result_.seconds = now();
    result_.requests = options_.requests;
    latencies_.report(result_);
    return result_;
  }

 private:
  struct UnderWay {
    AnswerStream stream;
    Timeline timeline;
  };

  [[nodiscard]] double now() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  [[nodiscard]] int64_t limit() const noexcept {
    return options_.concurrency > 0 ? options_.concurrency : std::numeric_limits<int64_t>::max();
  }
  // Until the next request is due, if it may be sent then.
  [[nodiscard]] std::chrono::milliseconds wait() const {
    if (next_ == arrivals_.size() || under_way_ >= limit()) return kLongestWait;
    const double seconds = std::clamp(arrivals_[next_].at_seconds - now(), 0.0, 1.0);
    return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
  }

  Status send(size_t index) {
    const auto request = std::make_shared<UnderWay>();
    const auto on_bytes = [this, request](std::string_view bytes) {
      return request->stream.feed(bytes, [&](const JsonValue&) { latencies_.add(request->timeline, now()); });
    };
    const auto on_end = [this, request, index](Status status) {
      --under_way_;
      if (status.ok()) status = add_answer(request->stream, arrivals_[index].request, result_);
      if (failure_.ok())
        failure_ = std::move(status).with(fmt::format("request {} of {}", index + 1, arrivals_.size()));
    };
    ++under_way_;
    request->timeline.began = begin_of(options_, arrivals_[index], now());
    return client_.start("/v1/completions", request_body(model_.name, arrivals_[index].request), on_bytes, on_end);
  }

  HttpClient& client_;
  const ServedModel& model_;
  const LoadOptions& options_;
  const std::vector<Arrival> arrivals_;
  Clock::time_point start_;
  size_t next_ = 0;
  int64_t under_way_ = 0;
  Status failure_;
  Latencies latencies_;
  LoadResult result_;
};

}  // namespace

Result<LoadResult> run_http_load(const std::string& url, const std::string& key, const LoadOptions& options) {
  PS_TRY(HttpClient client, HttpClient::create(url, key));
  PS_TRY(const ServedModel model, served_model(client));
  PS_RETURN_IF_ERROR(check(options, model.max_context));
  PS_TRY(const Counts before, read_counts(client));
  Run run(client, model, options);
  PS_TRY(LoadResult result, run.run());
  PS_TRY(const Counts after, read_counts(client));
  result.steps = static_cast<int64_t>(after.steps - before.steps);
  result.step_seconds = after.step_seconds - before.step_seconds;
  result.preemptions = static_cast<int64_t>(after.preemptions - before.preemptions);
  result.computed_rows = static_cast<int64_t>(after.prompt_rows - before.prompt_rows);
  result.processor_seconds = after.processor_seconds - before.processor_seconds;
  return result;
}

}  // namespace ps::apps
