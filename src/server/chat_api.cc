#include "server/chat_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/json_fields.h"
#include "base/log.h"
#include "base/macros.h"
#include "server/anthropic_reply.h"
#include "server/anthropic_request.h"
#include "server/openai_chat.h"
#include "server/responses_reply.h"
#include "server/responses_request.h"

namespace ps::server {

namespace {

HttpReply anthropic_error_reply(const ApiError& error) {
  HttpReply reply = error_reply(error);
  reply.body = anthropic_error_body(error);
  return reply;
}

// As Anthropic words it: clients read the numbers and ask for less, or shorten the conversation.
std::string anthropic_length_problem(int64_t prompt, int64_t answer, int64_t context) {
  if (prompt >= context) return fmt::format("prompt is too long: {} tokens > {} maximum", prompt, context - 1);
  return fmt::format("input length and `max_tokens` exceed context limit: {} + {} > {}", prompt, answer, context);
}

std::string json_quoted(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

// Clients of several services send the names that they know; the answer repeats them.
Status check_model_name(const ChatContext& context, const std::string& name) {
  if (name.empty()) return Status::invalid("model: is empty; name any model");
  const std::vector<std::string>& names = context.api.model.names;
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    log_info(fmt::format("event=other_model asked={} served={}", json_quoted(name), json_quoted(names.front())));
  }
  return {};
}

Result<AnswerRequest> read_openai_chat(ChatContext& context, const JsonValue& body) {
  text::ChatDefaults defaults = context.options.defaults;
  defaults.most_answers = text::kMostAnswers;
  PS_TRY(text::ChatCompletionsRequest request, text::read_chat_completions(body, defaults));
  PS_RETURN_IF_ERROR(check_model_name(context, request.model));
  PS_TRY(const JsonFields fields, JsonFields::of(body, ""));
  bool is_parallel = true;
  PS_RETURN_IF_ERROR(fields.read("parallel_tool_calls", is_parallel));
  ChatCall call{.model = std::move(request.model),
                .chat = std::move(request.chat),
                .sampling = std::move(request.sampling),
                .answers = static_cast<size_t>(request.answers),
                .is_stream = request.is_stream,
                .allows_parallel_calls = is_parallel};
  OpenAiChatOptions options{.choices = call.answers,
                            .is_stream = call.is_stream,
                            .includes_usage = request.includes_usage,
                            .has_logprobs = call.sampling.logprobs};
  call.make_reply = [options](ReplyHead head) mutable {
    options.head = std::move(head);
    return make_openai_chat_reply(std::move(options));
  };
  return make_chat_answer(context, std::move(call));
}

Result<AnswerRequest> read_anthropic(ChatContext& context, const JsonValue& body) {
  PS_TRY(AnthropicRequest request, read_anthropic_request(body, AnthropicTask::kMessage, context.options.defaults));
  PS_RETURN_IF_ERROR(check_model_name(context, request.model));
  ChatCall call{.model = std::move(request.model),
                .chat = std::move(request.chat),
                .sampling = std::move(request.sampling),
                .is_stream = request.is_stream,
                .allows_parallel_calls = request.allows_parallel_calls,
                .error = anthropic_error_reply,
                .length_problem = anthropic_length_problem};
  call.make_reply = [is_stream = call.is_stream](ReplyHead head) {
    return make_anthropic_reply(std::move(head), is_stream);
  };
  return make_chat_answer(context, std::move(call));
}

Result<std::string> count_anthropic(ChatContext& context, const JsonValue& body) {
  PS_TRY(const AnthropicRequest request,
         read_anthropic_request(body, AnthropicTask::kCountTokens, context.options.defaults));
  PS_RETURN_IF_ERROR(check_model_name(context, request.model));
  PS_TRY(const int64_t tokens, count_prompt_tokens(context, request.chat));
  return anthropic_token_count_body(tokens);
}

Result<AnswerRequest> read_responses(ChatContext& context, const JsonValue& body) {
  PS_TRY(ResponsesRequest request, read_responses_request(body, context.options.defaults));
  PS_RETURN_IF_ERROR(check_model_name(context, request.model));
  for (const std::string& type : request.tools.left_out) {
    log_warning(
        fmt::format("event=tool_left_out type={} what=\"only tools of type function, custom and namespace are known\"",
                    json_quoted(type)));
  }
  ChatCall call{.model = std::move(request.model),
                .chat = std::move(request.chat),
                .sampling = std::move(request.sampling),
                .is_stream = request.is_stream,
                .allows_parallel_calls = request.echo.parallel_tool_calls};
  ResponsesOptions options{.echo = std::move(request.echo),
                           .tools = std::move(request.tools),
                           .is_stream = call.is_stream,
                           .includes_encrypted_reasoning = request.includes_encrypted_reasoning};
  call.make_reply = [options](ReplyHead head) mutable {
    options.head = std::move(head);
    return make_responses_reply(std::move(options));
  };
  return make_chat_answer(context, std::move(call));
}

// A reader of this file, as a parser of a route.
template <typename Parsed>
BodyParser<Parsed> parser_of(ChatContext& context, Result<Parsed> (*read)(ChatContext&, const JsonValue&)) {
  return [&context, read](const JsonValue& body) -> std::variant<Parsed, ApiError> {
    Result<Parsed> parsed = read(context, body);
    if (!parsed.ok()) return from_status(parsed.status());
    return std::move(parsed).value();
  };
}

}  // namespace

void add_chat_routes(Router& router, ChatContext& context) {
  ApiContext& api = context.api;
  const BodyHandler<AnswerRequest> answer = [&api](AnswerRequest request, std::shared_ptr<Responder> responder) {
    start_answer(api, std::move(request), std::move(responder));
  };
  const BodyHandler<std::string> reply = [](std::string body, const std::shared_ptr<Responder>& responder) {
    responder->reply(json_reply(std::move(body)));
  };
  const RouteHandler openai = json_route<AnswerRequest>(api, parser_of(context, read_openai_chat), answer);
  router.add("POST", "/v1/chat/completions", openai);
  router.add("POST", "/chat/completions", openai);
  router.add("POST", "/v1/responses", json_route<AnswerRequest>(api, parser_of(context, read_responses), answer));
  const RouteHandler messages =
      json_route<AnswerRequest>(api, parser_of(context, read_anthropic), answer, anthropic_error_reply);
  const RouteHandler count =
      json_route<std::string>(api, parser_of(context, count_anthropic), reply, anthropic_error_reply);
  for (const std::string prefix : {"", "/anthropic"}) {
    router.add("POST", prefix + "/v1/messages", messages);
    router.add("POST", prefix + "/v1/messages/count_tokens", count);
  }
}

}  // namespace ps::server
