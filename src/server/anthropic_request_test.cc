#include "server/anthropic_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ps::server {
namespace {

using testing::ElementsAre;
using text::ContentPart;
using text::Role;

Result<AnthropicRequest> read(std::string_view body, AnthropicTask task = AnthropicTask::kMessage,
                              text::ChatDefaults defaults = {}) {
  Result<JsonValue> value = JsonValue::parse(body);
  if (!value.ok()) return std::move(value).status();
  return read_anthropic_request(value.value(), task, defaults);
}

// A body with one question and `more` fields.
std::string with(std::string_view more) {
  return R"({"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": "Hello"}])" + std::string(more) +
         "}";
}
std::string with_messages(std::string_view messages, std::string_view more = {}) {
  return R"({"model": "m", "max_tokens": 10, "messages": )" + std::string(messages) + std::string(more) + "}";
}

std::string error_of(std::string_view body) {
  const auto request = read(body);
  return request.ok() ? "no error" : std::string(request.status().message());
}

// "user:Hello|again", one line a message, with the parts of its content.
std::vector<std::string> outline(const Result<AnthropicRequest>& request) {
  if (!request.ok()) return {request.status().to_string()};
  std::vector<std::string> lines;
  for (const text::ChatMessage& message : request.value().chat.messages) {
    std::string line(text::role_name(message.role));
    if (!message.tool_call_id.empty()) line += '(' + message.tool_call_id + ')';
    if (!message.reasoning.empty()) line += '[' + message.reasoning + ']';
    line += ':';
    for (const ContentPart& part : message.content) {
      if (&part != &message.content.front()) line += '|';
      line += part.kind == ContentPart::Kind::kImage ? "image " + part.image_url : part.text;
    }
    for (const text::ToolCall& call : message.tool_calls) line += " call " + call.id + ' ' + call.name + call.arguments;
    lines.push_back(line);
  }
  return lines;
}

TEST(AnthropicRequest, APlainQuestion) {
  const auto request = read(with(R"(, "system": "Be brief", "temperature": 0.5, "top_p": 0.9, "top_k": 40,
      "stop_sequences": ["END"], "stream": true, "metadata": {"user_id": "u"}, "seed": 7)"));
  EXPECT_THAT(outline(request), ElementsAre("system:Be brief", "user:Hello"));
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request.value().model, "m");
  EXPECT_TRUE(request.value().is_stream);
  EXPECT_TRUE(request.value().chat.is_thinking);
  EXPECT_EQ(request.value().chat.ending, text::PromptEnding::kTurn);
  const text::SamplingFields& sampling = request.value().sampling;
  EXPECT_EQ(sampling.max_tokens, 10);
  EXPECT_EQ(sampling.temperature, 0.5);
  EXPECT_EQ(sampling.top_p, 0.9);
  EXPECT_EQ(sampling.top_k, 40);
  EXPECT_EQ(sampling.seed, 7);
  EXPECT_THAT(sampling.stops, ElementsAre("END"));
}

TEST(AnthropicRequest, BlocksOfEveryKind) {
  const auto request =
      read(with_messages(R"([
      {"role": "user", "content": [{"type": "text", "text": "Look", "cache_control": {"type": "ephemeral"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
        {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
        {"type": "document", "source": {"type": "text", "data": "d", "media_type": "text/plain"}}]},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "one", "signature": "s"},
        {"type": "thinking", "thinking": "two", "signature": "s"}, {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "I call"}, {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1.50}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [
        {"type": "text", "text": "r"}, {"type": "document", "source": {}}]}]}])",
                         R"(, "system": [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}])"));
  EXPECT_THAT(outline(request),
              ElementsAre("system:A|B",
                          "user:Look|image data:image/png;base64,AAAA|image https://x/y.png|[Unsupported Document]",
                          R"(assistant[one

two]:I call call t1 f{"a":1.5})",
                          "tool(t1):r|[Unsupported Document]"));
}

TEST(AnthropicRequest, ToolResultsComeFirstInTheirTurn) {
  const auto request = read(with_messages(R"([{"role": "user", "content": "q"},
      {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}},
                                        {"type": "tool_use", "id": "b", "name": "f"}]},
      {"role": "user", "content": [{"type": "text", "text": "note"}, {"type": "tool_result", "tool_use_id": "b"},
        {"type": "tool_result", "tool_use_id": "a", "content": "x", "is_error": true}]}])"));
  EXPECT_THAT(outline(request),
              ElementsAre("user:q", "assistant: call a f{} call b f{}", "tool(b):", "tool(a):x", "user:note"));
}

