// Reads the model's text as it arrives: reasoning, answer, tool calls, stop strings (encoding.md section 3).
//
// A state machine over bytes. Text that may still become a marker is held back, everything else flows at once; what is
// delivered does not depend on how the text was cut, except for the borders between deltas: a delta never spans two
// feed() calls, and the text of one feed() comes out only when all of it is decided. Where every feed() gets whole
// characters, every delta has whole characters. Both tag spellings (with and without a space after ｜DSML｜) are read.
// Must not know: tokens, HTTP, tool schemas. Threading: one thread at a time. Time is linear in the text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ps::text {

// Where the prompt left off.
enum class ParserStart : uint8_t {
  kReasoning,           // it ended with <think>; leading newlines are dropped
  kContent,             // it ended with </think>; leading newlines are dropped
  kToolCalls,           // it ended with the opening tag of a block of calls
  kContinuedReasoning,  // inside a thought that the client began
  kContinuedContent,    // inside an answer that the client began
};
// "reasoning", "content", "tool_calls", "continued_reasoning", "continued_content".
[[nodiscard]] std::string_view parser_start_name(ParserStart start) noexcept;

struct ParserOptions {
  ParserStart start = ParserStart::kContent;
  bool parses_tool_calls = false;  // off: markup of calls is plain text
  bool is_json_mode = false;       // the answer is JSON; a code fence around it and prose are removed
  std::vector<std::string> stops;  // matched in the answer only; empty ones are ignored
  // What an answer that ended by itself would otherwise swallow whole comes out as content in finish(): a block of
  // calls in which no call was found (pitfalls F2, F3, F13), and prose where JSON was asked for.
  bool returns_unparsed = true;
};

struct ParserEvent {
  enum class Kind : uint8_t {
    kReasoning,  // text: more of the thought
    kContent,    // text: more of the answer
    kCallStart,  // text: the tool's name; call
    kArguments,  // text: more of the JSON text of the arguments; call
    kCallEnd,    // the arguments of this call are complete; call
    kStop,       // a stop string was met: generation can end; stop is its index in ParserOptions::stops
  };
  Kind kind = Kind::kContent;
  std::string text;
  int32_t call = -1;  // 0, 1, ... in the order of the text
  int32_t stop = -1;
};

// Why generation ended, as the engine sees it.
enum class OutputEnd : uint8_t {
  kStop,           // end of sentence
  kLength,         // max_tokens
  kContentFilter,  // cut by a filter
  kUnknown,        // the source ended without a reason
};

// Why it ended, as a client is told (encoding.md 3.2).
enum class FinishReason : uint8_t { kStop, kLength, kToolCalls, kContentFilter, kStopSequence };
// OpenAI's names: "stop" (also for a stop sequence), "length", "tool_calls", "content_filter".
[[nodiscard]] std::string_view finish_reason_name(FinishReason reason) noexcept;

class OutputParser {
 public:
  enum class Section : uint8_t { kReasoning, kContent, kToolCalls, kFinished };

  explicit OutputParser(ParserOptions options);
  ~OutputParser();
  OutputParser(OutputParser&&) noexcept;
  OutputParser& operator=(OutputParser&&) noexcept;

  // Appends what the bytes decide to `events`. REQUIRES: finish() was not called.
  void feed(std::string_view bytes, std::vector<ParserEvent>& events);
  // Ends the text: held bytes come out as what they are. Call once.
  FinishReason finish(OutputEnd end, std::vector<ParserEvent>& events);

  // Where the next byte lands; for counting the tokens of the reasoning.
  [[nodiscard]] Section section() const noexcept;
  // Nothing that follows can produce an event: a stop string was met, or the block of calls was closed.
  [[nodiscard]] bool is_finished() const noexcept { return section() == Section::kFinished; }
  // Index in ParserOptions::stops of the string that was met.
  [[nodiscard]] std::optional<int32_t> stop_hit() const noexcept;
  // Calls whose name is complete.
  [[nodiscard]] int32_t call_count() const noexcept;

  // The exact bytes of the block of calls as they stand in the model's context: newlines before the opening tag, an
  // opening tag that the prompt gave, and all that followed. Empty where no block began. See tool_call_memory.h.
  [[nodiscard]] const std::string& tool_block() const noexcept;
  // The block's closing tag was seen.
  [[nodiscard]] bool is_tool_block_closed() const noexcept;

 private:
  class Machine;
  std::unique_ptr<Machine> machine_;
};

}  // namespace ps::text
