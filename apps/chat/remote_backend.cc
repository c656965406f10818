#include "apps/chat/remote_backend.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <utility>

#include "apps/http/answer_stream.h"
#include "apps/http/http_client.h"
#include "apps/http/served_model.h"
#include "base/json.h"
#include "base/macros.h"

namespace ps::apps::chat {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::string text_of(const text::ChatMessage& message) {
  std::string text;
  for (const text::ContentPart& part : message.content) text += part.text;
  return text;
}

std::string request_body(const Question& question, const std::string& model) {
  JsonWriter json(JsonWriter::Style::kCompact);
  json.begin_object().key("model").string(model).key("messages").begin_array();
  for (const text::ChatMessage& message : question.chat.messages) {
    json.begin_object().key("role").string(text::role_name(message.role)).key("content").string(text_of(message));
    if (!message.reasoning.empty()) json.key("reasoning_content").string(message.reasoning);
    json.end_object();
  }
  json.end_array().key("stream").boolean(true);
  json.key("stream_options").begin_object().key("include_usage").boolean(true).end_object();
  json.key("thinking").begin_object().key("type").string(question.chat.is_thinking ? "enabled" : "disabled");
  json.end_object();
  if (question.chat.is_thinking) json.key("reasoning_effort").string(text::effort_name(question.chat.effort));
  const SamplingWishes& wishes = question.sampling;
  if (wishes.temperature) json.key("temperature").real(*wishes.temperature);
  if (wishes.top_p) json.key("top_p").real(*wishes.top_p);
  if (wishes.max_tokens) json.key("max_tokens").integer(*wishes.max_tokens);
  if (wishes.seed) json.key("seed").integer(*wishes.seed);
  json.end_object();
  return std::move(json).text();
}

// Hands on what one choice adds to the answer.
class DeltaReader {
 public:
  DeltaReader(AnswerSink& sink, Clock::time_point start) : sink_(sink), start_(start) {}

  void take(const JsonValue& choice) {
    const JsonValue* delta = choice.find("delta");
    if (delta == nullptr) return;
    const auto part = [&](std::string_view name) -> std::string_view {
      const JsonValue* value = delta->find(name);
      return value != nullptr && value->is_string() ? std::string_view(value->text()) : std::string_view();
    };
    const std::string_view reasoning = part("reasoning_content");
    const std::string_view content = part("content");
    if (!(reasoning.empty() && content.empty()) && first_seconds_ == 0) first_seconds_ = seconds_since(start_);
    if (!reasoning.empty()) sink_.reasoning(reasoning);
    if (!content.empty()) sink_.content(content);
  }
  // Until the first text; 0: none came.
  [[nodiscard]] double first_seconds() const noexcept { return first_seconds_; }

 private:
  AnswerSink& sink_;
  Clock::time_point start_;
  double first_seconds_ = 0;
};

class RemoteBackend final : public Backend {
 public:
  RemoteBackend(HttpClient client, std::string model) : client_(std::move(client)), model_(std::move(model)) {}

  Result<AnswerFigures> answer(const Question& question, AnswerSink& sink,
                               const std::function<bool()>& is_stopped) override {
    const Clock::time_point start = Clock::now();
    DeltaReader deltas(sink, start);
    AnswerStream stream;
    const auto on_bytes = [&](std::string_view bytes) {
      return stream.feed(bytes, [&](const JsonValue& choice) { deltas.take(choice); });
    };
    PS_RETURN_IF_ERROR(client_.post("/v1/chat/completions", request_body(question, model_), on_bytes, is_stopped));
    const StreamUsage usage = stream.usage().value_or(StreamUsage());
    AnswerFigures figures{.prompt_tokens = usage.prompt_tokens,
                          .cached_tokens = usage.cached_tokens,
                          .answer_tokens = usage.answer_tokens,
                          .first_seconds = deltas.first_seconds(),
                          .total_seconds = seconds_since(start)};
    if (stream.finish_reason() == "length") figures.end = AnswerEnd::kLength;
    if (!stream.is_done()) {
      if (!is_stopped()) return Status::unavailable("the connection ended before the answer did");
      figures.end = AnswerEnd::kStopped;
    }
    return figures;
  }

  std::string describe() override { return fmt::format("{} at {}\n", model_, client_.url()); }

 private:
  HttpClient client_;
  std::string model_;
};

}  // namespace

Result<std::unique_ptr<Backend>> make_remote_backend(const std::string& url, std::string model, std::string key) {
  PS_TRY(HttpClient client, HttpClient::create(url, std::move(key)));
  PS_TRY(const std::optional<ServedModel> first, first_model(client));  // asked in any case: is it there?
  if (model.empty() && !first.has_value()) {
    return Status::unavailable(client.url() + "/v1/models lists no model; name one with --model-name");
  }
  if (model.empty()) model = first->name;
  return std::unique_ptr<Backend>(std::make_unique<RemoteBackend>(std::move(client), std::move(model)));
}

}  // namespace ps::apps::chat