TEST(AnthropicRequest, NeighbouringTurnsOfTheAssistantAreOne) {
  const auto request = read(with_messages(R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"},
      {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "r"}]}])"));
  EXPECT_THAT(outline(request), ElementsAre("user:q", "assistant:a call t f{}", "tool(t):r"));
}

TEST(AnthropicRequest, AnAnswerThatHasBegunIsContinuedWithoutThoughts) {
  const auto request =
      read(with_messages(R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "The answer is"}])"));
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request.value().chat.ending, text::PromptEnding::kContinue);
  EXPECT_FALSE(request.value().chat.is_thinking);
}

TEST(AnthropicRequest, ThinkingAndEffort) {
  const auto chat = [](std::string_view more, bool is_default = true) {
    const auto request = read(with(more), AnthropicTask::kMessage, {.is_thinking = is_default});
    if (!request.ok()) return std::string(request.status().message());
    return request.value().chat.is_thinking ? "on " + text::effort_name(request.value().chat.effort) : "off";
  };
  EXPECT_EQ(chat(""), "on high");
  EXPECT_EQ(chat("", false), "off");
  EXPECT_EQ(chat(R"(, "thinking": {"type": "enabled", "budget_tokens": 1024})", false), "on high");
  EXPECT_EQ(chat(R"(, "thinking": {"type": "adaptive"})", false), "on high");
  EXPECT_EQ(chat(R"(, "thinking": {"type": "disabled"})"), "off");
  EXPECT_EQ(chat(R"(, "output_config": {"effort": "low"})"), "on low");
  EXPECT_EQ(chat(R"(, "output_config": {"effort": "max"}, "thinking": {"type": "adaptive"})"), "on max");
  EXPECT_EQ(chat(R"(, "thinking": {"type": "enabled", "budget_tokens": 0})"),
            "thinking.budget_tokens: must be an integer of at least 1, found 0");
  EXPECT_EQ(chat(R"(, "thinking": {"type": "on"})"),
            "thinking.type: \"on\" is not supported; legal values are enabled, adaptive and disabled");
}

TEST(AnthropicRequest, ToolsBecomeFunctionsAndKeepTheirSchema) {
  // An empty "required" stays (hermes-agent#95524).
  const auto request = read(with(R"(, "tools": [{"name": "f", "description": "d", "input_schema":
      {"type": "object", "properties": {"x": {"type": "number", "default": 1e2}}, "required": []}},
      {"type": "custom", "name": "g", "input_schema": {"type": "object"}}])"));
  ASSERT_TRUE(request.ok()) << request.status().message();
  ASSERT_EQ(request.value().chat.tools.size(), 2u);
  EXPECT_EQ(JsonWriter().value(request.value().chat.tools[0].function).text(),
            R"({"name": "f", "description": "d", "parameters": {"type": "object", "properties": )"
            R"({"x": {"type": "number", "default": 100.0}}, "required": []}})");
  EXPECT_EQ(JsonWriter().value(request.value().chat.tools[1].function).text(),
            R"({"name": "g", "parameters": {"type": "object"}})");
}

TEST(AnthropicRequest, ToolChoice) {
  using Kind = text::ToolChoice::Kind;
  const std::string tools = R"(, "tools": [{"name": "f", "input_schema": {"type": "object"}}], "tool_choice": )";
  const auto choice = [&](std::string_view text) { return read(with(tools + std::string(text))).value(); };
  EXPECT_EQ(choice(R"({"type": "auto"})").chat.tool_choice.kind, Kind::kAuto);
  EXPECT_TRUE(choice(R"({"type": "auto"})").chat.is_thinking);
  EXPECT_EQ(choice(R"({"type": "none"})").chat.tool_choice.kind, Kind::kNone);
  EXPECT_EQ(choice(R"({"type": "any"})").chat.tool_choice.kind, Kind::kRequired);
  EXPECT_FALSE(choice(R"({"type": "any"})").chat.is_thinking);
  EXPECT_EQ(choice(R"({"type": "tool", "name": "f"})").chat.tool_choice.name, "f");
  EXPECT_TRUE(choice(R"({"type": "any"})").allows_parallel_calls);
  EXPECT_FALSE(choice(R"({"type": "any", "disable_parallel_tool_use": true})").allows_parallel_calls);
  EXPECT_EQ(error_of(with(tools + R"({"type": "any"}, "thinking": {"type": "enabled"})")),
            "tool_choice: thinking does not go with a forced tool; legal values are auto and none");
  EXPECT_EQ(error_of(with(tools + R"({"type": "tool"})")), "tool_choice.name: is required, a string");
  for (const std::string none : {"", R"(, "tools": [])"}) {
    EXPECT_EQ(error_of(with(none + R"(, "tool_choice": {"type": "any"})")),
              "tool_choice.type: \"any\" needs at least one tool in tools");
    EXPECT_EQ(error_of(with(none + R"(, "tool_choice": {"type": "tool", "name": "f"})")),
              "tool_choice.type: \"tool\" needs at least one tool in tools");
  }
}

