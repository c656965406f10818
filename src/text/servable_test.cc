#include "text/servable.h"

#include <gtest/gtest.h>

#include "text/chat_completions_request.h"

namespace ps::text {
namespace {

std::string verdict(const std::string& content, const std::string& more = "") {
  const auto request = parse_chat_completions(R"({"model": "m", "thinking": {"type": "disabled"}, "messages": [)"
                                              R"({"role": "user", "content": )" +
                                              content + "}]" + more + "}");
  EXPECT_TRUE(request.ok()) << request.status().to_string();
  if (!request.ok()) return "";
  const auto prompt = encode_prompt(request.value().chat);
  EXPECT_TRUE(prompt.ok()) << prompt.status().to_string();
  if (!prompt.ok()) return "";
  const Status status = check_servable(request.value().chat, prompt.value());
  EXPECT_TRUE(status.ok() || status.code() == Code::kInvalid);
  return std::string(status.message());
}

TEST(Servable, ImagesAreRefusedUnderTheNameOfTheirPart) {
  EXPECT_EQ(verdict(R"("Hi")"), "");
  const std::string refusal = ": images are not supported by this version; only text is legal here";
  EXPECT_EQ(verdict(R"([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "u"}}])"),
            "messages[0].content[1]" + refusal);
  EXPECT_EQ(verdict(R"([{"type": "image", "image": "u"}])"), "messages[0].content[0]" + refusal);
  EXPECT_EQ(verdict(R"([{"type": "file", "file": {"file_data": "u"}}])"), "messages[0].content[0]" + refusal);
}

TEST(Servable, SchemasAreRefused) {
  EXPECT_EQ(verdict(R"("Hi")", R"(, "response_format": {"type": "json_schema", "json_schema": {}})"),
            "response_format: \"json_schema\" is not supported; legal values are text and json_object");
}

TEST(Servable, ARequiredCallNeedsATool) {
  const std::string refusal = "tool_choice: \"required\" needs at least one tool in tools";
  EXPECT_EQ(verdict(R"("Hi")", R"(, "tool_choice": "required")"), refusal);
  EXPECT_EQ(verdict(R"("Hi")", R"(, "tool_choice": "required", "tools": [])"), refusal);
  EXPECT_EQ(verdict(R"("Hi")", R"(, "tool_choice": "auto")"), "");
  EXPECT_EQ(verdict(R"("Hi")", R"(, "tool_choice": "none", "tools": [])"), "");
  EXPECT_EQ(verdict(R"("Hi")", R"(, "tool_choice": "required", "tools": [{"type": "function", "function": )"
                               R"({"name": "f"}}])"),
            "");
}

}  // namespace
}  // namespace ps::text
