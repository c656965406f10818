// Bodies of chat-completions requests: types, limits, their order, and the words of the API.
#include "text/chat_completions_request.h"

#include <string>

#include "text/test_data.h"

namespace ps::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr std::string_view kMessages = R"("model": "m", "messages": [{"role": "user", "content": "q"}])";

ChatCompletionsRequest parse(std::string_view fields) {
  auto request = parse_chat_completions(std::string("{").append(kMessages).append(fields).append("}"));
  EXPECT_TRUE(request.ok()) << request.status().to_string();
  return request.ok() ? std::move(request).value() : ChatCompletionsRequest();
}
std::string refusal(std::string_view fields) {
  const auto request = parse_chat_completions(std::string("{").append(kMessages).append(fields).append("}"));
  EXPECT_FALSE(request.ok()) << "accepted: " << fields;
  if (!request.ok()) {
    EXPECT_EQ(request.status().code(), Code::kInvalid);
  }
  return std::string(request.status().message());
}
std::string message_refusal(std::string_view message) {
  const auto request = parse_chat_completions(
      std::string(R"({"model": "m", "messages": [{"role": "user"}, )").append(message).append("]}"));
  EXPECT_FALSE(request.ok()) << "accepted: " << message;
  return std::string(request.status().message());
}

TEST(ChatCompletionsRequest, ReadsEveryField) {
  const ChatCompletionsRequest request = parse(R"(, "temperature": 0.5, "top_p": 0.9, "max_tokens": 7, "n": 1,
    "stop": ["a", ""], "seed": 9223372036854775807, "frequency_penalty": -2, "presence_penalty": 2.0,
    "logit_bias": {"5": -100, "129279": 1.5}, "logprobs": true, "top_logprobs": 20, "stream": true,
    "stream_options": {"include_usage": true}, "top_k": 3, "min_p": 0.1, "repetition_penalty": 1.1, "user": {"x": 1},
    "chat_template_kwargs": {"drop_thinking": false}, "reasoning_effort": "max", "ignore_eos": true)");
  EXPECT_EQ(request.model, "m");
  const SamplingFields& sampling = request.sampling;
  EXPECT_EQ(sampling.temperature, 0.5);
  EXPECT_EQ(sampling.top_p, 0.9);
  EXPECT_EQ(sampling.max_tokens, 7);
  EXPECT_THAT(sampling.stops, ElementsAre("a", ""));
  EXPECT_EQ(sampling.seed, INT64_MAX);
  EXPECT_EQ(sampling.frequency_penalty, -2);
  EXPECT_EQ(sampling.presence_penalty, 2);
  EXPECT_THAT(sampling.logit_bias, ElementsAre(Pair(5, -100.0F), Pair(129279, 1.5F)));
  EXPECT_TRUE(sampling.logprobs);
  EXPECT_EQ(sampling.top_logprobs, 20);
  EXPECT_EQ(sampling.top_k, 3);
  EXPECT_EQ(sampling.min_p, 0.1);
  EXPECT_EQ(sampling.repetition_penalty, 1.1);
  EXPECT_TRUE(sampling.ignore_eos);
  EXPECT_TRUE(request.is_stream);
  EXPECT_TRUE(request.includes_usage);
  EXPECT_FALSE(request.chat.drop_thinking);
  EXPECT_EQ(effort_name(request.chat.effort), "max");
  EXPECT_EQ(parse(R"(, "max_completion_tokens": 9)").sampling.max_tokens, 9);
  EXPECT_THAT(parse(R"(, "stop": "x")").sampling.stops, ElementsAre("x"));
}

TEST(ChatCompletionsRequest, NullIsAbsent) {
  const ChatCompletionsRequest request = parse(R"(, "temperature": null, "stop": null, "tools": null, "thinking": null,
    "tool_choice": null, "response_format": null, "stream_options": null, "seed": null, "logit_bias": null,
    "reasoning_effort": null, "n": null)");
  EXPECT_FALSE(request.sampling.temperature);
  EXPECT_TRUE(request.chat.is_thinking);
}

