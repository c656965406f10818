#include "apps/http/answer_stream.h"

#include "apps/http/json_number.h"
#include "base/macros.h"

namespace ps::apps {

Status AnswerStream::feed(std::string_view bytes, const OnChoice& on_choice) {
  events_.clear();
  PS_RETURN_IF_ERROR(sse_.feed(bytes, events_));
  for (const std::string& event : events_) {
    if (event == "[DONE]") {
      is_done_ = true;
      continue;
    }
    PS_TRY(const JsonValue chunk, JsonValue::parse(event).with("the server's stream"));
    PS_RETURN_IF_ERROR(take_chunk(chunk, on_choice));
  }
  return {};
}

Status AnswerStream::take_chunk(const JsonValue& chunk, const OnChoice& on_choice) {
  if (const JsonValue* error = chunk.find("error"); error != nullptr && error->is_object()) {
    const JsonValue* message = error->find("message");
    return Status::unavailable(message != nullptr && message->is_string() ? message->text() : "the server failed");
  }
  if (const JsonValue* usage = chunk.find("usage"); usage != nullptr && usage->is_object()) {
    usage_ = StreamUsage{.prompt_tokens = json_number(usage, "prompt_tokens"),
                         .cached_tokens = json_number(usage->find("prompt_tokens_details"), "cached_tokens"),
                         .answer_tokens = json_number(usage, "completion_tokens")};
  }
  const JsonValue* choices = chunk.find("choices");
  if (choices == nullptr || !choices->is_array() || choices->items().empty()) return {};
  const JsonValue& choice = choices->items().front();
  if (const JsonValue* finish = choice.find("finish_reason"); finish != nullptr && finish->is_string()) {
    finish_reason_ = finish->text();
  }
  on_choice(choice);
  return {};
}

}  // namespace ps::apps
