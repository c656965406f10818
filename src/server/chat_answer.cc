#include "server/chat_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/macros.h"
#include "server/chat_format.h"
#include "server/openai_json.h"
#include "server/sampling_fields.h"
#include "text/servable.h"

namespace ps::server {

namespace {

Result<engine::SamplingOptions> sampling_options(const text::SamplingFields& fields, int32_t vocabulary) {
  engine::SamplingOptions options;
  options.temperature = fields.temperature.value_or(1);
  options.top_p = fields.top_p.value_or(1);
  options.top_k = static_cast<int32_t>(fields.top_k.value_or(0));
  options.min_p = fields.min_p.value_or(0);
  options.repetition_penalty = fields.repetition_penalty.value_or(1);
  options.frequency_penalty = fields.frequency_penalty;
  options.presence_penalty = fields.presence_penalty;
  options.logit_bias = fields.logit_bias;
  for (const auto& [id, bias] : options.logit_bias) {
    if (id < vocabulary) continue;
    return Status::invalid(
        fmt::format("logit_bias has the token id \"{}\"; legal values are 0 to {}", id, vocabulary - 1));
  }
  PS_RETURN_IF_ERROR(engine::check(options));
  return options;
}

struct TokenizedPrompt {
  text::ParserOptions parser;
  std::vector<int32_t> ids;
};

Result<TokenizedPrompt> tokenize(ChatContext& context, const text::ChatRequest& chat) {
  PS_TRY(text::Prompt prompt,
         text::encode_prompt(chat, {.encoding = context.options.encoding, .memory = &context.memory}));
  PS_RETURN_IF_ERROR(text::check_servable(chat, prompt));
  TokenizedPrompt tokenized{.parser = std::move(prompt.parser)};
  PS_TRY(tokenized.ids, text::tokenize_prompt(prompt, *context.api.tokenizer));
  return tokenized;
}

}  // namespace

Result<AnswerRequest> make_chat_answer(ChatContext& context, ChatCall call) {
  const text::SamplingFields& fields = call.sampling;
  SamplingFields seeds;
  PS_TRY(seeds.sampling, sampling_options(fields, context.api.model.vocabulary));
  seeds.has_seed = fields.seed.has_value();
  seeds.sampling.seed = static_cast<uint64_t>(fields.seed.value_or(0));
  PS_TRY(TokenizedPrompt prompt, tokenize(context, call.chat));

  engine::Request request;
  request.sampling = seeds.sampling;
  const int64_t room = context.api.model.max_context - std::ssize(prompt.ids);
  request.max_tokens = fields.max_tokens.value_or(std::max<int64_t>(room, 1));
  request.prompt = std::move(prompt.ids);
  request.ignore_eos = fields.ignore_eos;
  request.top_logprobs = fields.logprobs ? fields.top_logprobs : 0;

  AnswerRequest answer;
  answer.is_stream = call.is_stream;
  for (size_t i = 0; i < call.answers; ++i) {
    request.sampling.seed = sequence_seed(seeds, i);
    answer.requests.push_back(request);
    // Stop strings end the answer only, not the thought: they are the parser's.
    answer.options.push_back({.stops = {}, .keeps_details = fields.logprobs});
  }
  ChatFormatOptions options{.parser = std::move(prompt.parser),
                            .choices = call.answers,
                            .is_stream = call.is_stream,
                            .allows_parallel_calls = call.allows_parallel_calls,
                            .max_tokens = request.max_tokens,
                            .max_tokens_name = fields.max_tokens ? fields.max_tokens_name : "",
                            .error = call.error};
  if (call.length_problem != nullptr) {
    options.length_problem =
        call.length_problem(std::ssize(request.prompt), request.max_tokens, context.api.model.max_context);
  }
  options.parser.stops = fields.stops;
  ReplyHead head{make_random_id(), unix_seconds(), std::move(call.model), context.api.model.fingerprint,
                 call.chat.is_thinking};
  answer.format = std::make_unique<ChatFormat>(std::move(options), call.make_reply(std::move(head)),
                                               context.api.tokenizer, context.memory);
  return answer;
}

Result<int64_t> count_prompt_tokens(ChatContext& context, const text::ChatRequest& chat) {
  PS_TRY(const TokenizedPrompt prompt, tokenize(context, chat));
  return std::ssize(prompt.ids);
}

}  // namespace ps::server