TEST(ChatCompletionsRequest, RefusesWithTheWordsOfTheApi) {
  EXPECT_EQ(refusal(R"(, "n": 2)"), "Invalid n value (currently only n = 1 is supported)");
  EXPECT_EQ(refusal(R"(, "frequency_penalty": 2.1)"), "frequency_penalty must be in [-2, 2]");
  EXPECT_EQ(refusal(R"(, "presence_penalty": -3)"), "presence_penalty must be in [-2, 2]");
  EXPECT_EQ(refusal(R"(, "seed": -1)"), "seed must be in [0, 2^63)");
  EXPECT_EQ(refusal(R"(, "seed": 9223372036854775808)"), "seed must be in [0, 2^63)");
  EXPECT_EQ(refusal(R"(, "temperature": 2.5)"), "temperature must be in [0, 2]");
  EXPECT_EQ(refusal(R"(, "top_p": 0)"), "top_p must be in (0, 1]");
  EXPECT_EQ(refusal(R"(, "max_tokens": 0)"), "max_tokens must be greater than 0");
  EXPECT_EQ(refusal(R"(, "max_completion_tokens": 0)"), "max_completion_tokens must be greater than 0");
  EXPECT_EQ(refusal(R"(, "max_tokens": 0, "max_completion_tokens": 0)"), "max_tokens must be greater than 0");
  EXPECT_EQ(refusal(R"(, "repetition_penalty": 0.009)"), "repetition_penalty must be in [0.01, 10]");
  EXPECT_EQ(refusal(R"(, "min_p": 2)"), "min_p must be in [0, 1]");
  EXPECT_EQ(refusal(R"(, "top_k": -1)"), "top_k must be in [0, 2^31)");
  EXPECT_EQ(refusal(R"(, "stream_options": {})"), "stream_options should be set along with stream = true");
  std::string stops = R"(, "stop": ["s")";
  for (int i = 0; i < 15; ++i) stops += ", \"s\"";
  EXPECT_EQ(parse(stops + "]").sampling.stops.size(), 16U);
  EXPECT_EQ(refusal(stops + ", \"s\"]"), "ChatCompletionStopSequences string array too long: 17");
}

TEST(ChatCompletionsRequest, TheFirstFailureWins) {
  const std::string stream = R"(, "stream_options": {"include_usage": true})";
  const std::string stops = R"(, "stop": ["","","","","","","","","","","","","","","","",""])" + stream;
  const std::string seed = R"(, "seed": -1)" + stops;
  const std::string temperature = R"(, "temperature": 3)" + seed;
  const std::string tokens = R"(, "max_tokens": -1)" + temperature;
  const std::string penalty = R"(, "presence_penalty": 3)" + tokens;
  EXPECT_THAT(refusal(R"(, "n": 0)" + penalty), HasSubstr("Invalid n value"));
  EXPECT_THAT(refusal(penalty), HasSubstr("presence_penalty"));
  EXPECT_THAT(refusal(tokens), HasSubstr("max_tokens"));
  EXPECT_THAT(refusal(temperature), HasSubstr("temperature"));
  EXPECT_THAT(refusal(seed), HasSubstr("seed"));
  EXPECT_THAT(refusal(stops), HasSubstr("too long: 17"));
  EXPECT_THAT(refusal(stream), HasSubstr("stream_options"));
}

TEST(ChatCompletionsRequest, NamesTheFieldAndWhatIsLegal) {
  EXPECT_EQ(refusal(R"(, "temperature": "hot")"), "temperature: expected a number, found a string");
  EXPECT_EQ(refusal(R"(, "stop": [1])"), "stop[0]: expected a string, found a number");
  EXPECT_EQ(refusal(R"(, "seed": 1.5)"), "seed: expected an integer, found a number");
  EXPECT_EQ(refusal(R"(, "logit_bias": {"x": 1})"), "logit_bias.x: the name must be a token id");
  EXPECT_EQ(refusal(R"(, "logit_bias": {"99999999999999999999": 1})"),
            "logit_bias.99999999999999999999: the name must be a token id");
  EXPECT_EQ(refusal(R"(, "logit_bias": {"1": 101})"), "logit_bias.1 must be in [-100, 100]");
  EXPECT_EQ(refusal(R"(, "top_logprobs": 3)"), "top_logprobs should be set along with logprobs = true");
  EXPECT_THAT(refusal(R"(, "reasoning_effort": "huge")"), HasSubstr("unknown value 'huge'; legal: none, minimal, low"));
  for (const std::string_view effort : {"0", "101", "true", "50.5", "1e2"}) {
    EXPECT_THAT(refusal(std::string(R"(, "reasoning_effort": )").append(effort)), HasSubstr("from 1 to 100")) << effort;
  }
  EXPECT_EQ(refusal(R"(, "thinking": {"type": "on"})"),
            "thinking.type: unknown value 'on'; legal: enabled, adaptive, disabled");
  EXPECT_THAT(refusal(R"(, "tool_choice": "any")"), HasSubstr("legal: none, auto, required"));
  EXPECT_THAT(refusal(R"(, "tool_choice": 5)"), HasSubstr("legal: none, auto, required"));
  EXPECT_THAT(refusal(R"(, "functions": [])"), HasSubstr("use tools"));
  EXPECT_EQ(refusal(R"(, "tools": [{"type": "function", "function": {}}])"), "tools[0].function.name: missing field");
  EXPECT_EQ(refusal(R"(, "response_format": {"type": "json_schema"})"), "response_format.json_schema: missing field");
  EXPECT_EQ(parse_chat_completions("{}").status().message(), "model: missing field");
  EXPECT_EQ(parse_chat_completions(R"({"model": "m"})").status().message(), "messages: missing field");
  EXPECT_EQ(parse_chat_completions("[]").status().message(), "expected an object, found an array");
  EXPECT_THAT(std::string(parse_chat_completions("{").status().message()), HasSubstr("JSON"));
}

