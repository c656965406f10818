// The AnswerFormat of every chat surface: text through the output parser into a ChatReply.
//
// Ends a sequence at a stop string, at the end of its block of calls, and after its first call where only one is
// wanted.
// Threading: the I/O thread, but whole().
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/answer_job.h"
#include "server/chat_reply.h"
#include "text/output_parser.h"
#include "text/tokenizer.h"
#include "text/tool_call_memory.h"

namespace ps::server {

struct ChatFormatOptions {
  text::ParserOptions parser;
  size_t choices = 1;
  bool is_stream = false;
  bool allows_parallel_calls = true;
  int64_t max_tokens = 0;            // for the warning
  std::string_view max_tokens_name;  // as the client spelled it; empty: it set no limit. Of static life
  ErrorReply error = error_reply;
  std::string length_problem;  // goes before what the engine says of a prompt and a limit that do not fit; may be empty
};

class ChatFormat final : public AnswerFormat {
 public:
  // REQUIRES: memory outlives it.
  ChatFormat(ChatFormatOptions options, std::unique_ptr<ChatReply> reply,
             std::shared_ptr<const text::Tokenizer> tokenizer, text::ToolCallMemory& memory);

  bool take(size_t index, const Generation& generation, TextDelta delta, std::string* events) override;
  void close(const std::vector<Generation>&, std::string&) override {}
  void fail(const ApiError& error, std::string& events) override { reply_->fail(error, events); }
  HttpReply refuse(const ApiError& error) override;
  HttpReply whole(const std::vector<Generation>& generations) override;

 private:
  struct Choice {
    explicit Choice(const text::ParserOptions& options) : parser(options) {}
    text::OutputParser parser;
    std::vector<text::ToolCall> calls;  // as delivered
    std::vector<ReplyToken> tokens;     // whose text is held back
    bool has_answer = false;            // text or a call, besides thoughts
    int64_t answer_tokens = 0;
    int64_t reasoning_tokens = 0;
    ReplyEnd end;
  };

  void count(Choice& choice, const Generation& generation);
  // Keeps the tokens of thought and answer until their text comes out.
  void keep_tokens(Choice& choice, const Generation& generation, std::span<const TokenDetail> details) const;
  // Those whose text is among the events of `parsed_`. Tokens that turned out to be marks are dropped.
  [[nodiscard]] static std::vector<ReplyToken> release_tokens(Choice& choice, text::OutputParser::Section before,
                                                              std::span<const text::ParserEvent> events);
  // Drops what stands in `parsed_` behind the first call, where only one is wanted; true if one is complete.
  [[nodiscard]] bool cut_after_call();
  void note_events(size_t index);
  void end_choice(size_t index, text::FinishReason reason);
  [[nodiscard]] ReplyUsage usage() const;

  ChatFormatOptions options_;
  std::unique_ptr<ChatReply> reply_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  text::ToolCallMemory& memory_;
  std::vector<Choice> choices_;
  std::vector<text::ParserEvent> parsed_;  // of the present call
  std::string warning_;
  int64_t prompt_tokens_ = 0;
  int64_t cached_tokens_ = 0;
  bool has_started_ = false;
};

}  // namespace ps::server
