#include "server/completions.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "server/completion_format.h"
#include "text/chat_completions_request.h"

namespace ps::server {
namespace {

constexpr int64_t kDefaultMaxTokens = 16;
constexpr int64_t kMaxSequences = 1024;  // of one request
constexpr const char* kPromptKinds =
    "prompt must be a string, an array of strings, an array of token ids, or an array of arrays of token ids";

using Prompt = CompletionCall::Prompt;

bool read_ids(RequestFields& fields, const JsonValue& list, const CompletionLimits& limits, Prompt& prompt) {
  for (const JsonValue& item : list.items()) {
    const auto id = item.is_number() ? item.integer() : Result<int64_t>(Status::invalid("no number"));
    if (!id.ok() || id.value() < 0 || id.value() >= limits.vocabulary) {
      fields.fail(
          ApiError::invalid(fmt::format("prompt has {} in the place of a token id; legal values are 0 to {}",
                                        item.is_number() ? item.text() : item.kind_name(), limits.vocabulary - 1),
                            "prompt"));
      return false;
    }
    prompt.ids.push_back(static_cast<int32_t>(id.value()));
  }
  if (!prompt.ids.empty()) return true;
  fields.fail(ApiError::invalid("prompt is empty; at least one token is needed", "prompt"));
  return false;
}

Prompt encode(const std::string& text, bool adds_special, const text::Tokenizer& tokenizer) {
  Prompt prompt;
  prompt.text = text;
  const std::string_view bos = tokenizer.token_bytes(tokenizer.bos());
  prompt.has_bos_added = adds_special && !text.starts_with(bos);
  if (prompt.has_bos_added) prompt.ids.push_back(tokenizer.bos());
  tokenizer.encode(text, text::AddedTokens::kParse, prompt.ids);
  return prompt;
}

void read_prompts(RequestFields& fields, const CompletionLimits& limits, CompletionCall& call) {
  const bool adds_special = fields.boolean("add_special_tokens", true);
  const JsonValue* value = fields.find("prompt");
  if (value == nullptr) return fields.fail(ApiError::invalid("prompt is missing", "prompt"));
  const auto add_text = [&](const std::string& text) {
    Prompt prompt = encode(text, adds_special, *limits.tokenizer);
    if (prompt.ids.empty())
      return fields.fail(ApiError::invalid("prompt is empty; at least one token is needed", "prompt"));
    call.prompts.push_back(std::move(prompt));
  };
  const auto add_ids = [&](const JsonValue& list) {
    Prompt prompt;
    if (!read_ids(fields, list, limits, prompt)) return;
    if (call.echo) prompt.text = limits.tokenizer->decode(prompt.ids);
    call.prompts.push_back(std::move(prompt));
  };
  if (value->is_string()) return add_text(value->text());
  if (!value->is_array() || value->items().empty()) return fields.fail(ApiError::invalid(kPromptKinds, "prompt"));
  if (value->items().front().is_number()) return add_ids(*value);
  if (std::ssize(value->items()) * call.n > kMaxSequences) {
    return fields.fail(
        ApiError::invalid(fmt::format("prompt has {} prompts with n = {}; at most {} answers fit into one "
                                      "request",
                                      value->items().size(), call.n, kMaxSequences),
                          "prompt"));
  }
  for (const JsonValue& item : value->items()) {
    if (item.is_string()) {
      add_text(item.text());
    } else if (item.is_array()) {
      add_ids(item);
    } else {
      fields.fail(ApiError::invalid(kPromptKinds, "prompt"));
    }
    if (fields.error()) return;
  }
}

// logprobs is a number here; vLLM's clients also send true and false.
int32_t read_logprobs(RequestFields& fields) {
  const JsonValue* value = fields.find("logprobs");
  if (value == nullptr) return -1;
  if (value->is_bool()) return value->boolean() ? 1 : -1;
  return static_cast<int32_t>(fields.integer("logprobs", -1, 0, engine::kMaxTopLogprobs));
}

void refuse_unsupported(RequestFields& fields, int64_t n) {
  if (const JsonValue* suffix = fields.find("suffix"); suffix != nullptr) {
    const bool is_empty = suffix->is_string() && suffix->text().empty();
    if (!is_empty) {
      fields.fail(ApiError::invalid("suffix is not supported: this model has no fill-in-the-middle form; leave it out",
                                    "suffix"));
    }
  }
  if (fields.integer("best_of", n, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()) != n) {
    fields.fail(
        ApiError::invalid(fmt::format("best_of is not supported; leave it out or set it to n = {}", n), "best_of"));
  }
}

}  // namespace

std::variant<CompletionCall, ApiError> parse_completion(const JsonValue& body, const CompletionLimits& limits) {
  RequestFields fields(body);
  CompletionCall call;
  call.n = fields.integer("n", 1, 1, text::kMostAnswers);
  refuse_unsupported(fields, call.n);
  call.echo = fields.boolean("echo", false);
  call.logprobs = read_logprobs(fields);
  const bool has_max_tokens = fields.find("max_tokens") != nullptr;
  call.max_tokens = fields.integer("max_tokens", kDefaultMaxTokens, 0, std::numeric_limits<int32_t>::max());
  if (call.max_tokens == 0 && !call.echo) {
    fields.fail(ApiError::invalid("max_tokens is 0; without echo it must be 1 or more", "max_tokens"));
  }
  call.sampling = read_sampling(fields, limits.vocabulary);
  if (!fields.error()) read_prompts(fields, limits, call);
  if (fields.error()) return *fields.error();
  if (!has_max_tokens) {  // the default takes what is left
    int64_t longest = 0;
    for (const Prompt& prompt : call.prompts) longest = std::max<int64_t>(longest, std::ssize(prompt.ids));
    call.max_tokens = std::clamp<int64_t>(limits.max_context - longest, 1, kDefaultMaxTokens);
  }
  return call;
}

AnswerRequest make_answer(CompletionCall call, std::shared_ptr<const text::Tokenizer> tokenizer,
                          const std::string& model) {
  AnswerRequest answer;
  answer.is_stream = call.sampling.is_stream;
  for (const Prompt& prompt : call.prompts) {
    for (int64_t i = 0; i < call.n; ++i) {
      engine::Request request;
      request.prompt = prompt.ids;
      request.sampling = call.sampling.sampling;
      request.sampling.seed = sequence_seed(call.sampling, static_cast<size_t>(i));
      request.max_tokens = call.max_tokens;
      request.ignore_eos = call.sampling.ignore_eos;
      request.stop_ids = call.sampling.stop_ids;
      request.top_logprobs = std::max(call.logprobs, 0);
      request.prompt_logprobs = call.echo && call.logprobs >= 0;
      answer.requests.push_back(std::move(request));
      answer.options.push_back({call.sampling.stops, call.logprobs >= 0});
    }
  }
  if (!call.echo) {  // only their number counts from here on
    for (Prompt& prompt : call.prompts) prompt = {};
  }
  answer.format = std::make_unique<CompletionFormat>(std::move(call), std::move(tokenizer), model);
  return answer;
}

void add_completions_route(Router& router, ApiContext& context) {
  const auto parse = [&context](const JsonValue& body) -> std::variant<AnswerRequest, ApiError> {
    RequestFields fields(body);
    const std::string model = fields.string("model");
    if (fields.error()) return *fields.error();
    if (auto error = check_model(context, model)) return *error;
    auto call = parse_completion(body, {context.tokenizer.get(), context.model.max_context, context.model.vocabulary});
    if (const auto* error = std::get_if<ApiError>(&call)) return *error;
    return make_answer(std::move(std::get<CompletionCall>(call)), context.tokenizer, context.model.names.front());
  };
  const auto answer = [&context](AnswerRequest request, std::shared_ptr<Responder> responder) {
    start_answer(context, std::move(request), std::move(responder));
  };
  router.add("POST", "/v1/completions", json_route<AnswerRequest>(context, parse, answer));
}

}  // namespace ps::server
