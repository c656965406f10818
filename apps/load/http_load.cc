#include "apps/load/http_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <limits>

#include "apps/http/http_client.h"
#include "apps/http/sse_reader.h"
#include "base/json.h"
#include "base/macros.h"

namespace ps::apps {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLongestWait{1000};

int64_t number(const JsonValue* parent, std::string_view name) {
  const JsonValue* value = parent != nullptr ? parent->find(name) : nullptr;
  if (value == nullptr || !value->is_number()) return 0;
  const auto integer = value->integer();
  return integer.ok() ? integer.value() : 0;
}

struct ServedModel {
  std::string name;
  int64_t vocabulary = 0;
  int64_t max_context = 0;
};

Result<ServedModel> first_model(HttpClient& client) {
  PS_TRY(const std::string body, client.get("/v1/models"));
  PS_TRY(const JsonValue reply, JsonValue::parse(body).with(client.url() + "/v1/models"));
  const JsonValue* models = reply.find("data");
  if (models != nullptr && models->is_array() && !models->items().empty()) {
    const JsonValue& model = models->items().front();
    const JsonValue* id = model.find("id");
    ServedModel served{"", number(&model, "vocab_size"), number(&model, "max_model_len")};
    if (id != nullptr && id->is_string()) served.name = id->text();
    if (!served.name.empty() && served.vocabulary > 3 && served.max_context > 0) return served;
  }
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

// Reads the stream of one answer.
class AnswerReader {
 public:
  // How many events with tokens these bytes complete.
  Result<int64_t> take(std::string_view bytes) {
    events_.clear();
    int64_t tokens = 0;
    PS_RETURN_IF_ERROR(sse_.feed(bytes, events_));
    for (const std::string& event : events_) {
      if (event == "[DONE]") {
        is_done_ = true;
        continue;
      }
      PS_TRY(const JsonValue chunk, JsonValue::parse(event).with("the server's stream"));
      PS_TRY(const bool is_token, take_chunk(chunk));
      tokens += is_token ? 1 : 0;
    }
    return tokens;
  }

  // Adds the whole answer to the sums, or says why it is none.
  Status close(const engine::Request& request, LoadResult& result) const {
    if (!is_done_) return Status::unavailable("the stream ended before the answer did");
    if (!has_usage_) return Status::unavailable("the stream has no usage");
    if (finish_ != "length") {
      return Status::unavailable(
          fmt::format("the answer of {} tokens ended early, with finish_reason \"{}\"", request.max_tokens, finish_));
    }
    // Tokens at the end that never became a character are not in the usage; "length" says that they were made.
    result.answer_tokens += request.max_tokens;
    result.prompt_tokens += prompt_tokens_;
    result.cached_tokens += cached_tokens_;
    return {};
  }

 private:
  Result<bool> take_chunk(const JsonValue& chunk) {
    if (const JsonValue* error = chunk.find("error"); error != nullptr && error->is_object()) {
      const JsonValue* message = error->find("message");
      return Status::unavailable(message != nullptr && message->is_string() ? message->text() : "the server failed");
    }
    if (const JsonValue* usage = chunk.find("usage"); usage != nullptr && usage->is_object()) {
      has_usage_ = true;
      prompt_tokens_ = number(usage, "prompt_tokens");
      cached_tokens_ = number(usage->find("prompt_tokens_details"), "cached_tokens");
    }
    const JsonValue* choices = chunk.find("choices");
    if (choices == nullptr || !choices->is_array() || choices->items().empty()) return false;
    const JsonValue& choice = choices->items().front();
    if (const JsonValue* finish = choice.find("finish_reason"); finish != nullptr && finish->is_string()) {
      finish_ = finish->text();
    }
    return true;
  }

  SseReader sse_;
  std::vector<std::string> events_;
  std::string finish_;
  int64_t prompt_tokens_ = 0;
  int64_t cached_tokens_ = 0;
  bool has_usage_ = false;
  bool is_done_ = false;
};

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
    AnswerReader reader;
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
    const auto on_bytes = [this, request](std::string_view bytes) -> Status {
      PS_TRY(const int64_t tokens, request->reader.take(bytes));
      for (int64_t i = 0; i < tokens; ++i) latencies_.add(request->timeline, now());
      return {};
    };
    const auto on_end = [this, request, index](Status status) {
      --under_way_;
      if (status.ok()) status = request->reader.close(arrivals_[index].request, result_);
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
  PS_TRY(const ServedModel model, first_model(client));
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
