#include "server/responses_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ps::server {
namespace {

using testing::ElementsAre;
using text::ContentPart;

Result<ResponsesRequest> read(std::string_view body, text::ChatDefaults defaults = {}) {
  Result<JsonValue> value = JsonValue::parse(body);
  if (!value.ok()) return std::move(value).status();
  return read_responses_request(value.value(), defaults);
}

std::string with(std::string_view more) { return R"({"model": "m", "input": "Hello")" + std::string(more) + "}"; }

std::string error_of(std::string_view body) {
  const auto request = read(body);
  return request.ok() ? "no error" : std::string(request.status().message());
}

std::vector<std::string> outline(const Result<ResponsesRequest>& request) {
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

TEST(ResponsesRequest, AStringIsAQuestion) {
  const auto request = read(with(R"(, "instructions": "Be brief", "max_output_tokens": 20, "temperature": 0.5,
      "stream": true, "store": true, "metadata": {"k": "v"}, "unknown": 1)"));
  EXPECT_THAT(outline(request), ElementsAre("system:Be brief", "user:Hello"));
  ASSERT_TRUE(request.ok());
  EXPECT_TRUE(request.value().is_stream);
  EXPECT_EQ(request.value().sampling.max_tokens, 20);
  EXPECT_EQ(request.value().sampling.temperature, 0.5);
  EXPECT_EQ(request.value().echo.instructions, R"("Be brief")");
  EXPECT_EQ(request.value().echo.metadata, R"({"k":"v"})");
  EXPECT_EQ(request.value().echo.max_output_tokens, "20");
}

TEST(ResponsesRequest, ItemsOfEveryKind) {
  const auto request = read(R"({"model": "m", "input": [
      {"role": "developer", "content": "D"},
      {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"},
                                                     {"type": "input_image", "image_url": "https://x"}]},
      {"type": "reasoning", "id": "rs", "summary": [], "content": [{"type": "reasoning_text", "text": "think"}]},
      {"type": "message", "role": "assistant", "id": "msg", "status": "completed",
       "content": [{"type": "output_text", "text": "I call", "annotations": []}]},
      {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
      {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{\"x\": 1}"},
      {"type": "function_call_output", "call_id": "c1", "output": "r1"},
      {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "r2"}]}]})");
  EXPECT_THAT(outline(request),
              ElementsAre("system:D", "user:a|image https://x",
                          R"(assistant[think]:I call call c1 f{} call c2 g{"x": 1})", "tool(c1):r1", "tool(c2):r2"));
}

TEST(ResponsesRequest, CallsOfCustomToolsAndOfNamespacesComeBack) {
  EXPECT_THAT(outline(read(R"({"model": "m", "input": [{"role": "user", "content": "q"},
      {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": "a\n\"b\"", "status": "completed"},
      {"type": "function_call", "call_id": "c2", "name": "open", "namespace": "mcp__x", "arguments": "{}"},
      {"type": "custom_tool_call_output", "call_id": "c1", "output": "done"},
      {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "r"}]}]})")),
              ElementsAre("user:q", R"(assistant: call c1 patch{"input": "a\n\"b\""} call c2 mcp__x__open{})",
                          "tool(c1):done", "tool(c2):r"));
  EXPECT_EQ(error_of(R"({"model": "m", "input": [{"type": "custom_tool_call", "call_id": "c", "name": "f"}]})"),
            "input[0].input: is required, a string");
  const std::string tools = R"(, "tools": [{"type": "custom", "name": "patch"}, {"type": "namespace", "name": "n",
      "tools": [{"type": "function", "name": "f"}]}], "tool_choice": )";
  EXPECT_EQ(read(with(tools + R"({"type": "custom", "name": "patch"})")).value().chat.tool_choice.name, "patch");
  EXPECT_EQ(read(with(tools + R"({"type": "function", "name": "f", "namespace": "n"})")).value().chat.tool_choice.name,
            "n__f");
}

TEST(ResponsesRequest, ThoughtsComeBackSealedToo) {
  EXPECT_THAT(outline(read(R"({"model": "m", "input": [{"role": "user", "content": "q"},
      {"type": "reasoning", "summary": [], "encrypted_content": "pagestate:plan"},
      {"role": "assistant", "content": "a"},
      {"role": "user", "content": "q"}, {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA of others"},
      {"role": "user", "content": "q"}]})")),
              ElementsAre("user:q", "assistant[plan]:a", "user:q", "assistant:", "user:q"));
}

TEST(ResponsesRequest, FunctionsStayAndOtherToolsAreLeftOut) {
  const auto request = read(with(R"(, "tools": [{"type": "web_search"}, {"type": "function", "name": "f",
      "description": "d", "parameters": {"type": "object", "required": []}, "strict": false}])"));
  ASSERT_TRUE(request.ok());
  EXPECT_THAT(request.value().tools.left_out, ElementsAre("web_search"));
  ASSERT_EQ(request.value().chat.tools.size(), 1u);
  EXPECT_EQ(JsonWriter().value(request.value().chat.tools[0].function).text(),
            R"({"name": "f", "description": "d", "parameters": {"type": "object", "required": []}, "strict": false})");
  EXPECT_EQ(request.value().tools.in_force,
            R"([{"type":"function","name":"f","description":"d","parameters":{"type":"object","required":[]},)"
            R"("strict":false}])");
}

