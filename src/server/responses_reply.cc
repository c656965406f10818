#include "server/responses_reply.h"

#include <utility>
#include <vector>

#include "base/json.h"
#include "server/responder.h"

namespace ps::server {

namespace {

using text::FinishReason;
using text::ParserEvent;

JsonWriter compact() { return JsonWriter(JsonWriter::Style::kCompact); }

void write_usage(JsonWriter& json, const ReplyUsage& usage) {
  json.begin_object();
  json.key("input_tokens").integer(usage.prompt_tokens);
  json.key("input_tokens_details").begin_object().key("cached_tokens").integer(usage.cached_tokens).end_object();
  json.key("output_tokens").integer(usage.answer_tokens);
  json.key("output_tokens_details").begin_object();
  json.key("reasoning_tokens").integer(usage.reasoning_tokens).end_object();
  json.key("total_tokens").integer(usage.prompt_tokens + usage.answer_tokens);
  json.end_object();
}

// A body runs through the same items as a stream; only nothing is sent before its end.
class ResponsesReply final : public ChatReply {
 public:
  explicit ResponsesReply(ResponsesOptions options) : options_(std::move(options)) {}

  [[nodiscard]] std::string call_id(size_t choice, int32_t call) const override {
    return call_id_text("call_", options_.head.id, choice, call);
  }

  void start(const ReplyUsage&, std::string& out) override {
    for (const std::string_view type : {"response.created", "response.in_progress"}) {
      JsonWriter json = begin_event(type);
      write_response(json.key("response"), {.status = "in_progress"});
      send(type, json, out);
    }
  }

  void deliver(size_t choice, std::span<const ParserEvent> events, std::span<const ReplyToken>,
               std::string& out) override {
    for (const ParserEvent& event : events) {
      switch (event.kind) {
        case ParserEvent::Kind::kReasoning: add_text(Kind::kReasoning, event.text, out); break;
        case ParserEvent::Kind::kContent: add_text(Kind::kMessage, event.text, out); break;
        case ParserEvent::Kind::kCallStart:
          open(options_.tools.find(event.text).is_custom ? Kind::kCustomCall : Kind::kCall, out, [&] {
            item_.call_id = call_id(choice, event.call);
            item_.tool = options_.tools.find(event.text);
          });
          break;
        case ParserEvent::Kind::kArguments: add_arguments(event.text, out); break;
        case ParserEvent::Kind::kCallEnd: close("completed", out); break;
        case ParserEvent::Kind::kStop: break;
      }
    }
  }

  void finish(size_t, const ReplyEnd& end, std::string& out) override {
    const bool is_cut = end.reason == FinishReason::kLength || end.reason == FinishReason::kContentFilter;
    const std::string_view status = is_cut ? "incomplete" : "completed";
    if (item_.kind == Kind::kNone && done_.empty()) open(Kind::kMessage, out, [] {});
    close(status, out);
    Final final{.status = status, .usage = &end.usage};
    if (end.reason == FinishReason::kLength) final.incomplete_reason = "max_output_tokens";
    if (end.reason == FinishReason::kContentFilter) final.incomplete_reason = "content_filter";
    if (!options_.is_stream) {
      JsonWriter json = compact();
      write_response(json, final);
      out += json.text();
      return;
    }
    send_final(is_cut ? "response.incomplete" : "response.completed", final, out);
  }

  void fail(const ApiError& error, std::string& out) override {
    send_final("response.failed", {.status = "failed", .error = &error}, out);
  }

 private:
  enum class Kind : uint8_t { kNone, kReasoning, kMessage, kCall, kCustomCall };
  struct Item {
    Kind kind = Kind::kNone;
    std::string id;
    std::string text;  // of the thought or the answer; arguments of a call, or what a custom tool is given
    std::string call_id;
    ClientTool tool;
    CustomInput input;
    [[nodiscard]] bool is_call() const noexcept { return kind == Kind::kCall || kind == Kind::kCustomCall; }
  };
  struct Final {
    std::string_view status;
    const ReplyUsage* usage = nullptr;
    std::string_view incomplete_reason;
    const ApiError* error = nullptr;
  };

