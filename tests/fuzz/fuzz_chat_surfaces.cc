// Bodies of Anthropic's messages and OpenAI's responses, and what a model answers to them: any body is refused by name
// or becomes a request that both encoders take or refuse; whatever the model writes, every event and every whole answer
// of every surface is JSON. Input: the body; after a zero byte, what the model writes.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/anthropic_reply.h"
#include "server/anthropic_request.h"
#include "server/openai_chat.h"
#include "server/responses_reply.h"
#include "server/responses_request.h"
#include "text/output_parser.h"
#include "text/prompt_encoder.h"
#include "text/utf8.h"

namespace {

using namespace ps::server;

void require(bool condition) {
  if (!condition) std::abort();
}

void check_refusal(const ps::Status& status) {
  require(status.code() == ps::Code::kInvalid && !status.message().empty());
  const ApiError error = from_status(status);
  require(ps::JsonValue::parse(error_body(error)).ok() && ps::JsonValue::parse(anthropic_error_body(error)).ok());
}

void check_events(std::string_view stream) {
  while (!stream.empty()) {
    const size_t end = stream.find("\n\n");
    require(end != std::string_view::npos);
    std::string_view event = stream.substr(0, end);
    if (event.starts_with("event: ")) event.remove_prefix(event.find('\n') + 1);
    require(event.starts_with("data: "));
    const std::string_view data = event.substr(6);
    require(data == "[DONE]" || ps::JsonValue::parse(data).ok());
    stream.remove_prefix(end + 2);
  }
}

void check_reply(ChatReply& reply, bool is_stream, const ps::text::ParserOptions& options, std::string_view output) {
  constexpr size_t kPiece = 7;
  std::string out;
  ps::text::OutputParser parser(options);
  reply.start({.prompt_tokens = 3}, out);
  std::vector<ps::text::ParserEvent> events;
  for (size_t at = 0; at < output.size(); at += kPiece) {
    events.clear();
    parser.feed(output.substr(at, kPiece), events);
    // Characters that the cut breaks never reach a reply: the detokenizer gives whole ones.
    for (auto& event : events) event.text = ps::text::lossy_utf8(event.text);
    reply.deliver(0, events, {}, out);
  }
  events.clear();
  const auto reason = parser.finish(ps::text::OutputEnd::kStop, events);
  for (auto& event : events) event.text = ps::text::lossy_utf8(event.text);
  reply.deliver(0, events, {}, out);
  ReplyEnd end{.reason = reason};
  if (const auto stop = parser.stop_hit()) end.stop_string = options.stops[static_cast<size_t>(*stop)];
  reply.finish(0, end, out);
  if (is_stream) return check_events(out);
  require(ps::JsonValue::parse(out).ok());
}

void check_conversation(const ps::text::ChatRequest& chat, const std::vector<std::string>& stops,
                        const ResponsesRequest& responses, std::string_view output) {
  for (const auto encoding : {ps::text::ChatEncoding::kRecipe, ps::text::ChatEncoding::kModel}) {
    auto prompt = ps::text::encode_prompt(chat, {.encoding = encoding});
    if (!prompt.ok()) {
      check_refusal(prompt.status());
      continue;
    }
    prompt->parser.stops = stops;
    for (const bool is_stream : {true, false}) {
      const ReplyHead head{"id", 1, "m", "fp", chat.is_thinking};
      check_reply(*make_openai_chat_reply({.head = head, .is_stream = is_stream, .includes_usage = true}), is_stream,
                  prompt->parser, output);
      check_reply(*make_anthropic_reply(head, is_stream), is_stream, prompt->parser, output);
      check_reply(*make_responses_reply(
                      {.head = head, .echo = responses.echo, .tools = responses.tools, .is_stream = is_stream}),
                  is_stream, prompt->parser, output);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view body(reinterpret_cast<const char*>(data), size);
  std::string_view output;
  if (const size_t zero = body.find('\0'); zero != std::string_view::npos) {
    output = body.substr(zero + 1);
    body = body.substr(0, zero);
  }
  const auto value = ps::JsonValue::parse(body);
  if (!value.ok()) return 0;
  for (const auto task : {AnthropicTask::kMessage, AnthropicTask::kCountTokens}) {
    const auto request = read_anthropic_request(value.value(), task, {});
    if (!request.ok()) {
      check_refusal(request.status());
    } else if (task == AnthropicTask::kMessage) {
      check_conversation(request.value().chat, request.value().sampling.stops, {}, output);
    }
  }
  const auto request = read_responses_request(value.value(), {});
  if (!request.ok()) {
    check_refusal(request.status());
  } else {
    check_conversation(request.value().chat, {}, request.value(), output);
  }
  return 0;
}
