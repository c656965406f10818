#include "apps/chat/remote_backend.h"

#include <fmt/format.h>

#include <chrono>

#include "apps/http/http_client.h"
#include "apps/http/sse_reader.h"
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

// Reads the chunks of one answer.
class ChunkReader {
 public:
  ChunkReader(AnswerSink& sink, Clock::time_point start) : sink_(sink), start_(start) {}

  Status take(std::string_view bytes) {
    events_.clear();
    PS_RETURN_IF_ERROR(sse_.feed(bytes, events_));
    for (const std::string& event : events_) {
      if (event == "[DONE]") {
        is_done_ = true;
        continue;
      }
      PS_TRY(const JsonValue chunk, JsonValue::parse(event).with("the server's stream"));
      PS_RETURN_IF_ERROR(take_chunk(chunk));
    }
    return {};
  }
  [[nodiscard]] bool is_done() const noexcept { return is_done_; }
  [[nodiscard]] const AnswerFigures& figures() const noexcept { return figures_; }

 private:
  Status take_chunk(const JsonValue& chunk) {
    if (const JsonValue* error = chunk.find("error"); error != nullptr && error->is_object()) {
      const JsonValue* message = error->find("message");
      return Status::unavailable(message != nullptr && message->is_string() ? message->text() : "the server failed");
    }
    if (const JsonValue* usage = chunk.find("usage")) take_usage(*usage);
    const JsonValue* choices = chunk.find("choices");
    if (choices == nullptr || !choices->is_array() || choices->items().empty()) return {};
    const JsonValue& choice = choices->items().front();
    const JsonValue* finish = choice.find("finish_reason");
    if (finish != nullptr && finish->is_string() && finish->text() == "length") figures_.end = AnswerEnd::kLength;
    const JsonValue* delta = choice.find("delta");
    if (delta == nullptr) return {};
    const auto part = [&](std::string_view name) -> std::string_view {
      const JsonValue* value = delta->find(name);
      return value != nullptr && value->is_string() ? std::string_view(value->text()) : std::string_view();
    };
    const std::string_view reasoning = part("reasoning_content");
    const std::string_view content = part("content");
    if (!(reasoning.empty() && content.empty()) && figures_.first_seconds == 0)
      figures_.first_seconds = seconds_since(start_);
    if (!reasoning.empty()) sink_.reasoning(reasoning);
    if (!content.empty()) sink_.content(content);
    return {};
  }

  void take_usage(const JsonValue& usage) {
    const auto number = [](const JsonValue* parent, std::string_view name) -> int64_t {
      const JsonValue* value = parent != nullptr ? parent->find(name) : nullptr;
      if (value == nullptr) return 0;
      const auto integer = value->integer();
      return integer.ok() ? integer.value() : 0;
    };
    if (!usage.is_object()) return;
    figures_.prompt_tokens = number(&usage, "prompt_tokens");
    figures_.answer_tokens = number(&usage, "completion_tokens");
    figures_.cached_tokens = number(usage.find("prompt_tokens_details"), "cached_tokens");
  }

  AnswerSink& sink_;
  Clock::time_point start_;
  SseReader sse_;
  std::vector<std::string> events_;
  AnswerFigures figures_;
  bool is_done_ = false;
};

class RemoteBackend final : public Backend {
 public:
  RemoteBackend(HttpClient client, std::string model) : client_(std::move(client)), model_(std::move(model)) {}

  Result<AnswerFigures> answer(const Question& question, AnswerSink& sink,
                               const std::function<bool()>& is_stopped) override {
    const Clock::time_point start = Clock::now();
    ChunkReader reader(sink, start);
    PS_RETURN_IF_ERROR(client_.post(
        "/v1/chat/completions", request_body(question, model_),
        [&](std::string_view bytes) { return reader.take(bytes); }, is_stopped));
    AnswerFigures figures = reader.figures();
    figures.total_seconds = seconds_since(start);
    if (!reader.is_done()) {
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

Result<std::string> first_model(HttpClient& client) {
  PS_TRY(const std::string body, client.get("/v1/models"));
  PS_TRY(const JsonValue reply, JsonValue::parse(body).with(client.url() + "/v1/models"));
  const JsonValue* models = reply.find("data");
  if (models != nullptr && models->is_array() && !models->items().empty()) {
    const JsonValue* id = models->items().front().find("id");
    if (id != nullptr && id->is_string()) return id->text();
  }
  return Status::unavailable(client.url() + "/v1/models lists no model; name one with --model-name");
}

}  // namespace

Result<std::unique_ptr<Backend>> make_remote_backend(const std::string& url, std::string model, std::string key) {
  PS_TRY(HttpClient client, HttpClient::create(url, std::move(key)));
  PS_TRY(std::string first, first_model(client));
  if (model.empty()) model = std::move(first);
  return std::unique_ptr<Backend>(std::make_unique<RemoteBackend>(std::move(client), std::move(model)));
}

}  // namespace ps::apps::chat
