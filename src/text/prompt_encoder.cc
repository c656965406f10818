#include "text/prompt_encoder.h"

#include <optional>
#include <utility>

#include "base/macros.h"
#include "text/chat_encoders.h"
#include "text/markup.h"

namespace ps::text {
namespace {

// Where the model goes on, from how the prompt ends.
ParserStart parser_start(const ChatRequest& request, const PromptWriter& writer) {
  if (writer.ends_with(markup::kCallsOpening)) return ParserStart::kToolCalls;
  if (!is_last_open(request)) {
    return writer.ends_with(markup::kThinkBegin) ? ParserStart::kReasoning : ParserStart::kContent;
  }
  const ChatMessage& last = request.messages.back();
  if (!is_content_empty(last)) return ParserStart::kContinuedContent;
  if (!last.tool_calls.empty() || writer.ends_with(markup::kThinkEnd)) return ParserStart::kContent;
  return last.reasoning.empty() ? ParserStart::kReasoning : ParserStart::kContinuedReasoning;
}

}  // namespace

Result<Prompt> encode_prompt(const ChatRequest& request, const EncodeOptions& options) {
  PS_TRY(ShownTools tools, check_tools(request, options.encoding));
  PS_RETURN_IF_ERROR(check_messages(request, options.encoding));
  PS_RETURN_IF_ERROR(check_response_format(request, options.encoding));

  PromptWriter writer(options);
  const bool is_recipe = options.encoding == ChatEncoding::kRecipe;
  PS_RETURN_IF_ERROR(is_recipe ? encode_recipe(request, tools, writer) : encode_model(request, tools, writer));
  if (tools.is_call_forced) writer.control(markup::kCallsOpening);

  Prompt& prompt = writer.prompt();
  prompt.parser.start = parser_start(request, writer);
  prompt.parser.parses_tool_calls = !tools.indices.empty();
  prompt.parser.is_json_mode = request.response_format.kind == ResponseFormat::Kind::kJsonObject;
  prompt.is_call_forced = tools.is_call_forced;
  prompt.tools = std::move(tools.indices);
  return std::move(prompt);
}

Result<std::vector<TokenId>> tokenize_prompt(const Prompt& prompt, const Tokenizer& tokenizer) {
  std::optional<TokenId> image = tokenizer.find_added(markup::kModelImage);
  if (!image) image = tokenizer.find_added(markup::kRecipeImage);
  if (!image && !prompt.images.empty()) {
    return Status::unsupported("the prompt has images, and the tokenizer has no image token");
  }
  std::vector<TokenId> ids;
  ids.reserve(prompt.text.size() / 3 + 8);
  const std::string_view text = prompt.text;
  size_t from = 0;
  for (const PromptImage& placeholder : prompt.images) {
    tokenizer.encode(text.substr(0, placeholder.offset), from, prompt.literal, ids);
    ids.push_back(*image);
    from = placeholder.offset + placeholder.length;
  }
  tokenizer.encode(text, from, prompt.literal, ids);
  return ids;
}

}  // namespace ps::text