TEST(ChatCompletionsRequest, NamesThePathInsideAMessage) {
  EXPECT_EQ(message_refusal(R"({"role": "boss", "content": ""})"),
            "messages[1].role: unknown role 'boss'; legal: system, developer (model encoding), user, assistant, tool, "
            "latest_reminder");
  EXPECT_EQ(message_refusal(R"({"content": ""})"), "messages[1].role: missing field");
  EXPECT_EQ(message_refusal(R"({"role": "user", "content": 5})"),
            "messages[1].content: expected a string or an array of parts, found a number");
  EXPECT_EQ(message_refusal(R"({"role": "user", "content": [{"type": "video"}]})"),
            "messages[1].content[0].type: unknown type 'video'; legal: text, image_url, image, file");
  EXPECT_EQ(message_refusal(R"({"role": "user", "content": [{"type": "text", "text": ""}, {"type": "file"}]})"),
            "messages[1].content[1]: file must have file_data");
  EXPECT_EQ(message_refusal(R"({"role": "user", "content": [{"type": "file", "file": {"file_id": "x"}}]})"),
            "messages[1].content[0]: file must have file_data");
  EXPECT_EQ(
      message_refusal(
          R"({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u", "detail": "ultra"}}]})"),
      "messages[1].content[0].image_url.detail: unknown value 'ultra'; legal: auto, low, high");
  EXPECT_EQ(message_refusal(R"({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 1}}]})"),
            "messages[1].tool_calls[0].function.arguments: expected a string with JSON text, or an object, found a "
            "number");
  EXPECT_THAT(message_refusal(R"({"role": "user", "content": "", "task": "dance"})"),
              HasSubstr("legal: action, query, authority, domain, title, read_url"));
}

TEST(ChatCompletionsRequest, AnExplicitSwitchBeatsTheEffortAndTheApisFieldsBeatTemplateArguments) {
  EXPECT_TRUE(parse(R"(, "thinking": {"type": "enabled"}, "reasoning_effort": "none")").chat.is_thinking);
  EXPECT_FALSE(parse(R"(, "thinking": {"type": "disabled"}, "reasoning_effort": "max")").chat.is_thinking);
  EXPECT_FALSE(parse(R"(, "thinking": {"type": "adaptive"}, "reasoning_effort": "none")").chat.is_thinking);
  EXPECT_TRUE(
      parse(R"(, "thinking": {"type": "enabled"}, "chat_template_kwargs": {"thinking": false})").chat.is_thinking);
  const ChatRequest both =
      parse(R"(, "reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "max"})").chat;
  EXPECT_EQ(effort_name(both.effort), "low");
  EXPECT_THAT(refusal(R"(, "chat_template_kwargs": {"thinking": true, "enable_thinking": false})"),
              HasSubstr("must not differ"));
  const std::string body = std::string("{").append(kMessages).append("}");
  EXPECT_FALSE(parse_chat_completions(body, {.is_thinking = false}).value().chat.is_thinking);
}

TEST(ChatCompletionsRequest, EffortNamesAreThoseOfTheRelease) {
  const auto number = [](std::string_view name) {
    return parse(std::string(R"(, "reasoning_effort": ")").append(name).append("\"")).chat.effort.number;
  };
  EXPECT_EQ(number("minimal"), 50);
  EXPECT_EQ(number("low"), 50);
  EXPECT_EQ(number("medium"), 75);
  EXPECT_EQ(number("high"), 75);
  EXPECT_EQ(number("xhigh"), 75);
  EXPECT_EQ(number("max"), 100);
  EXPECT_EQ(number("ultra"), 100);
  EXPECT_EQ(parse("").chat.effort.number, 75);
}

TEST(ChatCompletionsRequest, TheBodyOfAnErrorIsTheApis) {
  EXPECT_EQ(openai_error_body(Status::invalid("say \"x\"")),
            R"({"error":{"message":"say \"x\"","type":"invalid_request_error","param":null,)"
            R"("code":"invalid_request_error"}})");
  // A message may quote bytes of the request.
  const std::string quoted = openai_error_body(parse_chat_completions("{\"n\": \xff}").status());
  EXPECT_TRUE(JsonValue::parse(quoted).ok()) << quoted;
  EXPECT_TRUE(JsonValue::parse(openai_error_body(Status::invalid("\xff"))).ok());
  EXPECT_THAT(openai_error_body(Status::internal("x")), HasSubstr(R"("code":"internal_error")"));
}

TEST(ChatCompletionsRequest, DeepNestingIsRefused) {
  std::string schema;
  for (int i = 0; i < 100; ++i) schema += R"({"a": )";
  schema += "1" + std::string(100, '}');
  EXPECT_THAT(refusal(R"(, "metadata": )" + schema), HasSubstr("deeper than 64"));
}

}  // namespace
}  // namespace ps::text
