// The two encoders behind encode_prompt(). Private to it. Threading: pure functions.
#pragma once

#include "base/status.h"
#include "text/chat.h"
#include "text/chat_checks.h"
#include "text/prompt_writer.h"

namespace ps::text {

// Write the text of a checked request and set where the parser starts.
Status encode_recipe(const ChatRequest& request, const ShownTools& tools, PromptWriter& writer);
Status encode_model(const ChatRequest& request, const ShownTools& tools, PromptWriter& writer);

// Whether the last message, an assistant's, is to be continued by the model.
[[nodiscard]] inline bool is_last_open(const ChatRequest& request) {
  const ChatMessage& last = request.messages.back();
  return last.role == Role::kAssistant && (last.without_eos || request.ending == PromptEnding::kContinue);
}

[[nodiscard]] inline bool is_content_empty(const ChatMessage& message) {
  for (const ContentPart& part : message.content) {
    if (part.kind != ContentPart::Kind::kText || !part.text.empty()) return false;
  }
  return true;
}

}  // namespace ps::text
