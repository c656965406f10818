// The JSON report of a run, and the comparison of a run with the report of an earlier one on the same cases.
//
// Both directions of the format are here: what is written is what is read back. Threading: pure functions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "apps/eval/run.h"
#include "apps/eval/summary.h"
#include "base/json.h"
#include "base/status.h"

namespace ps::apps::eval {

// What tells one run from another, as (name, value).
using Settings = std::vector<std::pair<std::string, std::string>>;

struct ReportHead {
  std::string model;
  std::string suite;
  std::string suite_sha256;
  Settings settings;
};

// What a comparison needs of an earlier run.
struct Baseline {
  struct Text {
    int64_t tokens = 0;
    double loss = 0;
  };
  struct Answer {
    bool is_exact = false;
    bool is_right = false;
    std::string text;
  };
  ReportHead head;
  std::map<std::string, Text, std::less<>> texts;
  std::map<std::string, Answer, std::less<>> answers;
};

// invalid with the file and what is wrong in it.
[[nodiscard]] Result<Baseline> read_report(const std::filesystem::path& path);

// One line of a comparison: a skill, a distance, or all of them.
struct ComparisonRow {
  std::string name;
  PairedCounts exact;
  int64_t hits_before = 0;
  int64_t hits_now = 0;
  int64_t same_text = 0;  // cases whose answers are equal to the byte
  void add(bool before, bool now, bool is_same_text) noexcept;
};

struct Comparison {
  int64_t windows = 0;
  int64_t same_windows = 0;  // of which the losses are equal to the bit
  Interval loss_difference;  // nats per token, now less before; windows are the independent units
  std::vector<ComparisonRow> rows;
  int64_t unmatched = 0;  // cases of this run that the earlier one lacks
};

// Cases are matched by id. invalid when the suites differ, or no case is in both.
[[nodiscard]] Result<Comparison> compare(const Baseline& before, const ReportHead& head, const Outcomes& now);
[[nodiscard]] std::string to_text(const Comparison& comparison, const Baseline& before, const ReportHead& head);

// `comparison` and `before` may be nullptr, together.
[[nodiscard]] std::string report_json(const ReportHead& head, const Outcomes& outcomes, const Summary& summary,
                                      const Comparison* comparison, const Baseline* before);
void write_comparison(JsonWriter& json, const Comparison& comparison, const Baseline& before);

}  // namespace ps::apps::eval
