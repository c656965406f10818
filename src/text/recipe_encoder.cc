// The encoder of the hosted API (encoding.md 2B): reasoning is always kept, every assistant message has its header, and
// the prompt always asks for a reply.
#include "base/macros.h"
#include "text/chat_encoders.h"
#include "text/markup.h"
#include "text/prompt_turns.h"

namespace ps::text {
namespace {

constexpr std::string_view kJsonObjectFormat = R"({"type": "json_object"})";

class RecipeEncoder {
 public:
  RecipeEncoder(const ChatRequest& request, const ShownTools& tools, PromptWriter& writer)
      : request_(request), tools_(tools), writer_(writer) {}

  Status encode() {
    make_turns();
    for (size_t i = 0; i < turns_.size(); ++i) PS_RETURN_IF_ERROR(turn(i));
    end();
    return {};
  }

 private:
  [[nodiscard]] bool is_json_object() const {
    return request_.response_format.kind == ResponseFormat::Kind::kJsonObject;
  }

  // Empty system messages vanish, and what has to stand in one gets one.
  void make_turns() {
    std::vector<size_t> kept;
    for (size_t i = 0; i < request_.messages.size(); ++i) {
      const ChatMessage& message = request_.messages[i];
      if (message.role != Role::kSystem || !is_content_empty(message)) kept.push_back(i);
    }
    turns_ = merge_turns(request_.messages, kept);
    const bool needs_system = !tools_.schemas.empty() || is_json_object();
    if (needs_system && (turns_.empty() || turns_.front().role != Role::kSystem)) {
      turns_.insert(turns_.begin(), Turn{.role = Role::kSystem, .blocks = {}});
    }
    if (turns_.empty() && request_.is_thinking) opening();
  }

  void opening() {
    writer_.control(markup::kSystem);
    if (request_.is_thinking) writer_.effort(request_.effort);
  }

  Status turn(size_t index) {
    const Turn& turn = turns_[index];
    const bool is_system = turn.role == Role::kSystem;
    if (is_system && index > 0) writer_.control(markup::kSystem);
    if (index == 0 && (is_system || request_.is_thinking)) opening();
    if (is_system) {
      if (turn.message != Turn::kNoMessage) writer_.content(request_.messages[turn.message], turn.message);
      if (index > 0) return {};
      if (!tools_.schemas.empty()) writer_.tools(tools_.schemas);
      if (is_json_object()) writer_.response_format(kJsonObjectFormat);
      return {};
    }
    if (turn.role == Role::kAssistant) return assistant(turn.message, index > 0 && request_.is_thinking);
    writer_.control(turn.role == Role::kUser ? markup::kUser : markup::kLatestReminder);
    if (turn.role == Role::kUser) {
      writer_.user_blocks(request_.messages, turn.blocks);
    } else {
      writer_.content(request_.messages[turn.message], turn.message);
    }
    return {};
  }

  Status assistant(size_t index, bool thinks) {
    const ChatMessage& message = request_.messages[index];
    const bool is_open = index + 1 == request_.messages.size() && is_last_open(request_);
    writer_.header(thinks);
    if (thinks) {
      writer_.literal(message.reasoning);
      if (is_open && is_content_empty(message) && message.tool_calls.empty()) return {};
      writer_.control(markup::kThinkEnd);
    }
    writer_.content(message, index);
    if (!message.tool_calls.empty()) PS_RETURN_IF_ERROR(writer_.calls(message.tool_calls, index));
    if (!is_open) writer_.control(markup::kEos);
    return {};
  }

  void end() {
    if (!is_last_open(request_) && request_.ending != PromptEnding::kNoHeader) writer_.header(request_.is_thinking);
  }

  const ChatRequest& request_;
  const ShownTools& tools_;
  PromptWriter& writer_;
  std::vector<Turn> turns_;
};

}  // namespace

Status encode_recipe(const ChatRequest& request, const ShownTools& tools, PromptWriter& writer) {
  return RecipeEncoder(request, tools, writer).encode();
}

}  // namespace ps::text
