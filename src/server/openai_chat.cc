#include "server/openai_chat.h"

#include "base/json.h"
#include "server/openai_json.h"
#include "server/responder.h"
#include "text/utf8.h"

namespace ps::server {

namespace {

using text::ParserEvent;

JsonWriter compact() { return JsonWriter(JsonWriter::Style::kCompact); }

void write_token(JsonWriter& json, const std::string& bytes, float logprob) {
  json.key("token").string(text::lossy_utf8(bytes));
  json.key("logprob").real(json_logprob(logprob));
  json.key("bytes").begin_array();
  for (const char byte : bytes) json.integer(static_cast<unsigned char>(byte));
  json.end_array();
}

void write_tokens(JsonWriter& json, std::span<const ReplyToken> tokens) {
  json.begin_array();
  for (const ReplyToken& token : tokens) {
    json.begin_object();
    write_token(json, token.bytes, token.logprob);
    json.key("top_logprobs").begin_array();
    for (const auto& [bytes, logprob] : token.top) {
      json.begin_object();
      write_token(json, bytes, logprob);
      json.end_object();
    }
    json.end_array().end_object();
  }
  json.end_array();
}

void write_usage(JsonWriter& json, const ReplyUsage& usage) {
  json.begin_object();
  json.key("prompt_tokens").integer(usage.prompt_tokens);
  json.key("completion_tokens").integer(usage.answer_tokens);
  json.key("total_tokens").integer(usage.prompt_tokens + usage.answer_tokens);
  json.key("prompt_tokens_details").begin_object();
  json.key("cached_tokens").integer(usage.cached_tokens).end_object();
  json.key("completion_tokens_details").begin_object();
  json.key("reasoning_tokens").integer(usage.reasoning_tokens).end_object();
  json.key("prompt_cache_hit_tokens").integer(usage.cached_tokens);
  json.key("prompt_cache_miss_tokens").integer(usage.prompt_tokens - usage.cached_tokens);
  json.end_object();
}

// Tokens whose log-probabilities are still to be sent, by the part they were sampled in.
struct TokenLists {
  std::vector<ReplyToken> content;
  std::vector<ReplyToken> reasoning;

  void add(std::span<const ReplyToken> tokens) {
    for (const ReplyToken& token : tokens) (token.is_reasoning ? reasoning : content).push_back(token);
  }
  [[nodiscard]] bool is_empty() const noexcept { return content.empty() && reasoning.empty(); }
  void clear() { content.clear(), reasoning.clear(); }
  void write(JsonWriter& json, bool is_thinking) const {
    json.begin_object();
    json.key("content");
    write_tokens(json, content);
    json.key("refusal").null();
    if (is_thinking) write_tokens(json.key("reasoning_content"), reasoning);
    json.end_object();
  }
};

class OpenAiChat : public ChatReply {
 public:
  OpenAiChat(OpenAiChatOptions options, std::string_view object)
      : options_(std::move(options)), open_(options_.choices) {
    JsonWriter head = compact();
    head.key("id").string("chatcmpl-" + options_.head.id);
    head.key("object").string(object);
    head.key("created").integer(options_.head.created);
    head.key("model").string(options_.head.model);
    head.key("system_fingerprint").string(options_.head.fingerprint);
    head_ = std::move(head).text();
  }

  [[nodiscard]] std::string call_id(size_t choice, int32_t call) const override {
    return call_id_text("call_", options_.head.id, choice, call);
  }

 protected:
  void begin_body(JsonWriter& json) const { json.begin_object().members(head_).key("choices").begin_array(); }

  const OpenAiChatOptions options_;
  size_t open_;  // choices that have not ended

 private:
  std::string head_;  // the members that every object begins with
};

class OpenAiChatStream final : public OpenAiChat {
 public:
  explicit OpenAiChatStream(OpenAiChatOptions options)
      : OpenAiChat(std::move(options), "chat.completion.chunk"), pending_(options_.choices) {}

  void start(const ReplyUsage&, std::string& out) override {
    for (size_t choice = 0; choice < options_.choices; ++choice) {
      send_chunk({.choice = choice}, out, [&](JsonWriter& delta) {
        delta.key("role").string("assistant");
        if (options_.head.is_thinking) {
          delta.key("content").null();
          delta.key("reasoning_content").string("");
        } else {
          delta.key("content").string("");
        }
      });
    }
  }

  void deliver(size_t choice, std::span<const ParserEvent> events, std::span<const ReplyToken> tokens,
               std::string& out) override {
    pending_[choice].add(tokens);
    for (const ParserEvent& event : events) {
      switch (event.kind) {
        case ParserEvent::Kind::kReasoning:
        case ParserEvent::Kind::kContent:
          send_chunk({.choice = choice, .takes_logprobs = true}, out,
                     [&](JsonWriter& delta) { write_text(delta, event); });
          break;
        case ParserEvent::Kind::kCallStart:
        case ParserEvent::Kind::kArguments:
          send_chunk({.choice = choice}, out, [&](JsonWriter& delta) { write_call(delta, choice, event); });
          break;
        case ParserEvent::Kind::kCallEnd:
        case ParserEvent::Kind::kStop: break;
      }
    }
  }

