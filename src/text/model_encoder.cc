// The encoder of the model repository (encoding.md 2A): earlier reasoning is dropped unless there are tools, and a
// header follows a user's turn instead of preceding an assistant's.
#include <utility>

#include "base/macros.h"
#include "text/chat_encoders.h"
#include "text/markup.h"
#include "text/prompt_turns.h"

namespace ps::text {
namespace {

class ModelEncoder {
 public:
  ModelEncoder(const ChatRequest& request, const ShownTools& tools, PromptWriter& writer)
      : request_(request), tools_(tools), writer_(writer) {}

  Status encode() {
    if (request_.is_thinking && request_.effort.level == ReasoningEffort::Level::kXhigh) {
      return Status::invalid(std::string(effort_field(request_.dialect)) +
                             ": xhigh is not known to this chat encoding; legal: low, high, max, or an integer from 1 "
                             "to 100");
    }
    make_turns();
    drop_reasoning();
    for (size_t i = 0; i < turns_.size(); ++i) {
      PS_RETURN_IF_ERROR(turn(i));
      transition(i);
    }
    return {};
  }

 private:
  void make_turns() {
    std::vector<size_t> all(request_.messages.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = i;
    turns_ = merge_turns(request_.messages, all);
    if (!tools_.schemas.empty() && turns_.front().role != Role::kSystem) {
      turns_.insert(turns_.begin(), Turn{.role = Role::kSystem, .blocks = {}});
    }
  }

  // Item 4: the last turn that asks for something. 0 = there is none; else its index + 1.
  [[nodiscard]] size_t end_of_last_user() const {
    for (size_t i = turns_.size(); i > 0; --i) {
      if (asks(i - 1)) return i;
    }
    return 0;
  }
  // A header follows it.
  [[nodiscard]] bool asks(size_t index) const {
    const Role role = turns_[index].role;
    return role == Role::kUser || role == Role::kDeveloper || (role == Role::kSystem && index > 0);
  }

  // Item 5. Afterwards keeps_reasoning() tells for each turn.
  void drop_reasoning() {
    bool has_tools = !tools_.schemas.empty();
    for (const ChatMessage& message : request_.messages) has_tools = has_tools || !message.tools.empty();
    drops_ = request_.is_thinking && request_.drop_thinking && !has_tools;
    if (drops_) {
      const size_t last_user = end_of_last_user();
      std::vector<Turn> kept;
      for (size_t i = 0; i < turns_.size(); ++i) {
        if (turns_[i].role != Role::kDeveloper || i + 1 >= last_user) kept.push_back(std::move(turns_[i]));
      }
      turns_ = std::move(kept);
    }
    end_of_last_user_ = end_of_last_user();
  }
  // Whether an assistant's reasoning at `index` is written.
  [[nodiscard]] bool keeps_reasoning(size_t index) const {
    return request_.is_thinking && (!drops_ || index >= end_of_last_user_);
  }

  Status turn(size_t index) {
    const Turn& turn = turns_[index];
    if (index == 0) {
      if (request_.is_thinking || turn.role == Role::kSystem) writer_.control(markup::kSystem);
      if (request_.is_thinking) writer_.effort(request_.effort);
    }
    switch (turn.role) {
      case Role::kSystem:
        if (index > 0) writer_.control(markup::kSystem);
        described(turn, index);
        return {};
      case Role::kDeveloper:
        writer_.control(markup::kUser);
        described(turn, index);
        return {};
      case Role::kAssistant: return assistant(index);
      case Role::kLatestReminder:
        writer_.control(markup::kLatestReminder);
        writer_.content(request_.messages[turn.message], turn.message);
        return {};
      case Role::kUser:
      case Role::kTool:
        writer_.control(markup::kUser);
        writer_.user_blocks(request_.messages, turn.blocks);
        return {};
    }
    return {};
  }

  // A message that can carry tools and a schema. Those of the request go to the leading system message.
  void described(const Turn& turn, size_t index) {
    std::vector<std::string> schemas;
    if (index == 0) schemas = tools_.schemas;
    const bool is_written = turn.message != Turn::kNoMessage;
    if (is_written) {
      const ChatMessage& message = request_.messages[turn.message];
      writer_.content(message, turn.message);
      for (const ToolDefinition& tool : message.tools) schemas.push_back(tool_schema(tool, ChatEncoding::kModel));
    }
    if (!schemas.empty()) writer_.tools(schemas);
    if (is_written && request_.messages[turn.message].response_format) {
      writer_.response_format(JsonWriter().value(*request_.messages[turn.message].response_format).text());
    }
  }

  [[nodiscard]] bool is_open(const Turn& turn) const {
    const ChatMessage& message = request_.messages[turn.message];
    return message.without_eos || (turn.message + 1 == request_.messages.size() && is_last_open(request_));
  }

  Status assistant(size_t index) {
    const Turn& turn = turns_[index];
    const ChatMessage& message = request_.messages[turn.message];
    has_header_ = true;  // whether one was written or not, the turn stands in its place
    const bool follows_task = index > 0 && turns_[index - 1].task != Task::kNone;
    if (keeps_reasoning(index) && !follows_task) {
      writer_.literal(message.reasoning);
      const bool is_last = index + 1 == turns_.size();
      const bool stays_in_thought = is_last && request_.ending == PromptEnding::kContinue &&
                                    is_content_empty(message) && message.tool_calls.empty();
      if (stays_in_thought) return {};
      writer_.control(markup::kThinkEnd);
    }
    writer_.content(message, turn.message);
    if (!message.tool_calls.empty()) PS_RETURN_IF_ERROR(writer_.calls(message.tool_calls, turn.message));
    if (!is_open(turn)) {
      writer_.control(markup::kEos);
      has_header_ = false;
    }
    return {};
  }

  // What stands between a turn and the assistant's, or at the end of the prompt.
  void transition(size_t index) {
    const Turn& turn = turns_[index];
    const bool is_last = index + 1 == turns_.size();
    if (!is_last) {
      const Role next = turns_[index + 1].role;
      if (next != Role::kAssistant && next != Role::kLatestReminder) return;
    }
    if (turn.task != Task::kNone) {
      if (turn.task == Task::kAction) header(request_.is_thinking);
      writer_.control(std::string("<｜").append(task_name(turn.task)).append("｜>"));
      return;
    }
    if (asks(index)) {
      if (is_last && request_.ending == PromptEnding::kNoHeader) return;
      header(request_.is_thinking && (!drops_ || index + 1 >= end_of_last_user_));
    } else if (is_last && !has_header_ && (request_.ending == PromptEnding::kReply || tools_.is_call_forced)) {
      header(request_.is_thinking);
    }
  }

  void header(bool thinks) {
    writer_.header(thinks);
    has_header_ = true;
  }

  const ChatRequest& request_;
  const ShownTools& tools_;
  PromptWriter& writer_;
  std::vector<Turn> turns_;
  bool drops_ = false;
  size_t end_of_last_user_ = 0;
  bool has_header_ = false;  // the assistant's turn has begun
};

}  // namespace

Status encode_model(const ChatRequest& request, const ShownTools& tools, PromptWriter& writer) {
  return ModelEncoder(request, tools, writer).encode();
}

}  // namespace ps::text
