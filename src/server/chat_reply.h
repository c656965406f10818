// What a chat surface does with the model's parsed output: turn it into the bytes that its clients read, as a stream of
// server-sent events or as one body. One reply object serves one request with all of its choices.
//
// The caller drives: start() once, deliver() as text arrives, finish() once per choice; after the last one the answer
// is complete. fail() may take the place of everything that is still to come. What a call appends to `out` is ready to
// be sent; a reply that is no stream appends its body in the last finish() only.
// Must not know: sockets, the engine, how text is parsed. Threading: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_error.h"
#include "text/output_parser.h"

namespace ps::server {

struct ReplyHead {
  std::string id;           // letters and digits; surfaces put their prefix in front
  int64_t created = 0;      // seconds since 1970
  std::string model;        // as the client is told
  std::string fingerprint;  // of model and build
  bool is_thinking = false;
};

// Counts of tokens; those of the answer add up over the choices.
struct ReplyUsage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt
  int64_t answer_tokens = 0;
  int64_t reasoning_tokens = 0;  // of the answer
};

// A sampled token, where its log-probability was asked for.
struct ReplyToken {
  struct Alternative {
    std::string bytes;
    float logprob = 0;
  };
  std::string bytes;  // what the token stands for; may be part of a character
  float logprob = 0;
  std::vector<Alternative> top;  // likeliest first
  bool is_reasoning = false;     // sampled inside the thought
};

// How a choice ended.
struct ReplyEnd {
  text::FinishReason reason = text::FinishReason::kStop;
  std::optional<std::string> stop_string;  // that was met
  ReplyUsage usage;                        // of all choices so far
};

class ChatReply {
 public:
  virtual ~ChatReply() = default;
  // Before any text; the prompt's counts are known.
  virtual void start(const ReplyUsage& usage, std::string& out) = 0;
  virtual void deliver(size_t choice, std::span<const text::ParserEvent> events, std::span<const ReplyToken> tokens,
                       std::string& out) = 0;
  virtual void finish(size_t choice, const ReplyEnd& end, std::string& out) = 0;
  // Streams only: the event that says why the stream breaks off.
  virtual void fail(const ApiError& error, std::string& out) = 0;
  // The id under which clients know a call; call counts within the choice.
  [[nodiscard]] virtual std::string call_id(size_t choice, int32_t call) const = 0;
};

// What the events of one choice add up to.
struct CollectedOutput {
  struct Call {
    std::string name;
    std::string arguments;
  };
  std::string reasoning;
  std::string content;
  std::vector<Call> calls;

  void add(const text::ParserEvent& event);
};

// "<prefix><id>_<call>", with the choice between them where it is not the first: an id is unique within its answer.
[[nodiscard]] std::string call_id_text(std::string_view prefix, std::string_view id, size_t choice, int32_t call);

}  // namespace ps::server