  JsonWriter begin_event(std::string_view type) {
    JsonWriter json = compact();
    json.begin_object().key("type").string(type).key("sequence_number").integer(sequence_++);
    return json;
  }
  JsonWriter begin_item_event(std::string_view type) {
    JsonWriter json = begin_event(type);
    json.key("item_id").string(item_.id).key("output_index").integer(output_index());
    if (!item_.is_call()) json.key("content_index").integer(0);
    return json;
  }
  void send(std::string_view type, JsonWriter& json, std::string& out) const {
    if (options_.is_stream) out += named_event(type, json.end_object().text());
  }
  void send_final(std::string_view type, const Final& final, std::string& out) {
    JsonWriter json = begin_event(type);
    write_response(json.key("response"), final);
    send(type, json, out);
  }
  [[nodiscard]] int64_t output_index() const noexcept { return static_cast<int64_t>(done_.size()); }

  // Opens an item of that kind; `fill` sets what it has from the start.
  template <typename Fill>
  void open(Kind kind, std::string& out, const Fill& fill) {
    close("completed", out);
    static constexpr std::string_view kPrefixes[] = {"", "rs_", "msg_", "fc_", "ctc_"};
    item_ = {.kind = kind};
    item_.id =
        std::string(kPrefixes[static_cast<size_t>(kind)]) + options_.head.id + '_' + std::to_string(output_index());
    fill();
    JsonWriter json = begin_event("response.output_item.added");
    json.key("output_index").integer(output_index());
    write_item(json.key("item"), "in_progress");
    send("response.output_item.added", json, out);
    if (item_.is_call()) return;
    JsonWriter part = begin_item_event("response.content_part.added");
    write_part(part.key("part"));
    send("response.content_part.added", part, out);
  }

  void add_text(Kind kind, const std::string& text, std::string& out) {
    if (item_.kind != kind) open(kind, out, [] {});
    const bool is_answer = kind == Kind::kMessage;
    item_.text += text;
    const std::string_view type = is_answer ? "response.output_text.delta" : "response.reasoning_text.delta";
    JsonWriter json = begin_item_event(type);
    json.key("delta").string(text);
    if (is_answer) json.key("logprobs").begin_array().end_array();
    send(type, json, out);
  }

  void add_arguments(const std::string& arguments, std::string& out) {
    const bool is_custom = item_.kind == Kind::kCustomCall;
    const std::string text = is_custom ? item_.input.take(arguments) : arguments;
    if (!is_custom || !text.empty()) add_call_text(text, out);
  }
  void add_call_text(const std::string& text, std::string& out) {
    item_.text += text;
    const std::string_view type = item_.kind == Kind::kCustomCall ? "response.custom_tool_call_input.delta"
                                                                  : "response.function_call_arguments.delta";
    JsonWriter json = begin_item_event(type);
    json.key("delta").string(text);
    send(type, json, out);
  }

  void close(std::string_view status, std::string& out) {
    if (item_.kind == Kind::kNone) return;
    if (item_.kind == Kind::kCustomCall) {
      const std::string text = item_.input.finish();
      if (item_.text.empty() && !text.empty()) add_call_text(text, out);
      JsonWriter json = begin_item_event("response.custom_tool_call_input.done");
      json.key("input").string(item_.text);
      send("response.custom_tool_call_input.done", json, out);
    } else if (item_.kind == Kind::kCall) {
      JsonWriter json = begin_item_event("response.function_call_arguments.done");
      json.key("name").string(item_.tool.name).key("arguments").string(item_.text);
      send("response.function_call_arguments.done", json, out);
    } else {
      close_part(out);
    }
    JsonWriter json = begin_event("response.output_item.done");
    json.key("output_index").integer(output_index());
    JsonWriter item = compact();
    write_item(item, status);
    json.key("item").json(item.text());
    send("response.output_item.done", json, out);
    done_.push_back(std::move(item).text());
    item_ = {};
  }

  void close_part(std::string& out) {
    const bool is_answer = item_.kind == Kind::kMessage;
    const std::string_view type = is_answer ? "response.output_text.done" : "response.reasoning_text.done";
    JsonWriter json = begin_item_event(type);
    json.key("text").string(item_.text);
    if (is_answer) json.key("logprobs").begin_array().end_array();
    send(type, json, out);
    JsonWriter part = begin_item_event("response.content_part.done");
    write_part(part.key("part"));
    send("response.content_part.done", part, out);
  }