TEST(ResponsesRequest, ReasoningAndForcedTools) {
  const auto chat = [](std::string_view more) {
    const auto request = read(with(more));
    if (!request.ok()) return std::string(request.status().message());
    return request.value().chat.is_thinking ? "on " + text::effort_name(request.value().chat.effort) : "off";
  };
  const std::string tool = R"(, "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}])";
  EXPECT_EQ(chat(""), "on high");
  EXPECT_EQ(chat(R"(, "reasoning": {"effort": "low", "summary": "auto"})"), "on low");
  EXPECT_EQ(chat(R"(, "reasoning": {"effort": "none"})"), "off");
  EXPECT_EQ(chat(R"(, "reasoning": {"effort": null})"), "on high");
  EXPECT_EQ(chat(tool + R"(, "tool_choice": "required")"), "off");
  EXPECT_EQ(chat(tool + R"(, "tool_choice": {"type": "function", "name": "f"})"), "off");
  EXPECT_EQ(chat(tool + R"(, "tool_choice": "none")"), "on high");
  EXPECT_EQ(chat(tool + R"(, "tool_choice": "required", "reasoning": {"effort": "high"})"),
            "tool_choice: reasoning does not go with a forced tool; legal values are auto and none, or "
            "reasoning.effort \"none\"");
  for (const std::string none : {"", R"(, "tools": [])", R"(, "tools": [{"type": "web_search"}])"}) {
    EXPECT_EQ(chat(none + R"(, "tool_choice": "required")"),
              "tool_choice: \"required\" needs at least one tool of type function or custom in tools");
    EXPECT_EQ(chat(none + R"(, "tool_choice": {"type": "function", "name": "f"})"),
              "tool_choice: a named tool needs at least one tool of type function or custom in tools");
  }
}

TEST(ResponsesRequest, JsonObjectAndNoSchema) {
  EXPECT_EQ(read(with(R"(, "text": {"format": {"type": "json_object"}})")).value().chat.response_format.kind,
            text::ResponseFormat::Kind::kJsonObject);
  EXPECT_EQ(error_of(with(R"(, "text": {"format": {"type": "json_schema", "schema": {}}})")),
            "text.format.type: \"json_schema\" is not supported; legal values are text and json_object");
}

TEST(ResponsesRequest, WhatNeedsAStoreIsRefused) {
  EXPECT_EQ(error_of(with(R"(, "previous_response_id": "resp_1")")),
            "previous_response_id: is not supported: nothing is stored; send the whole input");
  EXPECT_EQ(error_of(with(R"(, "background": true)")), "background: is not supported; the legal value is false");
  EXPECT_EQ(error_of(with(R"(, "truncation": "auto")")),
            "truncation: \"auto\" is not supported; the legal value is disabled");
  EXPECT_EQ(error_of(with(R"(, "previous_response_id": null, "background": false, "truncation": "disabled")")),
            "no error");
}

TEST(ResponsesRequest, Include) {
  EXPECT_TRUE(read(with(R"(, "include": ["reasoning.encrypted_content"])")).value().includes_encrypted_reasoning);
  EXPECT_FALSE(read(with("")).value().includes_encrypted_reasoning);
  EXPECT_EQ(error_of(with(R"(, "include": ["message.output_text.logprobs"])")),
            "include: \"message.output_text.logprobs\" is not supported; use /v1/chat/completions with logprobs");
}

TEST(ResponsesRequest, ErrorsNameTheField) {
  EXPECT_EQ(error_of(R"({"model": "m"})"), "input: is required, a string or an array of items");
  EXPECT_EQ(error_of(R"({"input": "x"})"), "model: is required, a string");
  EXPECT_EQ(error_of(R"({"model": "m", "input": [{"type": "item_reference", "id": "x"}]})"),
            "input[0].type: \"item_reference\" is not supported; legal values are message, reasoning, function_call, "
            "function_call_output, custom_tool_call and custom_tool_call_output");
  EXPECT_EQ(
      error_of(R"({"model": "m", "input": [{"role": "user", "content": [{"type": "input_file"}]}]})"),
      "input[0].content[0].type: \"input_file\" is not supported; legal values are input_text, output_text, text, "
      "refusal and input_image");
  EXPECT_EQ(error_of(R"({"model": "m", "input": [{"type": "function_call", "call_id": "c", "name": "f"}]})"),
            "input[0].arguments: is required, a string");
  EXPECT_EQ(error_of(with(R"(, "top_logprobs": 3)")), "top_logprobs: must be an integer from 0 to 0, found 3");
}

}  // namespace
}  // namespace ps::server
