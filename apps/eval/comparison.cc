// Two runs on the same cases; see report.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "apps/eval/report.h"
#include "apps/text_table.h"
#include "apps/units.h"
#include "base/json.h"

namespace ps::apps::eval {
namespace {

std::string points(const Interval& difference) {
  return fmt::format("{:+.1f} [{:+.1f}, {:+.1f}]", 100 * difference.value, 100 * difference.low, 100 * difference.high);
}

ComparisonRow& row_named(std::vector<ComparisonRow>& rows, const std::string& name) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return row.name == name; });
  if (found != rows.end()) return *found;
  rows.push_back({.name = name});
  return rows.back();
}

std::string row_name(const AnswerCase& asked) {
  return asked.needle_tokens > 0 ? fmt::format("needle {}", grouped(asked.needle_tokens)) : asked.skill;
}

void compare_texts(const Baseline& before, const Outcomes& now, Comparison& comparison) {
  std::vector<Cluster> differences;
  for (const TextOutcome& text : now.texts) {
    const auto found = before.texts.find(text.id);
    if (found == before.texts.end() || found->second.tokens != text.tokens) {
      ++comparison.unmatched;
      continue;
    }
    differences.push_back({static_cast<double>(text.tokens), text.loss - found->second.loss});
    if (text.loss == found->second.loss) ++comparison.same_windows;
  }
  comparison.windows = std::ssize(differences);
  if (!differences.empty()) comparison.loss_difference = clustered_mean(differences);
}

// What differs between the settings of two runs: "index-cache-dtype fp4 -> fp8".
std::string settings_difference(const ReportHead& before, const ReportHead& now) {
  std::vector<std::string> parts;
  const auto value_in = [](const Settings& settings, const std::string& name) {
    const auto found = std::find_if(settings.begin(), settings.end(), [&](const auto& s) { return s.first == name; });
    return found == settings.end() ? std::string("?") : found->second;
  };
  if (before.model != now.model) parts.push_back(fmt::format("model {} -> {}", before.model, now.model));
  for (const auto& [name, value] : now.settings) {
    const std::string old = value_in(before.settings, name);
    if (old != value) parts.push_back(fmt::format("{} {} -> {}", name, old, value));
  }
  return parts.empty() ? "nothing" : fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

void ComparisonRow::add(bool before, bool now, bool is_same_text) noexcept {
  ++exact.cases;
  if (before && !now) ++exact.only_first;
  if (now && !before) ++exact.only_second;
  hits_before += before ? 1 : 0;
  hits_now += now ? 1 : 0;
  same_text += is_same_text ? 1 : 0;
}

Result<Comparison> compare(const Baseline& before, const ReportHead& head, const Outcomes& now) {
  if (before.head.suite_sha256 != head.suite_sha256) {
    return Status::invalid(fmt::format("the report is of another suite ({}, SHA-256 {}...); this one is {}...",
                                       before.head.suite, before.head.suite_sha256.substr(0, 12),
                                       head.suite_sha256.substr(0, 12)));
  }
  Comparison comparison;
  compare_texts(before, now, comparison);
  ComparisonRow all{.name = "all answers"};
  for (const AnswerOutcome& answer : now.answers) {
    const auto found = before.answers.find(answer.asked->id);
    if (found == before.answers.end()) {
      ++comparison.unmatched;
      continue;
    }
    const bool is_same = found->second.text == answer.text;
    row_named(comparison.rows, row_name(*answer.asked)).add(found->second.is_exact, answer.is_exact, is_same);
    all.add(found->second.is_exact, answer.is_exact, is_same);
  }
  if (all.exact.cases > 0) comparison.rows.push_back(all);
  if (comparison.windows == 0 && all.exact.cases == 0) {
    return Status::invalid("the report has none of the cases of this run");
  }
  return comparison;
}

std::string to_text(const Comparison& comparison, const Baseline& before, const ReportHead& head) {
  std::string text =
      fmt::format("Compared on the same cases; what changed: {}\n", settings_difference(before.head, head));
  if (comparison.windows > 0) {
    const Interval& loss = comparison.loss_difference;
    text += fmt::format("  text: loss per token {:+.5f} [{:+.5f}, {:+.5f}], {} of {} windows equal\n", loss.value,
                        loss.low, loss.high, comparison.same_windows, comparison.windows);
  }
  if (!comparison.rows.empty()) {
    TextTable table({{"exact answers", TextTable::Align::kLeft},
                     {"cases"},
                     {"before"},
                     {"now"},
                     {"difference in points"},
                     {"same text"}});
    for (const ComparisonRow& row : comparison.rows) {
      const auto cases = static_cast<double>(row.exact.cases);
      table.add_row({row.name, std::to_string(row.exact.cases),
                     fmt::format("{:.1f} %", 100 * static_cast<double>(row.hits_before) / cases),
                     fmt::format("{:.1f} %", 100 * static_cast<double>(row.hits_now) / cases),
                     points(paired_difference(row.exact)), std::to_string(row.same_text)});
    }
    text += table.to_string();
  }
  if (comparison.unmatched > 0) {
    text += fmt::format("  {} cases of this run are not in the report\n", comparison.unmatched);
  }
  return text;
}

void write_comparison(JsonWriter& json, const Comparison& comparison, const Baseline& before) {
  json.key("comparison").begin_object().key("model").string(before.head.model).key("settings").begin_object();
  for (const auto& [name, value] : before.head.settings) json.key(name).string(value);
  json.end_object();
  const auto bounds = [&](const char* key, const Interval& interval) {
    json.key(key).begin_object().key("value").real(interval.value);
    if (std::isfinite(interval.low)) json.key("low").real(interval.low).key("high").real(interval.high);
    json.end_object();
  };
  json.key("windows").integer(comparison.windows).key("same_windows").integer(comparison.same_windows);
  if (comparison.windows > 0) bounds("loss_difference", comparison.loss_difference);
  json.key("answers").begin_array();
  for (const ComparisonRow& row : comparison.rows) {
    json.begin_object().key("name").string(row.name).key("cases").integer(row.exact.cases);
    json.key("exact_before").integer(row.hits_before).key("exact_now").integer(row.hits_now);
    json.key("only_before").integer(row.exact.only_first).key("only_now").integer(row.exact.only_second);
    bounds("difference", paired_difference(row.exact));
    json.key("same_text").integer(row.same_text).end_object();
  }
  json.end_array().key("unmatched").integer(comparison.unmatched).end_object();
}

}  // namespace ps::apps::eval