  // The only part of a thought or an answer, as far as it is.
  void write_part(JsonWriter& json) const {
    json.begin_object();
    json.key("type").string(item_.kind == Kind::kMessage ? "output_text" : "reasoning_text");
    json.key("text").string(item_.text);
    if (item_.kind == Kind::kMessage) {
      json.key("annotations").begin_array().end_array();
      json.key("logprobs").begin_array().end_array();
    }
    json.end_object();
  }

  void write_item(JsonWriter& json, std::string_view status) const {
    const bool is_open = status == "in_progress";
    json.begin_object().key("id").string(item_.id);
    switch (item_.kind) {
      case Kind::kNone: break;
      case Kind::kReasoning: json.key("type").string("reasoning").key("summary").begin_array().end_array(); break;
      case Kind::kMessage: json.key("type").string("message").key("role").string("assistant"); break;
      case Kind::kCall: write_call(json, "function_call", "arguments"); break;
      case Kind::kCustomCall: write_call(json, "custom_tool_call", "input"); break;
    }
    if (!item_.is_call()) {
      json.key("content").begin_array();
      if (!is_open) write_part(json);
      json.end_array();
    }
    if (item_.kind == Kind::kReasoning) {
      json.key("encrypted_content");
      if (options_.includes_encrypted_reasoning && !is_open) {
        json.string(std::string(kReasoningPrefix) + item_.text);
      } else {
        json.null();
      }
    }
    json.key("status").string(status).end_object();
  }

  void write_call(JsonWriter& json, std::string_view type, std::string_view text_key) const {
    json.key("type").string(type).key("call_id").string(item_.call_id).key("name").string(item_.tool.name);
    if (!item_.tool.space.empty()) json.key("namespace").string(item_.tool.space);
    json.key(text_key).string(item_.text);
  }

  void write_response(JsonWriter& json, const Final& final) const {
    const ResponsesEcho& echo = options_.echo;
    json.begin_object();
    json.key("id").string("resp_" + options_.head.id);
    json.key("object").string("response");
    json.key("created_at").integer(options_.head.created);
    json.key("status").string(final.status);
    json.key("background").boolean(false);
    json.key("error");
    if (final.error != nullptr) {
      // This surface's name for an internal error; the other codes are ours.
      const std::string& code = final.error->code;
      json.begin_object().key("code").string(code == "internal_error" ? "server_error" : code);
      json.key("message").string(final.error->message).end_object();
    } else {
      json.null();
    }
    json.key("incomplete_details");
    if (!final.incomplete_reason.empty()) {
      json.begin_object().key("reason").string(final.incomplete_reason).end_object();
    } else {
      json.null();
    }
    json.key("instructions").json(echo.instructions);
    json.key("max_output_tokens").json(echo.max_output_tokens);
    json.key("model").string(options_.head.model);
    json.key("output").begin_array();
    for (const std::string& item : done_) json.json(item);
    json.end_array();
    json.key("parallel_tool_calls").boolean(echo.parallel_tool_calls);
    json.key("previous_response_id").null();
    json.key("reasoning").json(echo.reasoning);
    json.key("service_tier").string("default");
    json.key("store").boolean(false);
    json.key("temperature").json(echo.temperature);
    json.key("text").json(echo.text);
    json.key("tool_choice").json(echo.tool_choice);
    json.key("tools").json(options_.tools.in_force);
    json.key("top_p").json(echo.top_p);
    json.key("truncation").string("disabled");
    json.key("usage");
    if (final.usage != nullptr) {
      write_usage(json, *final.usage);
    } else {
      json.null();
    }
    json.key("user").json(echo.user);
    json.key("metadata").json(echo.metadata);
    json.end_object();
  }

  const ResponsesOptions options_;
  Item item_;                      // the open one
  std::vector<std::string> done_;  // items, as JSON
  int64_t sequence_ = 0;
};

}  // namespace

std::unique_ptr<ChatReply> make_responses_reply(ResponsesOptions options) {
  return std::make_unique<ResponsesReply>(std::move(options));
}

}  // namespace ps::server
