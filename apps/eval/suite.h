// An evaluation suite: held-out texts for perplexity, prompts with their right answers, facts hidden in texts.
//
// Read from JSON lines (docs/quality.md describes the records), one file or every *.jsonl of a folder in the order of
// their names. Texts are as they go to the tokenizer: control tokens are spelled out, nothing is added. Must not know:
// the tokenizer, the engine, how answers are judged. Threading: plain data.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace ps::apps::eval {

// Text behind a begin-of-sentence token, whose every token is to be predicted.
struct TextWindow {
  std::string id;
  std::string place;  // "suite/text.jsonl:12", for messages
  std::string source;
  std::string text;
  bool ends = false;  // the end-of-sentence token belongs to it
};

// One answer to be given greedily.
struct AnswerCase {
  std::string id;  // of the record; the second and later turns of a conversation have "/1", "/2" behind it
  std::string place;
  std::string skill;  // "needle" for a hidden fact
  std::string prompt;
  std::string answer;
  std::vector<JsonValue> tools;  // definitions that the prompt offers; empty: calls are not judged
  int64_t needle_tokens = 0;     // nominal length of the text; 0 = no needle case
  double needle_depth = 0;       // 0 = at the beginning, 1 = right before the question
};

struct Suite {
  std::string sha256;  // of the content of its files, in order
  std::vector<TextWindow> windows;
  std::vector<AnswerCase> answers;
};

// not_found, or invalid with "file:line: what is wrong". An empty suite is invalid.
[[nodiscard]] Result<Suite> read_suite(const std::filesystem::path& path);

inline constexpr std::string_view kNeedleSkill = "needle";

// Which cases to keep. Empty lists and 0 keep all.
struct Selection {
  std::vector<std::string> parts;      // of text, skills, needle
  std::vector<std::string> skills;     // by name; says nothing about needles
  std::vector<int64_t> needle_tokens;  // nominal lengths
  int64_t limit = 0;  // the first so many windows, answers of a skill, and needles of a length and depth
};
// invalid, with the legal values, for what the suite does not have, and when nothing is left.
[[nodiscard]] Status select(Suite& suite, const Selection& selection);

}  // namespace ps::apps::eval
