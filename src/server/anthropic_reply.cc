#include "server/anthropic_reply.h"

#include <utility>

#include "base/json.h"
#include "server/responder.h"
#include "text/utf8.h"

namespace ps::server {

namespace {

using text::FinishReason;
using text::ParserEvent;

JsonWriter compact() { return JsonWriter(JsonWriter::Style::kCompact); }

std::string_view stop_reason(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "end_turn";
    case FinishReason::kLength: return "max_tokens";
    case FinishReason::kToolCalls: return "tool_use";
    case FinishReason::kContentFilter: return "refusal";
    case FinishReason::kStopSequence: return "stop_sequence";
  }
  return "end_turn";
}

std::string_view error_type(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503:
    case 529: return "overloaded_error";
    default: return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

void write_usage(JsonWriter& json, const ReplyUsage& usage) {
  json.key("input_tokens").integer(usage.prompt_tokens - usage.cached_tokens);
  json.key("cache_creation_input_tokens").integer(0);
  json.key("cache_read_input_tokens").integer(usage.cached_tokens);
  json.key("output_tokens").integer(usage.answer_tokens);
}

void write_stop(JsonWriter& json, const ReplyEnd& end) {
  json.key("stop_reason").string(stop_reason(end.reason));
  json.key("stop_sequence");
  if (end.reason == FinishReason::kStopSequence && end.stop_string.has_value()) {
    json.string(*end.stop_string);
  } else {
    json.null();
  }
}

class AnthropicReply : public ChatReply {
 public:
  explicit AnthropicReply(ReplyHead head) : head_(std::move(head)), message_id_("msg_" + head_.id) {}

  [[nodiscard]] std::string call_id(size_t choice, int32_t call) const override {
    return call_id_text("toolu_", head_.id, choice, call);
  }

 protected:
  void begin_message(JsonWriter& json) const {
    json.begin_object();
    json.key("id").string(message_id_);
    json.key("type").string("message");
    json.key("role").string("assistant");
    json.key("model").string(head_.model);
    json.key("content").begin_array();
  }
  void end_message(JsonWriter& json, const ReplyUsage& usage) const {
    json.key("usage").begin_object();
    write_usage(json, usage);
    json.key("service_tier").string("standard").end_object();
    json.end_object();
  }

  const ReplyHead head_;
  const std::string message_id_;
};

class AnthropicStream final : public AnthropicReply {
 public:
  using AnthropicReply::AnthropicReply;

  void start(const ReplyUsage& usage, std::string& out) override {
    JsonWriter json = compact();
    json.begin_object().key("type").string("message_start").key("message");
    begin_message(json);
    json.end_array();
    json.key("stop_reason").null();
    json.key("stop_sequence").null();
    end_message(json, usage);
    out += named_event("message_start", json.end_object().text());
    if (head_.is_thinking) open(Block::kThinking, out);
  }

  void deliver(size_t choice, std::span<const ParserEvent> events, std::span<const ReplyToken>,
               std::string& out) override {
    for (const ParserEvent& event : events) {
      switch (event.kind) {
        case ParserEvent::Kind::kReasoning:
          open(Block::kThinking, out);
          send_delta("thinking_delta", "thinking", event.text, out);
          break;
        case ParserEvent::Kind::kContent:
          open(Block::kText, out);
          send_delta("text_delta", "text", event.text, out);
          break;
        case ParserEvent::Kind::kCallStart: open_call(call_id(choice, event.call), event.text, out); break;
        case ParserEvent::Kind::kArguments: send_delta("input_json_delta", "partial_json", event.text, out); break;
        case ParserEvent::Kind::kCallEnd: close(out); break;
        case ParserEvent::Kind::kStop: break;
      }
    }
  }

  void finish(size_t, const ReplyEnd& end, std::string& out) override {
    close(out);
    JsonWriter json = compact();
    json.begin_object().key("type").string("message_delta");
    json.key("delta").begin_object();
    write_stop(json, end);
    json.end_object();
    json.key("usage").begin_object();
    write_usage(json, end.usage);
    json.end_object();
    out += named_event("message_delta", json.end_object().text());
    out += named_event("message_stop", R"({"type":"message_stop"})");
  }

  void fail(const ApiError& error, std::string& out) override {
    out += named_event("error", anthropic_error_body(error));
  }

 private:
  enum class Block : uint8_t { kNone, kThinking, kText, kCall };

  // Opens a block of thought or text, unless it is the open one.
  void open(Block block, std::string& out) {
    if (open_ == block) return;
    JsonWriter json = begin_block(block, out);
    if (block == Block::kThinking) {
      json.key("type").string("thinking").key("thinking").string("").key("signature").string("");
    } else {
      json.key("type").string("text").key("text").string("");
    }
    end_block(json, out);
  }

  void open_call(const std::string& id, const std::string& name, std::string& out) {
    JsonWriter json = begin_block(Block::kCall, out);
    json.key("type").string("tool_use").key("id").string(id).key("name").string(name);
    json.key("input").begin_object().end_object();
    end_block(json, out);
  }

  JsonWriter begin_block(Block block, std::string& out) {
    close(out);
    open_ = block;
    JsonWriter json = compact();
    json.begin_object().key("type").string("content_block_start").key("index").integer(index_);
    json.key("content_block").begin_object();
    return json;
  }

  void end_block(JsonWriter& json, std::string& out) {
    out += named_event("content_block_start", json.end_object().end_object().text());
    if (!std::exchange(has_pinged_, true)) out += named_event("ping", R"({"type":"ping"})");
  }

  void send_delta(std::string_view type, std::string_view key, std::string_view text, std::string& out) const {
    JsonWriter json = compact();
    json.begin_object().key("type").string("content_block_delta").key("index").integer(index_);
    json.key("delta").begin_object().key("type").string(type).key(key).string(text).end_object();
    out += named_event("content_block_delta", json.end_object().text());
  }

  void close(std::string& out) {
    if (open_ == Block::kNone) return;
    if (open_ == Block::kThinking) send_delta("signature_delta", "signature", message_id_, out);
    JsonWriter json = compact();
    json.begin_object().key("type").string("content_block_stop").key("index").integer(index_);
    out += named_event("content_block_stop", json.end_object().text());
    open_ = Block::kNone;
    ++index_;
  }

  Block open_ = Block::kNone;
  int64_t index_ = 0;  // of the open block, or of the next
  bool has_pinged_ = false;
};

class AnthropicBody final : public AnthropicReply {
 public:
  using AnthropicReply::AnthropicReply;

  void start(const ReplyUsage&, std::string&) override {}

  void deliver(size_t, std::span<const ParserEvent> events, std::span<const ReplyToken>, std::string&) override {
    for (const ParserEvent& event : events) output_.add(event);
  }

  void finish(size_t choice, const ReplyEnd& end, std::string& out) override {
    JsonWriter json = compact();
    begin_message(json);
    if (head_.is_thinking) {
      json.begin_object().key("type").string("thinking").key("thinking").string(output_.reasoning);
      json.key("signature").string(message_id_).end_object();
    }
    if (!output_.content.empty()) {
      json.begin_object().key("type").string("text").key("text").string(output_.content).end_object();
    }
    int32_t index = 0;
    for (const auto& [name, arguments] : output_.calls) {
      json.begin_object().key("type").string("tool_use");
      json.key("id").string(call_id(choice, index++)).key("name").string(name).key("input");
      // A call that was cut off has no object to show.
      const Result<JsonValue> input = JsonValue::parse(arguments);
      if (input.ok() && input.value().is_object()) {
        json.json(arguments);
      } else {
        json.begin_object().end_object();
      }
      json.end_object();
    }
    json.end_array();
    write_stop(json, end);
    end_message(json, end.usage);
    out += json.text();
  }

  void fail(const ApiError&, std::string&) override {}

 private:
  CollectedOutput output_;
};

}  // namespace

std::unique_ptr<ChatReply> make_anthropic_reply(ReplyHead head, bool is_stream) {
  if (is_stream) return std::make_unique<AnthropicStream>(std::move(head));
  return std::make_unique<AnthropicBody>(std::move(head));
}

std::string anthropic_error_body(const ApiError& error) {
  JsonWriter json = compact();
  json.begin_object().key("type").string("error").key("error").begin_object();
  json.key("type").string(error_type(error.status));
  json.key("message").string(text::lossy_utf8(error.message));
  return std::move(json.end_object().end_object()).text();
}

std::string anthropic_token_count_body(int64_t tokens) {
  return std::move(compact().begin_object().key("input_tokens").integer(tokens).end_object()).text();
}

}  // namespace ps::server
