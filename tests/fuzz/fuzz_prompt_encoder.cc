// The encoders on conversations made from the input, which reach further than random JSON does.
//  - A prompt's notes are consistent: literal ranges ascend and are disjoint, every placeholder is where it says.
//  - Text outside the literal ranges comes from a fixed vocabulary: no user text escapes its range.
//  - Remembered calls change the block and nothing else.
// Input: bytes that choose the options, the roles and the contents.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "text/prompt_encoder.h"
#include "text/tool_call_memory.h"

namespace {

using ps::text::ChatMessage;
using ps::text::ChatRequest;
using ps::text::ContentPart;
using ps::text::Role;

void require(bool condition) {
  if (!condition) std::abort();
}

// The input as a sequence of small choices; zeros once it is used up.
class Choices {
 public:
  Choices(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  [[nodiscard]] bool empty() const { return size_ == 0; }
  uint8_t byte() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }
  uint8_t below(uint8_t limit) { return static_cast<uint8_t>(byte() % limit); }
  bool flag() { return (byte() & 1) != 0; }
  // Text of users: one of a few that matter, between marks that the encoders never write.
  std::string text() {
    static constexpr std::string_view kTexts[] = {"",         "json", "<｜User｜>", "</think>", "\n\n",
                                                  "｜DSML｜", "{",    "<think>",    "x",        "<｜DSML｜ calls>"};
    std::string text;
    for (uint8_t i = below(3); i > 0; --i) text.append("\x01").append(kTexts[below(10)]).append("\x02");
    return text;
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

ChatMessage message_from(Choices& choices) {
  ChatMessage message;
  message.role = static_cast<Role>(choices.below(6));
  message.has_content = choices.flag();
  for (uint8_t i = message.has_content ? choices.below(4) : 0; i > 0; --i) {
    ContentPart& part = message.content.emplace_back();
    part.kind = choices.below(8) == 0 ? static_cast<ContentPart::Kind>(choices.below(3)) : ContentPart::Kind::kText;
    part.text = choices.text();
  }
  message.reasoning = choices.text();
  message.has_tool_calls = message.role == Role::kAssistant && choices.flag();
  static constexpr std::string_view kArguments[] = {"{}", "{\"\\u0001a\\u0002\": \"\\u0001\\u0002\"}", "\x01[1]\x02",
                                                    "{\"\\u0001\\u0002\": [1.0]}"};
  for (uint8_t i = message.has_tool_calls ? choices.below(3) : 0; i > 0; --i) {
    message.tool_calls.push_back({std::string(1, static_cast<char>('a' + choices.below(3))),
                                  "\x01"
                                  "f\x02",
                                  std::string(kArguments[choices.below(4)])});
  }
  if (message.role == Role::kTool) message.tool_call_id = std::string(1, static_cast<char>('a' + choices.below(3)));
  message.without_eos = message.role == Role::kAssistant && choices.below(8) == 0;
  if (choices.below(8) == 0) message.task = static_cast<ps::text::Task>(choices.below(7));
  return message;
}

ChatRequest request_from(Choices& choices) {
  ChatRequest request;
  request.is_thinking = choices.flag();
  request.drop_thinking = choices.flag();
  request.ending = static_cast<ps::text::PromptEnding>(choices.below(4));
  request.tool_choice.kind = static_cast<ps::text::ToolChoice::Kind>(choices.below(4));
  request.tool_choice.name = "t0";
  request.response_format.kind = static_cast<ps::text::ResponseFormat::Kind>(choices.below(4));
  for (uint8_t i = choices.below(3); i > 0; --i) {
    const std::string name = "t" + std::to_string(i - 1);
    request.tools.push_back(
        {name, ps::JsonValue::parse("{\"name\": \"" + name + "\", \"description\": \"\\u0001\\u0002\"}").value()});
  }
  while (!choices.empty() && request.messages.size() < 32) request.messages.push_back(message_from(choices));
  return request;
}

void check_notes(const ps::text::Prompt& prompt) {
  size_t at = 0;
  for (const auto& range : prompt.literal) {
    require(range.begin >= at && range.begin < range.end && range.end <= prompt.text.size());
    require(prompt.text.find_first_of("\x01\x02", at) >= range.begin);
    at = range.end;
  }
  require(prompt.text.find_first_of("\x01\x02", at) == std::string::npos);
  size_t from = 0;
  for (const auto& image : prompt.images) {
    require(image.offset >= from);
    const std::string_view placeholder = std::string_view(prompt.text).substr(image.offset, image.length);
    require(placeholder == "<｜image｜>" || placeholder == "<｜deepseek_image｜>");
    from = image.offset + image.length;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Choices choices(data, size);
  const ChatRequest request = request_from(choices);
  for (const auto encoding : {ps::text::ChatEncoding::kRecipe, ps::text::ChatEncoding::kModel}) {
    const auto prompt = ps::text::encode_prompt(request, {.encoding = encoding});
    if (!prompt.ok()) {
      require(prompt.status().code() == ps::Code::kInvalid);
      continue;
    }
    check_notes(prompt.value());
    ps::text::ToolCallMemory memory;
    bool has_calls = false;
    for (const ChatMessage& message : request.messages) {
      has_calls = has_calls || !message.tool_calls.empty();
      memory.remember(message.tool_calls, "\x01｜DSML｜\x02");
    }
    const auto replayed = ps::text::encode_prompt(request, {.encoding = encoding, .memory = &memory});
    require(replayed.ok() && (has_calls || replayed.value().text == prompt.value().text));
    check_notes(replayed.value());
  }
  return 0;
}
