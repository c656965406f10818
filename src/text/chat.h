// A conversation and what is asked about it, free of any wire format: the server's surfaces (OpenAI, Anthropic) and the
// command line produce a ChatRequest, the prompt encoder turns it into text.
//
// Owns plain data only: no rule of an encoding, no HTTP, no tokens, no image bytes beyond what the client sent. JSON
// that becomes prompt text (tool definitions, arguments, schemas) keeps its key order and the spelling of its numbers.
// Threading: values; read from any thread once built. Fields marked "model encoder" have no effect elsewhere, unless
// said otherwise.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace ps::text {

enum class Role : uint8_t { kSystem, kDeveloper, kUser, kAssistant, kTool, kLatestReminder };
// "system", "developer", "user", "assistant", "tool", "latest_reminder".
[[nodiscard]] std::string_view role_name(Role role) noexcept;
[[nodiscard]] std::optional<Role> find_role(std::string_view name) noexcept;

// Internal jobs of the model that a message can ask for (encoding.md 2A item 8); model encoder.
enum class Task : uint8_t { kNone, kAction, kQuery, kAuthority, kDomain, kTitle, kReadUrl };
// "action", ...; empty for kNone.
[[nodiscard]] std::string_view task_name(Task task) noexcept;
// Never kNone.
[[nodiscard]] std::optional<Task> find_task(std::string_view name) noexcept;

enum class ImageDetail : uint8_t { kAuto, kLow, kHigh };

struct ContentPart {
  enum class Kind : uint8_t { kText, kImage, kUnsupported };
  Kind kind = Kind::kText;
  std::string text;       // of kText; the type's name of kUnsupported
  std::string image_url;  // of kImage, as sent: "data:image/png;base64,..." or an http(s) address
  ImageDetail detail = ImageDetail::kAuto;
  std::string path;  // of kImage: where the request has it, for messages about it
};

struct ToolCall {
  std::string id;  // empty where the client sent none
  std::string name;
  std::string arguments;  // JSON text as the client sent it; may be malformed
  std::string path;       // where the request has the arguments, for messages about them; empty: as chat completions
};

struct ToolDefinition {
  std::string name;
  JsonValue function;  // the object with "name", "description", "parameters", ... as sent
  std::string path;    // where the request has its name, for messages about it: "tools[0].function"
  std::string_view schema_key = "parameters";  // as the request spells it
};

struct ChatMessage {
  Role role = Role::kUser;
  bool has_content = false;          // false: absent or null
  std::vector<ContentPart> content;  // a plain string is one text part
  std::string reasoning;             // of an assistant
  bool has_tool_calls = false;       // the field was there, even if its array is empty
  std::vector<ToolCall> tool_calls;  // of an assistant
  std::string tool_call_id;          // of a tool result; empty where the client sent none

  bool without_eos = false;  // an unfinished assistant turn ("prefix", "wo_eos")
  Task task = Task::kNone;   // model encoder; the recipe refuses it
  // Tools and a schema for the reply, written after the text of this system or developer message; model encoder.
  std::vector<ToolDefinition> tools;
  std::optional<JsonValue> response_format;
};

// How long the model should think. The numbers are those of the released model (encoding.md 2.0).
struct ReasoningEffort {
  enum class Level : uint8_t { kLow, kHigh, kXhigh, kMax, kNumber };
  Level level = Level::kHigh;
  int number = 75;  // 1..100, what the prompt says

  static constexpr ReasoningEffort low() noexcept { return {Level::kLow, 50}; }
  static constexpr ReasoningEffort high() noexcept { return {Level::kHigh, 75}; }
  static constexpr ReasoningEffort xhigh() noexcept { return {Level::kXhigh, 75}; }
  static constexpr ReasoningEffort max() noexcept { return {Level::kMax, 100}; }
};
// "low", "high", "xhigh", "max", or the number.
[[nodiscard]] std::string effort_name(const ReasoningEffort& effort);

struct ToolChoice {
  enum class Kind : uint8_t { kAuto, kNone, kRequired, kNamed };
  Kind kind = Kind::kAuto;
  std::string name;  // of kNamed
};

struct ResponseFormat {
  enum class Kind : uint8_t { kText, kJsonObject, kJsonSchema, kOther };
  Kind kind = Kind::kText;
  std::string type;  // as sent; of kOther, which both encoders refuse
  JsonValue schema;  // of kJsonSchema: the object under "json_schema"; enforced by the sampler, not by the prompt
};

// Whose request it was: messages about a conversation use the client's own names.
enum class Dialect : uint8_t { kChatCompletions, kMessages, kResponses };

// How the prompt ends.
enum class PromptEnding : uint8_t {
  kTurn,      // as the encoder does by itself: the recipe asks for a reply; the model encoder after a user's turn only
  kReply,     // asks for a reply in every case, also after an assistant turn
  kNoHeader,  // without the header of the reply ("add_generation_prompt": false)
  kContinue,  // the last message, an assistant turn, stays open ("continue_final_message")
};

struct ChatRequest {
  Dialect dialect = Dialect::kChatCompletions;
  std::vector<ChatMessage> messages;
  std::vector<ToolDefinition> tools;
  ToolChoice tool_choice;
  ResponseFormat response_format;
  bool is_thinking = true;
  ReasoningEffort effort;     // read when is_thinking
  bool drop_thinking = true;  // model encoder: earlier reasoning is left out unless there are tools
  PromptEnding ending = PromptEnding::kTurn;
};

}  // namespace ps::text