  void finish(size_t choice, const ReplyEnd& end, std::string& out) override {
    --open_;
    send_chunk({.choice = choice, .takes_logprobs = true, .end = &end}, out, [&](JsonWriter& delta) {
      delta.key("content").string("");
      if (options_.head.is_thinking) delta.key("reasoning_content").null();
    });
    if (open_ == 0) out += kDoneEvent;
  }

  void fail(const ApiError& error, std::string& out) override {
    out += data_event(error_body(error));
    out += kDoneEvent;
  }

 private:
  void write_text(JsonWriter& delta, const ParserEvent& event) const {
    if (event.kind == ParserEvent::Kind::kReasoning) {
      delta.key("content").null();
      delta.key("reasoning_content").string(event.text);
    } else {
      delta.key("content").string(event.text);
      if (options_.head.is_thinking) delta.key("reasoning_content").null();
    }
  }

  void write_call(JsonWriter& delta, size_t choice, const ParserEvent& event) const {
    const bool is_first = event.kind == ParserEvent::Kind::kCallStart;
    delta.key("tool_calls").begin_array().begin_object();
    delta.key("index").integer(event.call);
    if (is_first) {
      delta.key("id").string(call_id(choice, event.call));
      delta.key("type").string("function");
    }
    delta.key("function").begin_object();
    if (is_first) delta.key("name").string(event.text);
    delta.key("arguments").string(is_first ? std::string_view() : std::string_view(event.text));
    delta.end_object().end_object().end_array();
  }

  struct Chunk {
    size_t choice = 0;
    bool takes_logprobs = false;  // they go with text
    const ReplyEnd* end = nullptr;
  };

  // `write_delta` writes the members of the delta.
  template <typename WriteDelta>
  void send_chunk(const Chunk& chunk, std::string& out, const WriteDelta& write_delta) {
    JsonWriter json = compact();
    begin_body(json);
    json.begin_object();
    json.key("index").integer(static_cast<int64_t>(chunk.choice));
    json.key("delta").begin_object();
    write_delta(json);
    json.end_object();
    json.key("logprobs");
    TokenLists& tokens = pending_[chunk.choice];
    if (chunk.takes_logprobs && !tokens.is_empty()) {
      tokens.write(json, options_.head.is_thinking);
      tokens.clear();
    } else {
      json.null();
    }
    json.key("finish_reason");
    if (chunk.end != nullptr) {
      json.string(text::finish_reason_name(chunk.end->reason));
    } else {
      json.null();
    }
    json.end_object().end_array();
    if (options_.includes_usage) {
      json.key("usage");
      if (chunk.end != nullptr && open_ == 0) {
        write_usage(json, chunk.end->usage);
      } else {
        json.null();
      }
    }
    append_data_event(out, json.end_object().text());
  }

  std::vector<TokenLists> pending_;  // by choice
};

class OpenAiChatBody final : public OpenAiChat {
 public:
  explicit OpenAiChatBody(OpenAiChatOptions options)
      : OpenAiChat(std::move(options), "chat.completion"), choices_(options_.choices) {}

  void start(const ReplyUsage&, std::string&) override {}

  void deliver(size_t choice, std::span<const ParserEvent> events, std::span<const ReplyToken> tokens,
               std::string&) override {
    for (const ParserEvent& event : events) choices_[choice].output.add(event);
    choices_[choice].tokens.add(tokens);
  }

  void finish(size_t choice, const ReplyEnd& end, std::string& out) override {
    choices_[choice].reason = end.reason;
    if (--open_ > 0) return;
    JsonWriter json = compact();
    begin_body(json);
    for (size_t index = 0; index < choices_.size(); ++index) write_choice(json, index);
    json.end_array();
    write_usage(json.key("usage"), end.usage);
    out += json.end_object().text();
  }

  void fail(const ApiError&, std::string&) override {}

 private:
  struct Choice {
    CollectedOutput output;
    TokenLists tokens;
    text::FinishReason reason = text::FinishReason::kStop;
  };

  void write_choice(JsonWriter& json, size_t index) const {
    const Choice& choice = choices_[index];
    json.begin_object();
    json.key("index").integer(static_cast<int64_t>(index));
    json.key("message").begin_object();
    json.key("role").string("assistant");
    json.key("content").string(choice.output.content);
    if (options_.head.is_thinking) json.key("reasoning_content").string(choice.output.reasoning);
    if (!choice.output.calls.empty()) write_calls(json, index);
    json.end_object();
    json.key("logprobs");
    if (options_.has_logprobs) {
      choice.tokens.write(json, options_.head.is_thinking);
    } else {
      json.null();
    }
    json.key("finish_reason").string(text::finish_reason_name(choice.reason));
    json.end_object();
  }

  void write_calls(JsonWriter& json, size_t choice) const {
    json.key("tool_calls").begin_array();
    int32_t index = 0;
    for (const auto& [name, arguments] : choices_[choice].output.calls) {
      json.begin_object();
      json.key("id").string(call_id(choice, index++));
      json.key("type").string("function");
      json.key("function").begin_object();
      json.key("name").string(name);
      json.key("arguments").string(arguments).end_object();
      json.end_object();
    }
    json.end_array();
  }

  std::vector<Choice> choices_;
};

}  // namespace

std::unique_ptr<ChatReply> make_openai_chat_reply(OpenAiChatOptions options) {
  if (options.is_stream) return std::make_unique<OpenAiChatStream>(std::move(options));
  return std::make_unique<OpenAiChatBody>(std::move(options));
}

}  // namespace ps::server