// A short reference must not become a long schema each time.
TEST(AnthropicRequest, ASchemaIsShownOnceHoweverOftenAToolIsNamed) {
  const std::string tools = R"(, "tools": [{"name": "f", "input_schema": {"type": "object"}},
      {"name": "late", "input_schema": {"type": "object"}, "defer_loading": true}])";
  const std::string reference = R"({"type": "tool_reference", "tool_name": "late"})";
  EXPECT_THAT(outline(read(with_messages(R"([{"role": "user", "content": "q"},
      {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [)" +
                                             reference + ", " + reference + R"(]}]}])",
                                         tools))),
              ElementsAre("user:q", "assistant: call t f{}",
                          R"(tool(t):{"name": "late", "parameters": {"type": "object"}}|)"
                          "This tool is described above: late"));
  EXPECT_EQ(error_of(with_messages(R"([{"role": "user", "content": "q"}])",
                                   R"(, "tools": [{"name": "f", "input_schema": {"type": "object"}},
      {"name": "f", "input_schema": {"type": "object"}, "defer_loading": true}])")),
            "Tool names must be unique");
}

// A client with many tools defers them, and sends the names of those that its own search finds.
TEST(AnthropicRequest, ADeferredToolIsShownWhereItIsReferredTo) {
  const std::string tools = R"(, "tools": [{"name": "search", "input_schema": {"type": "object"}},
      {"name": "late", "description": "d", "input_schema": {"type": "object", "required": []},
       "defer_loading": true}])";
  const std::string turns = R"([{"role": "user", "content": "q"},
      {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "search", "input": {}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t",
                                    "content": [{"type": "tool_reference", "tool_name": "late"}]}]}])";
  const auto request = read(with_messages(turns, tools));
  EXPECT_THAT(outline(request),
              ElementsAre("user:q", "assistant: call t search{}",
                          R"(tool(t):{"name": "late", "description": "d", "parameters": {"type": "object", )"
                          R"("required": []}})"));
  ASSERT_TRUE(request.ok());
  ASSERT_EQ(request.value().chat.tools.size(), 1u);
  EXPECT_EQ(request.value().chat.tools[0].name, "search");
  EXPECT_EQ(error_of(with_messages(turns)),
            "messages[2].content[0].content[0].tool_name: \"late\" is not among the tools");
  EXPECT_EQ(error_of(with(R"(, "tools": [{"name": "f", "input_schema": {"type": "object"}, "defer_loading": true}])")),
            "tools: at least one must not have defer_loading");
}

TEST(AnthropicRequest, ToolsMayComeAndGoInTheMiddle) {
  const std::string tools = R"(, "tools": [{"name": "f", "input_schema": {"type": "object"}},
      {"name": "late", "input_schema": {"type": "object"}, "defer_loading": true}])";
  EXPECT_THAT(outline(read(with_messages(R"([{"role": "user", "content": "q"}, {"role": "system", "content": [
      {"type": "text", "text": "Now:"},
      {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "f"}},
      {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "late"}},
      {"type": "tool_addition", "tool": {"type": "tool_definition", "definition":
          {"name": "new", "input_schema": {"type": "object"}}}}]}])",
                                         tools))),
              ElementsAre("user:q",
                          "system:Now:|This tool is no longer available: f|This tool is available from here on:\n"
                          R"({"name": "late", "parameters": {"type": "object"}})"
                          "|This tool is available from here on:\n"
                          R"({"name": "new", "parameters": {"type": "object"}})"));
  EXPECT_EQ(error_of(with_messages(R"([{"role": "user", "content": "q"},
      {"role": "system", "content": [{"type": "tool_addition", "tool": {"type": "tool_reference", "name": "g"}}]}])")),
            "messages[1].content[0].tool.name: \"g\" is not among the tools");
  EXPECT_EQ(error_of(with_messages(R"([{"role": "user", "content": "q"},
      {"role": "system", "content": [{"type": "tool_addition", "tool": {"type": "tool_definition", "definition":
          {"name": "new", "input_schema": {"type": "object"}}}}]}])")),
            "messages[1].content[0].type: \"tool_addition\" needs at least one tool in tools");
  EXPECT_EQ(error_of(with_messages(R"([{"role": "system", "content": [{"type": "tool_result"}]}])")),
            "messages[0].content[0].type: \"tool_result\" is not supported; legal values are text, tool_addition and "
            "tool_removal");
}

