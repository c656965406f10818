#include "server/completions.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "server/completion_format.h"
#include "server/testing.h"
#include "server/tokens_api.h"

namespace ps::server {
namespace {

using test::byte_id;
using test::small_tokenizer;

constexpr int32_t kVocabulary = 512;

std::variant<CompletionCall, ApiError> parse(const std::string& text) {
  JsonValue body;
  if (auto error = parse_object(text, body)) return *error;
  return parse_completion(body, {small_tokenizer().get(), 1000, kVocabulary});
}

CompletionCall call_of(const std::string& text) {
  auto parsed = parse(text);
  if (const auto* error = std::get_if<ApiError>(&parsed)) {
    ADD_FAILURE() << text << ": " << error->message;
    return {};
  }
  return std::get<CompletionCall>(parsed);
}

// The refusal of `text` names `param` and says `words`.
void expect_refusal(const std::string& text, const std::string& param, const std::string& words) {
  const auto parsed = parse(text);
  const auto* error = std::get_if<ApiError>(&parsed);
  ASSERT_NE(error, nullptr) << text;
  EXPECT_EQ(error->status, 400) << text;
  EXPECT_EQ(error->param, param) << text;
  EXPECT_NE(error->message.find(words), std::string::npos) << text << ": " << error->message;
}

TEST(CompletionRequest, TakesEveryFormOfPrompt) {
  EXPECT_EQ(call_of(R"({"prompt":"ab"})").prompts.size(), 1u);
  EXPECT_EQ(call_of(R"({"prompt":["ab","c"]})").prompts.size(), 2u);
  EXPECT_EQ(call_of(R"({"prompt":[5,6]})").prompts.at(0).ids, (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(call_of(R"({"prompt":[[5,6],[7]]})").prompts.at(1).ids, (std::vector<int32_t>{7}));
}

TEST(CompletionRequest, PutsOneSentenceTokenInFrontOfText) {
  const int32_t bos = small_tokenizer()->bos();
  EXPECT_EQ(call_of(R"({"prompt":"a"})").prompts[0].ids, (std::vector<int32_t>{bos, byte_id('a')}));
  EXPECT_EQ(call_of(R"({"prompt":"a","add_special_tokens":false})").prompts[0].ids,
            (std::vector<int32_t>{byte_id('a')}));
  const std::string spelled(small_tokenizer()->token_bytes(bos));
  EXPECT_EQ(call_of(R"({"prompt":")" + spelled + R"(a"})").prompts[0].ids, (std::vector<int32_t>{bos, byte_id('a')}));
  EXPECT_EQ(call_of(R"({"prompt":""})").prompts[0].ids, (std::vector<int32_t>{bos}));
  EXPECT_EQ(call_of(R"({"prompt":[5]})").prompts[0].ids, (std::vector<int32_t>{5}));
}

TEST(CompletionRequest, RefusesBadPrompts) {
  expect_refusal("{}", "prompt", "missing");
  expect_refusal(R"({"prompt":[]})", "prompt", "array of token ids");
  expect_refusal(R"({"prompt":{}})", "prompt", "array of token ids");
  expect_refusal(R"({"prompt":["a",3]})", "prompt", "array of token ids");
  expect_refusal(R"({"prompt":[3,"a"]})", "prompt", "a string in the place of a token id");
  expect_refusal(R"({"prompt":[512]})", "prompt", "0 to 511");
  expect_refusal(R"({"prompt":[-1]})", "prompt", "0 to 511");
  expect_refusal(R"({"prompt":[1.5]})", "prompt", "1.5");
  expect_refusal(R"({"prompt":[[]]})", "prompt", "empty");
  expect_refusal(R"({"prompt":"","add_special_tokens":false})", "prompt", "empty");
}

TEST(CompletionRequest, RefusesMoreAnswersThanOneRequestMayHave) {
  std::string prompts = "[5]";
  for (int i = 1; i < 100; ++i) prompts += ",[5]";
  EXPECT_EQ(call_of("{\"prompt\":[" + prompts + "],\"n\":10}").prompts.size(), 100u);
  expect_refusal("{\"prompt\":[" + prompts + "],\"n\":11}", "prompt", "at most 1024 answers");
}

TEST(CompletionRequest, RefusesWhatItCannotDo) {
  expect_refusal(R"({"prompt":"a","suffix":"b"})", "suffix", "not supported");
  expect_refusal(R"({"prompt":"a","best_of":3})", "best_of", "n = 1");
  expect_refusal(R"({"prompt":"a","max_tokens":0})", "max_tokens", "echo");
  EXPECT_EQ(call_of(R"({"prompt":"a","best_of":2,"n":2,"suffix":null})").n, 2);
}

TEST(CompletionRequest, RefusesIllegalValuesWithTheLegalOnes) {
  const std::string start = R"({"prompt":"a",)";
  expect_refusal(start + R"("n":0})", "n", "1 to 128");
  expect_refusal(start + R"("temperature":2.1})", "temperature", "0 to 2");
  expect_refusal(start + R"("temperature":"hot"})", "temperature", "a string");
  expect_refusal(start + R"("top_p":0})", "top_p", "above 0");
  expect_refusal(start + R"("top_k":-2})", "top_k", "-1 to");
  expect_refusal(start + R"("min_p":1.5})", "min_p", "0 to 1");
  expect_refusal(start + R"("repetition_penalty":0})", "repetition_penalty", "0.01 to 10");
  expect_refusal(start + R"("frequency_penalty":3})", "frequency_penalty", "frequency_penalty must be in [-2, 2]");
  expect_refusal(start + R"("presence_penalty":-3})", "presence_penalty", "presence_penalty must be in [-2, 2]");
  expect_refusal(start + R"("seed":-1})", "seed", "seed must be in [0, 2^63)");
  expect_refusal(start + R"("seed":9223372036854775808})", "seed", "seed must be in [0, 2^63)");
  expect_refusal(start + R"("stop":[1]})", "stop", "array of strings");
  expect_refusal(start + R"("stop":["1","1","1","1","1","1","1","1","1","1","1","1","1","1","1","1","1"]})", "stop",
                 "stop has 17 strings; at most 16 are legal");
  expect_refusal(start + R"("stream":true,"stream_options":{"include_usage":1}})", "stream_options.include_usage",
                 "stream_options.include_usage is a number");
  expect_refusal(start + R"("stream_options":{}})", "stream_options",
                 "stream_options should be set along with stream = true");
  expect_refusal(start + R"("logit_bias":{"512":1}})", "logit_bias", "0 to 511");
  expect_refusal(start + R"("logit_bias":{"x":1}})", "logit_bias", "0 to 511");
  expect_refusal(start + R"("logit_bias":{"5":101}})", "logit_bias", "-100 to 100");
  expect_refusal(start + R"("logprobs":21})", "logprobs", "0 to 20");
  expect_refusal(start + R"("max_tokens":-1})", "max_tokens", "0 to");
  expect_refusal(start + R"("stop_token_ids":[-1]})", "stop_token_ids", "token ids");
}

TEST(CompletionRequest, RefusesBodiesThatAreNoObject) {
  expect_refusal("[1]", "", "an array");
  expect_refusal("{", "", "no JSON");
  expect_refusal("{\"prompt\":\"\xFF\"}", "", "no JSON");
  expect_refusal(std::string(100000, '['), "", "no JSON");
}

TEST(CompletionRequest, ReadsEverySamplingField) {
  const CompletionCall call =
      call_of(R"({"prompt":"a","n":2,"temperature":0.5,"top_p":0.9,"top_k":-1,"min_p":0.1,"seed":7,"stop":["x","y"],)"
              R"("stream":true,"stream_options":{"include_usage":true},"frequency_penalty":1,"presence_penalty":-1,)"
              R"("repetition_penalty":1.5,"logit_bias":{"5":-100},"stop_token_ids":[9],"ignore_eos":true,"echo":true,)"
              R"("logprobs":3,"max_tokens":4,"user":"ignored"})");
  const engine::SamplingOptions& sampling = call.sampling.sampling;
  EXPECT_EQ(sampling.temperature, 0.5);
  EXPECT_EQ(sampling.top_p, 0.9);
  EXPECT_EQ(sampling.top_k, 0);
  EXPECT_EQ(sampling.min_p, 0.1);
  EXPECT_EQ(sampling.frequency_penalty, 1);
  EXPECT_EQ(sampling.presence_penalty, -1);
  EXPECT_EQ(sampling.repetition_penalty, 1.5);
  EXPECT_EQ(sampling.logit_bias, (std::vector<std::pair<int32_t, float>>{{5, -100.0F}}));
  EXPECT_EQ(call.sampling.stops, (std::vector<std::string>{"x", "y"}));
  EXPECT_TRUE(call.sampling.includes_usage);

  const AnswerRequest answer = make_answer(call, small_tokenizer(), "m");
  ASSERT_EQ(answer.requests.size(), 2u);
  EXPECT_EQ(answer.requests[0].sampling.seed, 7u);
  EXPECT_EQ(answer.requests[1].sampling.seed, 8u);
  EXPECT_EQ(answer.requests[0].stop_ids, (std::vector<int32_t>{9}));
  EXPECT_TRUE(answer.requests[0].ignore_eos);
  EXPECT_TRUE(answer.requests[0].prompt_logprobs);
  EXPECT_EQ(answer.requests[0].top_logprobs, 3);
  EXPECT_TRUE(answer.is_stream);
}

TEST(CompletionRequest, DefaultLengthShrinksToWhatFits) {
  EXPECT_EQ(call_of(R"({"prompt":"a"})").max_tokens, 16);
  JsonValue body;
  ASSERT_FALSE(parse_object(R"({"prompt":[5,5,5,5,5]})", body));
  EXPECT_EQ(std::get<CompletionCall>(parse_completion(body, {small_tokenizer().get(), 12, kVocabulary})).max_tokens, 7);
}

engine::Event token(char byte, float logprob) {
  engine::Event event;
  event.token = byte_id(byte);
  event.logprob = logprob;
  event.prompt_tokens = 2;
  return event;
}

// The reply to `request` when its only sequence says "bc", in whole or as a stream.
std::string answer_text(const std::string& request, std::string* events) {
  AnswerRequest answer = make_answer(call_of(request), small_tokenizer(), "m");
  std::vector<Generation> generations;
  generations.emplace_back(*small_tokenizer(), answer.options[0]);
  const std::vector<float> prompt_logprobs = {-0.25F};
  const std::vector<engine::TokenLogprob> prompt_top = {{byte_id('z'), -0.125F}};
  std::vector<engine::Event> said = {token('b', -0.5F), token('c', -1)};
  if (answer.requests[0].max_tokens == 0) said = {engine::Event{.prompt_tokens = 2}};
  if (answer.requests[0].prompt_logprobs) {
    said[0].prompt_logprobs = prompt_logprobs;
    said[0].prompt_top = prompt_top;
  }
  said.back().finish = engine::FinishReason::kLength;
  for (const engine::Event& event : said) {
    TextDelta delta;
    generations[0].take(event, delta);
    answer.format->take(0, generations[0], std::move(delta), events);
  }
  if (events == nullptr) return answer.format->whole(generations).body;
  answer.format->close(generations, *events);
  return *events;
}

TEST(CompletionAnswer, HasOpenAisShape) {
  const auto json = JsonValue::parse(answer_text(R"({"prompt":"a"})", nullptr));
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(json.value().find("object")->text(), "text_completion");
  EXPECT_EQ(json.value().find("model")->text(), "m");
  const JsonValue& choice = json.value().find("choices")->items().at(0);
  EXPECT_EQ(choice.find("text")->text(), "bc");
  EXPECT_EQ(choice.find("finish_reason")->text(), "length");
  EXPECT_TRUE(choice.find("logprobs")->is_null());
  const JsonValue* usage = json.value().find("usage");
  EXPECT_EQ(usage->find("prompt_tokens")->text(), "2");
  EXPECT_EQ(usage->find("completion_tokens")->text(), "2");
  EXPECT_EQ(usage->find("total_tokens")->text(), "4");
}

TEST(CompletionAnswer, EchoesAPromptWithItsLogprobs) {
  const auto json = JsonValue::parse(answer_text(R"({"prompt":"a","echo":true,"logprobs":1})", nullptr));
  ASSERT_TRUE(json.ok());
  const JsonValue& choice = json.value().find("choices")->items().at(0);
  EXPECT_EQ(choice.find("text")->text(), "abc");
  const JsonValue* lists = choice.find("logprobs");
  JsonWriter written;
  written.value(*lists->find("token_logprobs"));
  EXPECT_EQ(written.text(), "[null, -0.25, -0.5, -1.0]");
  JsonWriter top;
  top.value(*lists->find("top_logprobs"));
  EXPECT_EQ(top.text(), R"([null, {"z": -0.125, "a": -0.25}, {"b": -0.5}, {"c": -1.0}])");
  JsonWriter offsets;
  offsets.value(*lists->find("text_offset"));
  EXPECT_EQ(offsets.text(), "[0, 0, 1, 2]");
}

// Parts of characters keep their own names: as text all of them would be one replacement character.
TEST(CompletionAnswer, TokensThatAreNoWholeCharactersAreNamedByTheirBytes) {
  AnswerRequest answer = make_answer(call_of(R"({"prompt":"a","logprobs":3})"), small_tokenizer(), "m");
  std::vector<Generation> generations;
  generations.emplace_back(*small_tokenizer(), answer.options[0]);
  const std::vector<engine::TokenLogprob> first = {
      {byte_id('\xE2'), -0.5F}, {byte_id('\xC3'), -1}, {byte_id('\x80'), -2}};
  const std::vector<engine::TokenLogprob> second = {{byte_id('\x80'), -0.25F}, {byte_id('b'), -3}};
  const std::vector<engine::TokenLogprob> third = {{byte_id('\xA6'), -0.125F}, {byte_id('\\'), -4}};
  std::vector<engine::Event> said = {token('\xE2', -0.5F), token('\x80', -0.25F), token('\xA6', -0.125F)};
  said[0].top = first;
  said[1].top = second;
  said[2].top = third;
  said[2].finish = engine::FinishReason::kLength;
  for (const engine::Event& event : said) {
    TextDelta delta;
    generations[0].take(event, delta);
    answer.format->take(0, generations[0], std::move(delta), nullptr);
  }
  const auto json = JsonValue::parse(answer.format->whole(generations).body);
  ASSERT_TRUE(json.ok());
  const JsonValue& choice = json.value().find("choices")->items().at(0);
  EXPECT_EQ(choice.find("text")->text(), "\u2026");
  const JsonValue* lists = choice.find("logprobs");
  const auto list = [&](const char* name) {
    return JsonWriter(JsonWriter::Style::kCompact).value(*lists->find(name)).text();
  };
  EXPECT_EQ(list("tokens"), R"(["bytes:\\xe2","bytes:\\x80","bytes:\\xa6"])");
  EXPECT_EQ(list("top_logprobs"), R"([{"bytes:\\xe2":-0.5,"bytes:\\xc3":-1.0,"bytes:\\x80":-2.0},)"
                                  R"({"bytes:\\x80":-0.25,"b":-3.0},{"bytes:\\xa6":-0.125,"\\":-4.0}])");
  EXPECT_EQ(list("text_offset"), "[0,1,1]");
}

TEST(CompletionAnswer, WithoutAnswerTokensOnlyThePromptIsShown) {
  const auto json = JsonValue::parse(answer_text(R"({"prompt":"a","echo":true,"logprobs":0,"max_tokens":0})", nullptr));
  ASSERT_TRUE(json.ok());
  const JsonValue& choice = json.value().find("choices")->items().at(0);
  EXPECT_EQ(choice.find("text")->text(), "a");
  EXPECT_EQ(choice.find("logprobs")->find("tokens")->items().size(), 2u);
  EXPECT_EQ(json.value().find("usage")->find("completion_tokens")->text(), "0");
}

TEST(CompletionAnswer, StreamsChunksAndUsage) {
  std::string events;
  answer_text(R"({"prompt":"a","stream":true,"stream_options":{"include_usage":true}})", &events);
  EXPECT_NE(events.find(R"("choices":[{"text":"b","index":0,"logprobs":null,"finish_reason":null}],"usage":null})"),
            std::string::npos)
      << events;
  EXPECT_NE(events.find(R"("finish_reason":"length")"), std::string::npos);
  EXPECT_NE(events.find(R"("choices":[],"usage":{"prompt_tokens":2)"), std::string::npos);
  EXPECT_TRUE(events.ends_with("\n\ndata: [DONE]\n\n"));
}

TEST(Tokens, ThereAndBack) {
  JsonValue body;
  ASSERT_FALSE(parse_object(R"({"prompt":"a","return_token_strs":true})", body));
  const auto reply = std::get<std::string>(tokenize_reply(body, *small_tokenizer(), 77));
  const auto json = JsonValue::parse(reply);
  ASSERT_TRUE(json.ok()) << reply;
  EXPECT_EQ(json.value().find("count")->text(), "2");
  EXPECT_EQ(json.value().find("max_model_len")->text(), "77");
  EXPECT_EQ(json.value().find("token_strs")->items().at(1).text(), "a");
  ASSERT_FALSE(parse_object(R"({"tokens":[)" + std::to_string(byte_id('a')) + "]}", body));
  EXPECT_EQ(std::get<std::string>(detokenize_reply(body, *small_tokenizer())), R"({"prompt":"a"})");
  ASSERT_FALSE(parse_object(R"({"tokens":[512]})", body));
  EXPECT_EQ(std::get<ApiError>(detokenize_reply(body, *small_tokenizer())).param, "tokens");
}

}  // namespace
}  // namespace ps::server
