#include "text/prompt_writer.h"

#include <memory>

#include "base/json.h"
#include "text/markup.h"
#include "text/tool_call_memory.h"

namespace ps::text {
namespace {

constexpr std::string_view kToolsBegin =
    "## Tools\n\n"
    "You have access to a set of tools to help answer the user's question. You can invoke tools "
    "by writing a \"<｜DSML｜ calls>\" block like the following:\n\n"
    "<｜DSML｜ calls>\n"
    "<｜DSML｜ invoke name=\"$TOOL_NAME\">\n"
    "<｜DSML｜ parameter name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE</｜DSML｜ parameter>\n"
    "...\n"
    "</｜DSML｜ invoke>\n"
    "<｜DSML｜ invoke name=\"$TOOL_NAME2\">\n"
    "...\n"
    "</｜DSML｜ invoke>\n"
    "</｜DSML｜ calls>\n\n"
    "String parameters should be specified as is and set `string=\"true\"`. For all other types "
    "(numbers, booleans, arrays, objects), pass the value in JSON format and set `string=\"false\"`.\n\n"
    "If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning "
    "inside <think>...</think> BEFORE any tool calls or final response.\n\n"
    "Otherwise, output directly after </think> with tool calls or final response.\n\n"
    "### Available Tool Schemas\n\n";
constexpr std::string_view kToolsEnd =
    "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n";
constexpr std::string_view kFormatBegin =
    "\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n";

}  // namespace

PromptWriter::PromptWriter(const EncodeOptions& options) : options_(options) {
  if (options.starts_with_bos) control(markup::kBos);
}

PromptWriter& PromptWriter::literal(std::string_view text) {
  if (text.empty()) return *this;
  std::vector<TextRange>& ranges = prompt_.literal;
  const size_t begin = prompt_.text.size();
  prompt_.text += text;
  if (!ranges.empty() && ranges.back().end == begin) {
    ranges.back().end = prompt_.text.size();
  } else {
    ranges.push_back({begin, prompt_.text.size()});
  }
  return *this;
}

void PromptWriter::content(const ChatMessage& message, size_t message_index) {
  const std::string_view placeholder =
      options_.encoding == ChatEncoding::kRecipe ? markup::kRecipeImage : markup::kModelImage;
  for (size_t i = 0; i < message.content.size(); ++i) {
    if (i > 0) control("\n\n");
    const ContentPart& part = message.content[i];
    switch (part.kind) {
      case ContentPart::Kind::kText: literal(part.text); break;
      case ContentPart::Kind::kImage:
        prompt_.images.push_back({prompt_.text.size(), placeholder.size(), message_index, i});
        control(placeholder);
        break;
      case ContentPart::Kind::kUnsupported: control("[Unsupported ").literal(part.text).control("]"); break;
    }
  }
}

void PromptWriter::user_blocks(std::span<const ChatMessage> messages, std::span<const size_t> blocks) {
  for (size_t i = 0; i < blocks.size(); ++i) {
    const ChatMessage& message = messages[blocks[i]];
    const bool is_result = message.role == Role::kTool;
    if (i > 0) control("\n\n");
    if (is_result) control("<tool_result>");
    content(message, blocks[i]);
    if (is_result) control("</tool_result>");
  }
}

void PromptWriter::effort(const ReasoningEffort& effort) {
  control("Reasoning Effort: ").control(std::to_string(effort.number));
  control(" (range 1-100, the higher the value, the more thorough the reasoning)\n\n");
}

void PromptWriter::tools(std::span<const std::string> schemas) {
  control("\n\n").control(kToolsBegin);
  for (size_t i = 0; i < schemas.size(); ++i) control(i > 0 ? "\n" : "").literal(schemas[i]);
  control(kToolsEnd);
}

void PromptWriter::response_format(std::string_view schema) { control(kFormatBegin).literal(schema); }

void PromptWriter::header(bool thinks) {
  control(markup::kAssistant).control(thinks ? markup::kThinkBegin : markup::kThinkEnd);
}

Status PromptWriter::calls(std::span<const ToolCall> calls, size_t message_index) {
  if (options_.memory != nullptr) {
    if (const std::shared_ptr<const std::string> block = options_.memory->find(calls)) {
      remembered_block(*block);
      return {};
    }
  }
  control(markup::kCallsOpening);
  for (size_t i = 0; i < calls.size(); ++i) {
    if (i > 0) control("\n");
    const std::string path = calls[i].path.empty() ? "messages[" + std::to_string(message_index) + "].tool_calls[" +
                                                         std::to_string(i) + "].function.arguments"
                                                   : calls[i].path;
    if (Status status = call(calls[i], path); !status.ok()) return status;
  }
  control("\n").control(markup::kTagEnd).control(" calls>");
  return {};
}

// The model wrote the markers as control tokens and everything else as text.
void PromptWriter::remembered_block(std::string_view block) {
  for (size_t at = 0; at < block.size();) {
    const size_t marker = block.find(markup::kDsml, at);
    literal(block.substr(at, marker - at));
    if (marker == std::string_view::npos) return;
    control(markup::kDsml);
    at = marker + markup::kDsml.size();
  }
}

void PromptWriter::parameter(std::string_view name, bool is_string, std::string_view value) {
  control(markup::kTagBegin).control(" parameter name=\"").literal(name);
  control(is_string ? "\" string=\"true\">" : "\" string=\"false\">").literal(value);
  control(markup::kTagEnd).control(" parameter>");
}

Status PromptWriter::call(const ToolCall& call, const std::string& path) {
  control(markup::kTagBegin).control(" invoke name=\"").literal(call.name).control("\">\n");
  const auto arguments = JsonValue::parse(call.arguments);
  if (arguments.ok() && arguments.value().is_object()) {
    bool is_first = true;
    for (const auto& [name, value] : arguments.value().merged_members()) {
      if (!is_first) control("\n");
      is_first = false;
      parameter(name, value->is_string(), value->is_string() ? value->text() : JsonWriter().value(*value).text());
    }
  } else if (options_.encoding == ChatEncoding::kRecipe) {
    parameter("arguments", true, call.arguments);
  } else {
    return Status::invalid(path + ": expected the JSON text of an object");
  }
  control("\n").control(markup::kTagEnd).control(" invoke>");
  return {};
}

}  // namespace ps::text
