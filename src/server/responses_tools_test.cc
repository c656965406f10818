#include "server/responses_tools.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/responses_request.h"

namespace ps::server {
namespace {

using testing::ElementsAre;

Result<ResponsesTools> read(std::string_view tools) {
  Result<JsonValue> body = JsonValue::parse(R"({"tools": )" + std::string(tools) + "}");
  if (!body.ok()) return std::move(body).status();
  Result<ObjectReader> fields = ObjectReader::of(body.value());
  if (!fields.ok()) return std::move(fields).status();
  return read_responses_tools(fields.value());
}

std::string error_of(std::string_view tools) {
  const auto read_tools = read(tools);
  return read_tools.ok() ? "no error" : std::string(read_tools.status().message());
}

std::vector<std::string> shown(const ResponsesTools& tools) {
  std::vector<std::string> lines;
  for (const text::ToolDefinition& tool : tools.shown) lines.push_back(JsonWriter().value(tool.function).text());
  return lines;
}

TEST(ResponsesTools, ACustomToolIsAFunctionWithOneText) {
  const auto tools = read(R"([{"type": "custom", "name": "patch", "description": "Edit files", "format":
      {"type": "grammar", "syntax": "lark", "definition": "start: x"}}, {"type": "custom", "name": "say"}])");
  ASSERT_TRUE(tools.ok()) << tools.status().message();
  EXPECT_THAT(shown(tools.value()),
              ElementsAre(R"({"name": "patch", "description": "Edit files", "parameters": {"type": "object", )"
                          R"("properties": {"input": {"type": "string", "description": "Free text that follows this )"
                          R"(lark grammar:\nstart: x"}}, "required": ["input"]}})",
                          R"({"name": "say", "parameters": {"type": "object", "properties": {"input": {"type": )"
                          R"("string", "description": "Free text"}}, "required": ["input"]}})"));
  EXPECT_EQ(tools.value().find("patch"), (ClientTool{.name = "patch", .is_custom = true}));
}

TEST(ResponsesTools, ToolsOfANamespaceCarryItsName) {
  const auto tools = read(R"([{"type": "namespace", "name": "mcp__files", "description": "d", "tools": [
      {"type": "function", "name": "open", "parameters": {"type": "object"}}, {"type": "web_search"}]},
      {"type": "namespace", "name": "empty", "tools": []},
      {"type": "namespace", "name": "dash__", "tools": [{"type": "custom", "name": "c"}]},
      {"type": "function", "name": "open"}])");
  ASSERT_TRUE(tools.ok()) << tools.status().message();
  std::vector<std::string> names;
  for (const text::ToolDefinition& tool : tools.value().shown) names.push_back(tool.name);
  EXPECT_THAT(names, ElementsAre("mcp__files__open", "dash__c", "open"));
  EXPECT_THAT(tools.value().left_out, ElementsAre("web_search"));
  EXPECT_EQ(tools.value().find("mcp__files__open"), (ClientTool{.name = "open", .space = "mcp__files"}));
  EXPECT_EQ(tools.value().find("dash__c"), (ClientTool{.name = "c", .space = "dash__", .is_custom = true}));
  EXPECT_EQ(tools.value().find("open"), (ClientTool{.name = "open"}));
  EXPECT_EQ(tools.value().find("unheard_of"), (ClientTool{.name = "unheard_of"}));
  const Result<JsonValue> in_force = JsonValue::parse(tools.value().in_force);
  ASSERT_TRUE(in_force.ok());
  EXPECT_EQ(in_force.value().items().size(), 3u);
}

TEST(ResponsesTools, ErrorsNameTheField) {
  EXPECT_EQ(error_of(R"([{"name": "f"}])"), "tools[0].type: is required, a string");
  EXPECT_EQ(error_of(R"([{"type": "namespace", "name": "n", "tools": [{"type": "function"}]}])"),
            "tools[0].tools[0].name: is required, a string");
  EXPECT_EQ(error_of(R"([{"type": "custom", "name": "c", "format": {"type": "json"}}])"),
            "tools[0].format.type: \"json\" is not supported; legal values are text and grammar");
  EXPECT_EQ(error_of(R"([{"type": "namespace", "name": "a", "tools": [{"type": "function", "name": "b__c"}]},
                         {"type": "namespace", "name": "a__b", "tools": [{"type": "function", "name": "c"}]}])"),
            "tools[1].tools[0].name: another tool is \"a__b__c\" to the model too");
}

// Each tool of a namespace carries its name: a long one must not be multiplied.
TEST(ResponsesTools, TheNameOfANamespaceIsBounded) {
  const std::string space(100, 'n');
  const auto body = [&space](size_t length) {
    return R"([{"type": "namespace", "name": ")" + space + R"(", "tools": [{"type": "custom", "name": ")" +
           std::string(length, 't') + "\"}]}]";
  };
  EXPECT_EQ(error_of(body(28)), "no error");
  EXPECT_EQ(error_of(body(29)), "tools[0].tools[0].name: with its namespace it is longer than 128 bytes");
}

// Pitfall 24: a patch of any length flows while the model writes it, whatever the pieces.
TEST(CustomInput, GivesTheTextAtEveryCut) {
  const std::string start = "*** Begin Patch\n\"a\\b\"\t\x01 ü <｜DSML｜>\n";
  const std::string text = start + "\xF0\x9F\x98\x80\uFFFDx\uFFFD";
  std::string json = custom_arguments(start);
  json.insert(json.rfind('"'), R"(\uD83d\ude00\ud83dx\ude00)");  // a pair, and both halves alone
  for (size_t cut = 0; cut <= json.size(); ++cut) {
    CustomInput input;
    std::string streamed = input.take(std::string_view(json).substr(0, cut));
    streamed += input.take(std::string_view(json).substr(cut));
    EXPECT_EQ(streamed, text) << cut;
    EXPECT_EQ(input.finish(), text) << cut;
  }
  CustomInput bytes;
  std::string streamed;
  for (const char byte : json) {
    const std::string piece = bytes.take({&byte, 1});
    EXPECT_LE(piece.size(), 4u) << "more than a character";
    streamed += piece;
  }
  EXPECT_EQ(streamed, text);
}

TEST(CustomInput, KeepsWhatWasCutOffAndWhatHasAnotherForm) {
  CustomInput cut;
  EXPECT_EQ(cut.take(R"({"input": "half a te)"), "half a te");
  EXPECT_EQ(cut.finish(), "half a te");
  for (const std::string none : {"", "{", R"({"input": )", R"({"input": ")"}) {
    CustomInput input;
    EXPECT_EQ(input.take(none), "");
    EXPECT_EQ(input.finish(), "") << none;
  }
  for (const std::string other : {R"({"patch": "x"})", "{}", R"({"input": 3})"}) {
    CustomInput input;
    EXPECT_EQ(input.take(other), "");
    EXPECT_EQ(input.finish(), other);
  }
}

}  // namespace
}  // namespace ps::server
