#include "text/chat_completions_request.h"

#include <cstdlib>
#include <utility>

#include "base/json_fields.h"
#include "base/macros.h"
#include "text/utf8.h"

namespace ps::text {
namespace {

constexpr size_t kMaxStops = 16;
constexpr double kMaxLogitBias = 100;
constexpr int32_t kMaxTopLogprobs = 20;

// ---- Types of the fields ----

Status read_stop(const JsonFields& fields, std::vector<std::string>& stops) {
  const JsonValue* stop = fields.find("stop");
  if (stop == nullptr) return {};
  if (stop->is_string()) {
    stops.push_back(stop->text());
    return {};
  }
  if (!stop->is_array()) return JsonFields::mismatch("stop", "a string or an array of strings", *stop);
  for (const JsonValue& item : stop->items()) {
    if (!item.is_string()) {
      return JsonFields::mismatch("stop[" + std::to_string(stops.size()) + "]", "a string", item);
    }
    stops.push_back(item.text());
  }
  return {};
}

// NOTE: a whole number of any length is a matter of the range, everything else one of the type.
Status read_seed(const JsonFields& fields, std::optional<int64_t>& seed) {
  const JsonValue* value = fields.find("seed");
  if (value == nullptr) return {};
  if (!value->is_number() || value->text().find_first_of(".eE") != std::string::npos) {
    return JsonFields::mismatch("seed", "an integer", *value);
  }
  const auto number = value->integer();
  if (!number.ok() || number.value() < 0) return Status::invalid("seed must be in [0, 2^63)");
  seed = number.value();
  return {};
}

Status read_logit_bias(const JsonFields& fields, std::vector<std::pair<int32_t, float>>& biases) {
  PS_TRY(const JsonValue* const object, fields.object("logit_bias"));
  if (object == nullptr) return {};
  for (const auto& [name, value] : object->merged_members()) {
    const std::string path = std::string("logit_bias.").append(name.substr(0, 40));
    int64_t id = 0;
    for (const char c : name) id = c < '0' || c > '9' || id > INT32_MAX ? INT64_MAX / 16 : id * 10 + (c - '0');
    if (name.empty() || id > INT32_MAX) return Status::invalid(path + ": the name must be a token id");
    PS_TRY(const double bias, value->real().with(path));
    if (!(bias >= -kMaxLogitBias && bias <= kMaxLogitBias)) {
      return Status::invalid(path + " must be in [-100, 100]");
    }
    biases.emplace_back(static_cast<int32_t>(id), static_cast<float>(bias));
  }
  return {};
}

Status read_top_logprobs(const JsonFields& fields, SamplingFields& sampling) {
  PS_RETURN_IF_ERROR(fields.read("logprobs", sampling.logprobs));
  int64_t top = 0;
  PS_RETURN_IF_ERROR(fields.read("top_logprobs", top));
  if (top < 0 || top > kMaxTopLogprobs) return Status::invalid("top_logprobs must be in [0, 20]");
  if (top > 0 && !sampling.logprobs) {
    return Status::invalid("top_logprobs should be set along with logprobs = true");
  }
  sampling.top_logprobs = static_cast<int32_t>(top);
  return {};
}

Status read_max_tokens(const JsonFields& fields, SamplingFields& sampling) {
  std::optional<int64_t>& max_tokens = sampling.max_tokens;
  std::optional<int64_t> alias;
  PS_RETURN_IF_ERROR(fields.read("max_tokens", max_tokens));
  PS_RETURN_IF_ERROR(fields.read("max_completion_tokens", alias));
  if (alias && max_tokens && *alias != *max_tokens) {
    return Status::invalid("max_tokens and max_completion_tokens are one setting and must not differ");
  }
  if (max_tokens || !alias) return {};
  max_tokens = alias;
  sampling.max_tokens_name = "max_completion_tokens";
  return {};
}

Status read_sampling_types(const JsonFields& fields, SamplingFields& sampling, int64_t& n) {
  PS_RETURN_IF_ERROR(fields.read("n", n));
  PS_RETURN_IF_ERROR(fields.read("frequency_penalty", sampling.frequency_penalty));
  PS_RETURN_IF_ERROR(fields.read("presence_penalty", sampling.presence_penalty));
  PS_RETURN_IF_ERROR(read_max_tokens(fields, sampling));
  PS_RETURN_IF_ERROR(fields.read("temperature", sampling.temperature));
  PS_RETURN_IF_ERROR(fields.read("top_p", sampling.top_p));
  PS_RETURN_IF_ERROR(fields.read("top_k", sampling.top_k));
  PS_RETURN_IF_ERROR(fields.read("min_p", sampling.min_p));
  PS_RETURN_IF_ERROR(fields.read("repetition_penalty", sampling.repetition_penalty));
  PS_RETURN_IF_ERROR(fields.read("ignore_eos", sampling.ignore_eos));
  return read_stop(fields, sampling.stops);
}

// ---- Limits, in the order of the API ----

template <typename Value, typename IsLegal>
Status limit(const std::optional<Value>& value, const IsLegal& is_legal, std::string message) {
  return value && !is_legal(*value) ? Status::invalid(std::move(message)) : Status();
}

Status check_answers(int64_t n, int64_t most) {
  if (n >= 1 && n <= most) return {};
  if (most == 1) return Status::invalid("Invalid n value (currently only n = 1 is supported)");
  return Status::invalid("Invalid n value (legal values are 1 to " + std::to_string(most) + ")");
}

Status check_sampling(const JsonFields& fields, SamplingFields& sampling) {
  const auto is_penalty = [](double value) { return value >= -2 && value <= 2; };
  if (!is_penalty(sampling.frequency_penalty)) return Status::invalid("frequency_penalty must be in [-2, 2]");
  if (!is_penalty(sampling.presence_penalty)) return Status::invalid("presence_penalty must be in [-2, 2]");
  const auto is_positive = [](auto value) { return value > 0; };
  const auto is_share = [](double value) { return value >= 0 && value <= 1; };
  PS_RETURN_IF_ERROR(
      limit(sampling.max_tokens, is_positive, std::string(sampling.max_tokens_name) + " must be greater than 0"));
  PS_RETURN_IF_ERROR(limit(
      sampling.temperature, [](double value) { return value >= 0 && value <= 2; }, "temperature must be in [0, 2]"));
  PS_RETURN_IF_ERROR(
      limit(sampling.top_p, [](double value) { return value > 0 && value <= 1; }, "top_p must be in (0, 1]"));
  PS_RETURN_IF_ERROR(read_seed(fields, sampling.seed));
  PS_RETURN_IF_ERROR(limit(
      sampling.top_k, [](int64_t value) { return value >= 0 && value <= INT32_MAX; }, "top_k must be in [0, 2^31)"));
  PS_RETURN_IF_ERROR(limit(sampling.min_p, is_share, "min_p must be in [0, 1]"));
  PS_RETURN_IF_ERROR(limit(
      sampling.repetition_penalty, [](double value) { return value >= 0.01 && value <= 10; },
      "repetition_penalty must be in [0.01, 10]"));
  PS_RETURN_IF_ERROR(read_logit_bias(fields, sampling.logit_bias));
  return read_top_logprobs(fields, sampling);
}

Status check_stop(const SamplingFields& sampling) {
  if (sampling.stops.size() <= kMaxStops) return {};
  return Status::invalid("ChatCompletionStopSequences string array too long: " + std::to_string(sampling.stops.size()));
}

Status read_stream(const JsonFields& fields, ChatCompletionsRequest& request) {
  PS_RETURN_IF_ERROR(fields.read("stream", request.is_stream));
  PS_TRY(const JsonValue* const options, fields.object("stream_options"));
  if (options == nullptr) return {};
  PS_TRY(const JsonFields option_fields, JsonFields::of(*options, "stream_options"));
  return option_fields.read("include_usage", request.includes_usage);
}

// ---- The conversation ----

struct ThinkingFields {
  std::optional<bool> is_on;          // an explicit switch
  const JsonValue* effort = nullptr;  // reasoning_effort
  std::string effort_path = "reasoning_effort";
};

Status read_thinking_switch(const JsonFields& fields, ThinkingFields& thinking) {
  PS_TRY(const JsonValue* const object, fields.object("thinking"));
  if (object == nullptr) return {};
  PS_TRY(const JsonFields switch_fields, JsonFields::of(*object, "thinking"));
  PS_RETURN_IF_ERROR(switch_fields.require("type"));
  std::string type;
  PS_RETURN_IF_ERROR(switch_fields.read("type", type));
  std::optional<int64_t> budget;  // accepted as the API accepts it; the effort alone steers the length
  PS_RETURN_IF_ERROR(switch_fields.read("budget_tokens", budget));
  if (type == "enabled") {
    thinking.is_on = true;
  } else if (type == "disabled") {
    thinking.is_on = false;
  } else if (type != "adaptive") {
    return Status::invalid("thinking.type: unknown value '" + type + "'; legal: enabled, adaptive, disabled");
  }
  return {};
}

// Arguments of vLLM's and SGLang's chat templates. They give way to the API's own fields.
Status read_template_arguments(const JsonFields& fields, ThinkingFields& thinking, ChatRequest& chat) {
  PS_TRY(const JsonValue* const object, fields.object("chat_template_kwargs"));
  if (object == nullptr) return {};
  PS_TRY(const JsonFields arguments, JsonFields::of(*object, "chat_template_kwargs"));
  std::optional<bool> is_on;
  std::optional<bool> alias;
  PS_RETURN_IF_ERROR(arguments.read("thinking", is_on));
  PS_RETURN_IF_ERROR(arguments.read("enable_thinking", alias));
  if (is_on && alias && *is_on != *alias) {
    return Status::invalid("chat_template_kwargs: thinking and enable_thinking are one setting and must not differ");
  }
  if (!is_on) is_on = alias;
  if (!thinking.is_on) thinking.is_on = is_on;
  if (thinking.effort == nullptr) {
    thinking.effort = arguments.find("reasoning_effort");
    thinking.effort_path = "chat_template_kwargs.reasoning_effort";
  }
  return arguments.read("drop_thinking", chat.drop_thinking);
}

// encoding.md 2B.1: an explicit switch decides, else the effort, else the server.
Status read_thinking(const JsonFields& fields, const ChatDefaults& defaults, ChatRequest& chat) {
  ThinkingFields thinking;
  thinking.effort = fields.find("reasoning_effort");
  PS_RETURN_IF_ERROR(read_thinking_switch(fields, thinking));
  PS_RETURN_IF_ERROR(read_template_arguments(fields, thinking, chat));
  std::optional<ReasoningEffort> effort;
  if (thinking.effort != nullptr) {
    PS_TRY(effort, read_reasoning_effort(*thinking.effort, thinking.effort_path));
  }
  if (thinking.is_on) {
    chat.is_thinking = *thinking.is_on;
  } else {
    chat.is_thinking = thinking.effort != nullptr ? effort.has_value() : defaults.is_thinking;
  }
  chat.effort = effort.value_or(ReasoningEffort::high());
  return {};
}

Status read_tool_choice(const JsonFields& fields, ToolChoice& choice) {
  constexpr std::string_view kLegal =
      "legal: none, auto, required, {\"type\": \"function\", \"function\": {\"name\": ...}}";
  const JsonValue* value = fields.find("tool_choice");
  if (value == nullptr) return {};
  if (value->is_string()) {
    if (value->text() == "none") {
      choice.kind = ToolChoice::Kind::kNone;
    } else if (value->text() == "required") {
      choice.kind = ToolChoice::Kind::kRequired;
    } else if (value->text() != "auto") {
      return Status::invalid(
          std::string("tool_choice: unknown value '").append(value->text()).append("'; ").append(kLegal));
    }
    return {};
  }
  const JsonValue* function = value->find("function");
  const JsonValue* name = function == nullptr ? nullptr : function->find("name");
  const JsonValue* type = value->find("type");
  if (name == nullptr || !name->is_string() ||
      (type != nullptr && (!type->is_string() || type->text() != "function"))) {
    return Status::invalid(std::string("tool_choice: ").append(kLegal));
  }
  choice = {ToolChoice::Kind::kNamed, name->text()};
  return {};
}

Status read_response_format(const JsonFields& fields, ResponseFormat& format) {
  PS_TRY(const JsonValue* const object, fields.object("response_format"));
  if (object == nullptr) return {};
  PS_TRY(const JsonFields format_fields, JsonFields::of(*object, "response_format"));
  PS_RETURN_IF_ERROR(format_fields.require("type"));
  PS_RETURN_IF_ERROR(format_fields.read("type", format.type));
  if (format.type == "text") return {};
  if (format.type == "json_object") {
    format.kind = ResponseFormat::Kind::kJsonObject;
  } else if (format.type == "json_schema") {
    format.kind = ResponseFormat::Kind::kJsonSchema;
    PS_RETURN_IF_ERROR(format_fields.require("json_schema"));
    PS_TRY(const JsonValue* const schema, format_fields.object("json_schema"));
    format.schema = *schema;
  } else {
    format.kind = ResponseFormat::Kind::kOther;
  }
  return {};
}

Status read_ending(const JsonFields& fields, ChatRequest& chat) {
  std::optional<bool> has_header;
  bool continues = false;
  PS_RETURN_IF_ERROR(fields.read("add_generation_prompt", has_header));
  PS_RETURN_IF_ERROR(fields.read("continue_final_message", continues));
  if (continues && has_header.value_or(false)) {
    return Status::invalid("continue_final_message and add_generation_prompt cannot both be true");
  }
  chat.ending = continues                   ? PromptEnding::kContinue
                : has_header.value_or(true) ? PromptEnding::kReply
                                            : PromptEnding::kNoHeader;
  return {};
}

Status read_chat(const JsonFields& fields, const ChatDefaults& defaults, ChatRequest& chat) {
  for (const std::string_view old : {"functions", "function_call"}) {
    if (fields.find(old) != nullptr) {
      return Status::invalid(std::string(old).append(": not supported; use tools and tool_choice"));
    }
  }
  PS_RETURN_IF_ERROR(fields.require("messages"));
  PS_TRY(chat.messages, read_chat_messages(*fields.find("messages"), "messages"));
  if (const JsonValue* tools = fields.find("tools")) {
    PS_TRY(chat.tools, read_tool_definitions(*tools, "tools"));
  }
  PS_RETURN_IF_ERROR(read_tool_choice(fields, chat.tool_choice));
  PS_RETURN_IF_ERROR(read_response_format(fields, chat.response_format));
  PS_RETURN_IF_ERROR(read_ending(fields, chat));
  return read_thinking(fields, defaults, chat);
}

}  // namespace

Result<ChatCompletionsRequest> parse_chat_completions(std::string_view body, const ChatDefaults& defaults) {
  PS_TRY(const JsonValue value, JsonValue::parse(body, kChatBodyLimits));
  return read_chat_completions(value, defaults);
}

Result<ChatCompletionsRequest> read_chat_completions(const JsonValue& body, const ChatDefaults& defaults) {
  PS_TRY(const JsonFields fields, JsonFields::of(body, ""));
  ChatCompletionsRequest request;
  PS_RETURN_IF_ERROR(fields.require("model"));
  PS_RETURN_IF_ERROR(fields.read("model", request.model));
  PS_RETURN_IF_ERROR(read_chat(fields, defaults, request.chat));
  PS_RETURN_IF_ERROR(read_sampling_types(fields, request.sampling, request.answers));
  PS_RETURN_IF_ERROR(read_stream(fields, request));

  PS_RETURN_IF_ERROR(check_answers(request.answers, defaults.most_answers));
  PS_RETURN_IF_ERROR(check_sampling(fields, request.sampling));
  PS_RETURN_IF_ERROR(check_stop(request.sampling));
  if (fields.find("stream_options") != nullptr && !request.is_stream) {
    return Status::invalid("stream_options should be set along with stream = true");
  }
  return request;
}

std::string openai_error_body(const Status& status) {
  const std::string_view type =
      status.ok() || status.code() == Code::kInvalid ? "invalid_request_error" : "internal_error";
  JsonWriter body(JsonWriter::Style::kCompact);
  body.begin_object().key("error").begin_object();
  body.key("message")
      .string(lossy_utf8(status.message()))
      .key("type")
      .string(type)
      .key("param")
      .null()
      .key("code")
      .string(type);
  return std::move(body.end_object().end_object()).text();
}

}  // namespace ps::text
