// Adds up the outcomes of a run: perplexity, right answers per skill, tool calls, recall by distance and depth; and
// shows them as tables. Must not know: the engine. Threading: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/eval/run.h"
#include "apps/eval/statistics.h"

namespace ps::apps::eval {

struct Rate {
  int64_t hits = 0;
  int64_t of = 0;
  void add(bool is_hit) noexcept {
    hits += is_hit ? 1 : 0;
    ++of;
  }
  [[nodiscard]] Interval interval() const noexcept { return wilson(hits, of); }
};

struct TextSummary {
  int64_t windows = 0;
  int64_t tokens = 0;
  int64_t bytes = 0;
  Interval perplexity;     // per token; windows are the independent units
  Interval bits_per_byte;  // likewise
};

struct SkillSummary {
  std::string skill;
  Rate exact;  // the whole answer
  Rate right;  // the reply behind the thinking
};

struct ToolSummary {
  Rate made;     // of the answers that need calls: those with a block of calls
  Rate valid;    // of all blocks: written and typed as the format and the tools say
  Rate correct;  // of the answers that need calls: the right tools with the right arguments
  Rate quiet;    // of the answers without calls: those that have none
};

struct NeedleSummary {
  int64_t tokens = 0;  // nominal
  double depth = 0;
  Rate exact;
};

struct Summary {
  std::optional<TextSummary> text;
  std::vector<SkillSummary> skills;  // in the order of the suite
  std::optional<ToolSummary> tools;
  std::vector<NeedleSummary> needles;  // by tokens, then depth
};

[[nodiscard]] Summary summarize(const Outcomes& outcomes);

// For the terminal. A table is left out when it has no cases.
[[nodiscard]] std::string to_text(const Summary& summary);
// "93.8 % [85.0, 97.5]".
[[nodiscard]] std::string percent_text(const Interval& share);

// `count` answers of each skill, wrong ones first: the end of the prompt, what was expected, what came.
[[nodiscard]] std::string show_answers(const Outcomes& outcomes, int64_t count);

// Recall by distance (columns) and depth (rows) as a stand-alone SVG picture. REQUIRES: needles.
[[nodiscard]] std::string heat_map_svg(const std::vector<NeedleSummary>& needles, const std::string& title);

}  // namespace ps::apps::eval
