// Runs a suite through the engine, many sequences at once, and judges what comes.
//
// A text gives the log-probability of each of its tokens; an answer is generated greedily and compared. Must not know:
// how results are added up or shown. Threading: one caller; the engine is used by nobody else meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "apps/eval/suite.h"
#include "base/status.h"
#include "engine/engine.h"
#include "text/tokenizer.h"

namespace ps::apps::eval {

struct TextOutcome {
  std::string id;
  std::string source;
  int64_t tokens = 0;  // predicted ones: all but the first
  int64_t bytes = 0;
  double loss = 0;  // sum of negative log-probabilities, in nats
};

struct ToolOutcome {
  bool is_expected = false;  // the right answer has calls
  bool is_made = false;      // the given answer has a block of calls
  bool is_valid = false;     // written as the format says, and fitting the offered tools
  bool is_correct = false;   // the expected tools with the expected arguments
  std::string fault;         // why it is not valid
};

struct AnswerOutcome {
  const AnswerCase* asked = nullptr;
  std::string text;       // what the model wrote
  bool ended = false;     // by itself
  bool is_exact = false;  // the expected text, thinking included, and nothing else
  bool is_right = false;  // the expected text behind the thinking
  std::optional<ToolOutcome> tools;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t answer_tokens = 0;
};

struct Outcomes {
  std::vector<TextOutcome> texts;      // in the order of the suite
  std::vector<AnswerOutcome> answers;  // likewise
  double seconds = 0;
};

struct RunOptions {
  // Every prompt is sent twice, and what counts is the second answer, whose prompt the prefix cache serves.
  bool warm = false;
};

// Judges one answer. REQUIRES: `outcome.asked`, `text` and `ended` are set.
void judge(AnswerOutcome& outcome);

// Token ids of a window, first and last token included; of a prompt.
[[nodiscard]] std::vector<int32_t> window_tokens(const TextWindow& window, const text::Tokenizer& tokenizer);
// Tokens that an answer may have: room for a wrong one to show itself.
[[nodiscard]] int64_t answer_room(int64_t expected_tokens) noexcept;

// The longest sequence that running the suite needs, in tokens.
[[nodiscard]] int64_t longest_sequence(const Suite& suite, const text::Tokenizer& tokenizer);

// `progress(done, total)` in prompt tokens. Fails with the place of the case that the engine refuses. REQUIRES: the
// suite outlives the outcomes.
[[nodiscard]] Result<Outcomes> run_suite(const Suite& suite, const text::Tokenizer& tokenizer, engine::Engine& engine,
                                         const RunOptions& options,
                                         const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace ps::apps::eval
