// The text that the model reads, made from a conversation (encoding.md section 2).
//
// Two encoders exist and disagree in places. kRecipe is that of the hosted API (2B) and the default of servers; kModel
// is that of the model repository (2A), which vLLM and SGLang follow. Both check the request first: tools, messages,
// response format, in this order, and the first failure wins. Its message is the one that the API prints (5.3); errors
// are always `invalid`. Must not know: wire formats, token ids, whether the server can see images.
// Threading: pure functions; ToolCallMemory locks itself.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/chat.h"
#include "text/output_parser.h"
#include "text/tokenizer.h"

namespace ps::text {

class ToolCallMemory;

enum class ChatEncoding : uint8_t { kRecipe, kModel };

struct EncodeOptions {
  ChatEncoding encoding = ChatEncoding::kRecipe;
  bool starts_with_bos = true;
  ToolCallMemory* memory = nullptr;  // exact bytes of calls that the model wrote; may be nullptr
};

// An image of the conversation and its placeholder in the prompt.
struct PromptImage {
  size_t offset = 0;   // of the placeholder in Prompt::text
  size_t length = 0;   // of the placeholder, bytes
  size_t message = 0;  // index in ChatRequest::messages
  size_t part = 0;     // index in that message's content
};

struct Prompt {
  std::string text;
  std::vector<TextRange> literal;   // what users, tools and earlier answers wrote; ascending, disjoint, not empty
  std::vector<PromptImage> images;  // in the order of their placeholders
  std::vector<size_t> tools;        // indices in ChatRequest::tools of those that the model is shown
  bool is_call_forced = false;      // tool_choice required or named: the prompt ends inside the block of calls
  ParserOptions parser;             // how the output has to be read; stop strings are the caller's to add
};

// NOTE: a caller that cannot see images must refuse a prompt with any; dropping them silently is not an option.
[[nodiscard]] Result<Prompt> encode_prompt(const ChatRequest& request, const EncodeOptions& options = {});

// Ids of a prompt. Control tokens come from the encoder's own text only: inside `literal` a typed "<｜User｜>" or
// "</think>" stays plain characters (encoding.md 1.4). Every placeholder becomes one image token, under either of its
// spellings. unsupported: there are images, and the tokenizer has no image token.
[[nodiscard]] Result<std::vector<TokenId>> tokenize_prompt(const Prompt& prompt, const Tokenizer& tokenizer);

}  // namespace ps::text
