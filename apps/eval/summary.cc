#include "apps/eval/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <set>
#include <utility>

#include "apps/text_table.h"
#include "apps/units.h"
#include "base/json.h"

namespace ps::apps::eval {
namespace {

constexpr size_t kShownPromptBytes = 240;

TextSummary summarize_texts(const std::vector<TextOutcome>& texts) {
  TextSummary summary;
  std::vector<Cluster> per_token;
  std::vector<Cluster> per_byte;
  for (const TextOutcome& text : texts) {
    ++summary.windows;
    summary.tokens += text.tokens;
    summary.bytes += text.bytes;
    per_token.push_back({static_cast<double>(text.tokens), text.loss});
    per_byte.push_back({static_cast<double>(text.bytes), text.loss / std::numbers::ln2});
  }
  const Interval loss = clustered_mean(per_token);
  summary.perplexity = {std::exp(loss.value), std::exp(loss.low), std::exp(loss.high)};
  summary.bits_per_byte = clustered_mean(per_byte);
  return summary;
}

std::vector<SkillSummary> summarize_skills(const std::vector<AnswerOutcome>& answers) {
  std::vector<SkillSummary> skills;
  for (const AnswerOutcome& answer : answers) {
    const std::string& skill = answer.asked->skill;
    if (skill == kNeedleSkill) continue;
    auto found = std::find_if(skills.begin(), skills.end(), [&](const auto& row) { return row.skill == skill; });
    if (found == skills.end()) found = skills.insert(skills.end(), {skill, {}, {}});
    found->exact.add(answer.is_exact);
    found->right.add(answer.is_right);
  }
  return skills;
}

std::optional<ToolSummary> summarize_tools(const std::vector<AnswerOutcome>& answers) {
  std::optional<ToolSummary> summary;
  for (const AnswerOutcome& answer : answers) {
    if (!answer.tools) continue;
    if (!summary) summary.emplace();
    const ToolOutcome& tools = *answer.tools;
    if (tools.is_expected) {
      summary->made.add(tools.is_made);
      summary->correct.add(tools.is_correct);
    } else {
      summary->quiet.add(!tools.is_made);
    }
    if (tools.is_made) summary->valid.add(tools.is_valid);
  }
  return summary;
}

std::vector<NeedleSummary> summarize_needles(const std::vector<AnswerOutcome>& answers) {
  std::map<std::pair<int64_t, double>, Rate> cells;
  for (const AnswerOutcome& answer : answers) {
    if (answer.asked->skill == kNeedleSkill) {
      cells[{answer.asked->needle_tokens, answer.asked->needle_depth}].add(answer.is_exact);
    }
  }
  std::vector<NeedleSummary> needles;
  for (const auto& [cell, rate] : cells) needles.push_back({cell.first, cell.second, rate});
  return needles;
}

std::string text_table(const TextSummary& text) {
  return fmt::format(
      "Text: {} tokens in {} windows, {} bytes\n  perplexity per token {:.3f} [{:.3f}, {:.3f}]\n"
      "  bits per byte        {:.4f} [{:.4f}, {:.4f}]\n",
      grouped(text.tokens), text.windows, grouped(text.bytes), text.perplexity.value, text.perplexity.low,
      text.perplexity.high, text.bits_per_byte.value, text.bits_per_byte.low, text.bits_per_byte.high);
}

std::string skill_table(const std::vector<SkillSummary>& skills) {
  TextTable table({{"skill", TextTable::Align::kLeft}, {"answers"}, {"exact"}, {"reply right"}});
  for (const SkillSummary& row : skills) {
    table.add_row({row.skill, std::to_string(row.exact.of), percent_text(row.exact.interval()),
                   percent_text(row.right.interval())});
  }
  return "Skills (greedy; 95 % intervals)\n" + table.to_string();
}

std::string tool_table(const ToolSummary& tools) {
  TextTable table({{"tool calls", TextTable::Align::kLeft}, {"of"}, {"share"}});
  const auto add = [&](const char* label, const Rate& rate) {
    if (rate.of > 0) table.add_row({label, std::to_string(rate.of), percent_text(rate.interval())});
  };
  add("made where needed", tools.made);
  add("valid of those made", tools.valid);
  add("correct where needed", tools.correct);
  add("none where none is needed", tools.quiet);
  return table.to_string();
}

// Rows: depths; columns: distances.
std::string needle_table(const std::vector<NeedleSummary>& needles) {
  std::map<int64_t, Rate> totals;
  std::set<double> depths;
  std::map<std::pair<double, int64_t>, Rate> cells;
  for (const NeedleSummary& needle : needles) {
    depths.insert(needle.depth);
    cells[{needle.depth, needle.tokens}] = needle.exact;
    totals[needle.tokens].hits += needle.exact.hits;
    totals[needle.tokens].of += needle.exact.of;
  }
  std::vector<TextTable::Column> columns = {{"depth", TextTable::Align::kRight}};
  for (const auto& [tokens, rate] : totals) columns.push_back({grouped(tokens)});
  TextTable table(columns);
  const auto fraction = [](const Rate& rate) {
    return rate.of == 0 ? std::string("-") : fmt::format("{}/{}", rate.hits, rate.of);
  };
  for (const double depth : depths) {
    std::vector<std::string> row = {fmt::format("{:.0f} %", 100 * depth)};
    for (const auto& [tokens, rate] : totals) row.push_back(fraction(cells[{depth, tokens}]));
    table.add_row(row);
  }
  std::vector<std::string> all = {"all"};
  for (const auto& [tokens, rate] : totals) all.push_back(percent_text(rate.interval()));
  table.add_row(all);
  return "Needle: one fact in a text, exact answers by tokens of the text and depth of the fact\n" + table.to_string();
}

// The last bytes, whole characters, as a JSON string.
std::string tail_of(std::string_view text) {
  size_t at = text.size() > kShownPromptBytes ? text.size() - kShownPromptBytes : 0;
  while (at < text.size() && (static_cast<uint8_t>(text[at]) & 0xC0U) == 0x80U) ++at;
  std::string shown;
  append_json_string(shown, text.substr(at));
  return (at > 0 ? "..." : "") + shown;
}

std::string json_text(std::string_view text) {
  std::string shown;
  append_json_string(shown, text);
  return shown;
}

}  // namespace

Summary summarize(const Outcomes& outcomes) {
  Summary summary;
  if (!outcomes.texts.empty()) summary.text = summarize_texts(outcomes.texts);
  summary.skills = summarize_skills(outcomes.answers);
  summary.tools = summarize_tools(outcomes.answers);
  summary.needles = summarize_needles(outcomes.answers);
  return summary;
}

std::string percent_text(const Interval& share) {
  return fmt::format("{:.1f} % [{:.1f}, {:.1f}]", 100 * share.value, 100 * share.low, 100 * share.high);
}

std::string to_text(const Summary& summary) {
  std::vector<std::string> parts;
  if (summary.text) parts.push_back(text_table(*summary.text));
  if (!summary.skills.empty()) parts.push_back(skill_table(summary.skills));
  if (summary.tools) parts.push_back(tool_table(*summary.tools));
  if (!summary.needles.empty()) parts.push_back(needle_table(summary.needles));
  return fmt::format("{}", fmt::join(parts, "\n"));
}

std::string show_answers(const Outcomes& outcomes, int64_t count) {
  std::vector<const AnswerOutcome*> order;
  for (const AnswerOutcome& answer : outcomes.answers) order.push_back(&answer);
  std::stable_sort(order.begin(), order.end(),
                   [](const AnswerOutcome* a, const AnswerOutcome* b) { return !a->is_exact && b->is_exact; });
  std::map<std::string_view, int64_t> shown;
  std::string text;
  for (const AnswerOutcome* answer : order) {
    if (shown[answer->asked->skill]++ >= count) continue;
    text += fmt::format("{} {}\n  prompt   {}\n  expected {}\n  answer   {}{}\n", answer->is_exact ? "exact" : "WRONG",
                        answer->asked->id, tail_of(answer->asked->prompt), json_text(answer->asked->answer),
                        json_text(answer->text), answer->ended ? "" : " ... (did not end)");
    if (answer->tools && !answer->tools->fault.empty()) {
      text += fmt::format("  tool call: {}\n", answer->tools->fault);
    }
  }
  return text;
}

}  // namespace ps::apps::eval