// A line that changes with every request would defeat the prefix cache of a coding agent's long prompt.
TEST(AnthropicRequest, TheBillingLineOfClaudeCodeIsNotShownToTheModel) {
  EXPECT_THAT(outline(read(with(R"(, "system": [{"type": "text", "text": "x-anthropic-billing-header: cch=1;"},
                                               {"type": "text", "text": "You code."}])"))),
              ElementsAre("system:You code.", "user:Hello"));
  EXPECT_THAT(outline(read(with(R"(, "system": "x-anthropic-billing-header: cch=1;\nYou code.")"))),
              ElementsAre("system:You code.", "user:Hello"));
}

TEST(AnthropicRequest, CountingNeedsNoSampling) {
  const std::string body = R"({"model": "m", "messages": [{"role": "user", "content": "Hello"}], "temperature": 9})";
  EXPECT_TRUE(read(body, AnthropicTask::kCountTokens).ok());
  EXPECT_EQ(error_of(body), "max_tokens: is required, an integer of at least 1");
}

TEST(AnthropicRequest, ErrorsNameTheField) {
  EXPECT_EQ(error_of("[]"), "the request body: expected an object, found an array");
  EXPECT_EQ(error_of(R"({"max_tokens": 1})"), "model: is required, a string");
  EXPECT_EQ(error_of(R"({"model": "m", "max_tokens": 1})"), "messages: is required, an array");
  EXPECT_EQ(error_of(with_messages("[]")), "messages: at least one message is required");
  EXPECT_EQ(error_of(with_messages(R"([{"role": "tool", "content": "x"}])")),
            "messages[0].role: \"tool\" is not supported; legal values are user, assistant and system");
  EXPECT_EQ(error_of(with_messages(R"([{"role": "user", "content": 3}])")),
            "messages[0].content: expected a string or an array of blocks, found a number");
  EXPECT_EQ(error_of(with_messages(R"([{"role": "user", "content": []}])")),
            "messages[0].content: at least one block is required");
  EXPECT_EQ(error_of(with_messages(R"([{"role": "user", "content": [{"type": "text"}]}])")),
            "messages[0].content[0].text: is required, a string");
  EXPECT_EQ(
      error_of(with_messages(R"([{"role": "user", "content": [{"type": "image", "source": {"type": "file"}}]}])")),
      "messages[0].content[0].source.type: \"file\" is not supported; legal values are base64 and url");
  EXPECT_EQ(error_of(with_messages(R"([{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t",
                                       "content": [{"type": "search_result"}]}]}])")),
            "messages[0].content[0].content[0].type: \"search_result\" is not supported here; legal values are text, "
            "image, document and tool_reference");
  EXPECT_EQ(error_of(with(R"(, "max_tokens": 0)")), "max_tokens: must be an integer of at least 1, found 0");
  EXPECT_EQ(error_of(with(R"(, "temperature": 2.5)")),
            "temperature: must be a number of at least 0.0 and at most 2.0, found 2.5");
  EXPECT_EQ(error_of(with(R"(, "top_p": 0)")), "top_p: must be a number above 0.0 and at most 1.0, found 0");
  EXPECT_EQ(
      error_of(with(R"(, "stop_sequences": ["1","2","3","4","5","6","7","8","9","0","1","2","3","4","5","6","7"])")),
      "stop_sequences: at most 16 strings are allowed, found 17");
  EXPECT_EQ(error_of(with(R"(, "tools": [{"type": "web_search_20250305", "name": "web_search"}])")),
            "tools[0].type: \"web_search_20250305\" runs on Anthropic's servers or has no schema of its own; the legal "
            "value is custom");
  EXPECT_EQ(error_of(with(R"(, "mcp_servers": [{}])")), "mcp_servers: is not supported");
  EXPECT_EQ(error_of(with(R"(, "output_config": {"format": {"type": "json_schema"}})")),
            "output_config.format: structured output is not supported");
}

}  // namespace
}  // namespace ps::server
