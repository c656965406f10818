// Builds a Prompt: text with a note of which stretches other people wrote, where images go, and the markup that both
// encoders share (encoding.md 2.0). Private to the encoders. Threading: one thread at a time.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/chat.h"
#include "text/prompt_encoder.h"

namespace ps::text {

class PromptWriter {
 public:
  explicit PromptWriter(const EncodeOptions& options);

  // The encoder's own text, in which control tokens are meant.
  PromptWriter& control(std::string_view text) {
    prompt_.text += text;
    return *this;
  }
  // Text of a user, a tool or an earlier answer.
  PromptWriter& literal(std::string_view text);

  // The parts of a message, joined by blank lines.
  void content(const ChatMessage& message, size_t message_index);
  // Messages of a user's turn, by index, joined by blank lines; tool results in <tool_result>...</tool_result>.
  void user_blocks(std::span<const ChatMessage> messages, std::span<const size_t> blocks);
  // The reasoning line that opens the prompt of a thinking model.
  void effort(const ReasoningEffort& effort);
  // A blank line and the description of the tools, each one line of JSON.
  void tools(std::span<const std::string> schemas);
  // A blank line and the demand that the reply follows `schema`.
  void response_format(std::string_view schema);
  // The block of calls with the newlines before it: the remembered bytes, or the canonical form. invalid where the
  // model encoder meets arguments that are no JSON object; the recipe passes them as one string.
  Status calls(std::span<const ToolCall> calls, size_t message_index);
  // <｜Assistant｜> and the token that says whether a thought follows.
  void header(bool thinks);

  // True if the encoder's own text at the end of the prompt ends with `suffix`.
  [[nodiscard]] bool ends_with(std::string_view suffix) const noexcept {
    const bool is_own = prompt_.literal.empty() || prompt_.literal.back().end + suffix.size() <= prompt_.text.size();
    return is_own && prompt_.text.ends_with(suffix);
  }
  Prompt& prompt() noexcept { return prompt_; }

 private:
  void remembered_block(std::string_view block);
  void parameter(std::string_view name, bool is_string, std::string_view value);
  Status call(const ToolCall& call, const std::string& path);

  EncodeOptions options_;
  Prompt prompt_;
};

}  // namespace ps::text
