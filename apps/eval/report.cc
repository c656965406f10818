#include "apps/eval/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/macros.h"
#include "base/mapped_file.h"

namespace ps::apps::eval {
namespace {

constexpr int64_t kMostReportBytes = int64_t{1} << 30;

void write_interval(JsonWriter& json, const Interval& interval) {
  json.key("value").real(interval.value);
  // JSON has no infinity: a bound that is none is left out.
  if (std::isfinite(interval.low)) json.key("low").real(interval.low);
  if (std::isfinite(interval.high)) json.key("high").real(interval.high);
}

void write_interval(JsonWriter& json, const char* key, const Interval& interval) {
  json.key(key).begin_object();
  write_interval(json, interval);
  json.end_object();
}

void write_rate(JsonWriter& json, const char* key, const Rate& rate) {
  json.key(key).begin_object().key("hits").integer(rate.hits).key("of").integer(rate.of);
  if (rate.of > 0) write_interval(json, rate.interval());
  json.end_object();
}

void write_head(JsonWriter& json, const ReportHead& head) {
  json.key("model").string(head.model).key("suite").string(head.suite).key("suite_sha256").string(head.suite_sha256);
  json.key("settings").begin_object();
  for (const auto& [name, value] : head.settings) json.key(name).string(value);
  json.end_object();
}

void write_summary(JsonWriter& json, const Summary& summary) {
  if (summary.text) {
    const TextSummary& text = *summary.text;
    json.key("text").begin_object().key("windows").integer(text.windows).key("tokens").integer(text.tokens);
    json.key("bytes").integer(text.bytes);
    write_interval(json, "perplexity", text.perplexity);
    write_interval(json, "bits_per_byte", text.bits_per_byte);
    json.end_object();
  }
  json.key("skills").begin_array();
  for (const SkillSummary& skill : summary.skills) {
    json.begin_object().key("skill").string(skill.skill);
    write_rate(json, "exact", skill.exact);
    write_rate(json, "right", skill.right);
    json.end_object();
  }
  json.end_array();
  if (summary.tools) {
    json.key("tool_calls").begin_object();
    write_rate(json, "made", summary.tools->made);
    write_rate(json, "valid", summary.tools->valid);
    write_rate(json, "correct", summary.tools->correct);
    write_rate(json, "quiet", summary.tools->quiet);
    json.end_object();
  }
  json.key("needle").begin_array();
  for (const NeedleSummary& needle : summary.needles) {
    json.begin_object().key("tokens").integer(needle.tokens).key("depth").real(needle.depth);
    write_rate(json, "exact", needle.exact);
    json.end_object();
  }
  json.end_array();
}

void write_cases(JsonWriter& json, const Outcomes& outcomes) {
  json.key("text_cases").begin_array();
  for (const TextOutcome& text : outcomes.texts) {
    json.begin_object().key("id").string(text.id).key("source").string(text.source).key("tokens").integer(text.tokens);
    json.key("bytes").integer(text.bytes).key("loss").real(text.loss).end_object();
  }
  json.end_array().key("answer_cases").begin_array();
  for (const AnswerOutcome& answer : outcomes.answers) {
    json.begin_object().key("id").string(answer.asked->id).key("skill").string(answer.asked->skill);
    json.key("exact").boolean(answer.is_exact).key("right").boolean(answer.is_right).key("ended");
    json.boolean(answer.ended).key("prompt_tokens").integer(answer.prompt_tokens);
    json.key("cached_tokens").integer(answer.cached_tokens).key("text").string(answer.text).end_object();
  }
  json.end_array();
}

Result<const JsonValue*> typed(const JsonValue& object, std::string_view key, JsonValue::Kind kind) {
  const JsonValue* value = object.find(key);
  if (value == nullptr || value->kind() != kind) {
    return Status::invalid(fmt::format("\"{}\" is {}; is this a report of pagestate eval?", key,
                                       value == nullptr ? "missing" : value->kind_name()));
  }
  return value;
}

Result<bool> flag(const JsonValue& object, std::string_view key) {
  const JsonValue* value = object.find(key);
  if (value == nullptr || !value->is_bool()) return Status::invalid(fmt::format("\"{}\" must be true or false", key));
  return value->boolean();
}

Result<ReportHead> read_head(const JsonValue& report) {
  using Kind = JsonValue::Kind;
  ReportHead head;
  PS_TRY(const JsonValue* model, typed(report, "model", Kind::kString));
  PS_TRY(const JsonValue* suite, typed(report, "suite", Kind::kString));
  PS_TRY(const JsonValue* hash, typed(report, "suite_sha256", Kind::kString));
  PS_TRY(const JsonValue* settings, typed(report, "settings", Kind::kObject));
  head = {model->text(), suite->text(), hash->text(), {}};
  for (const auto& [name, value] : settings->members()) head.settings.emplace_back(name, value.text());
  return head;
}

Status read_cases(const JsonValue& report, Baseline& baseline) {
  using Kind = JsonValue::Kind;
  PS_TRY(const JsonValue* texts, typed(report, "text_cases", Kind::kArray));
  for (const JsonValue& text : texts->items()) {
    PS_TRY(const JsonValue* id, typed(text, "id", Kind::kString));
    PS_TRY(const JsonValue* tokens, typed(text, "tokens", Kind::kNumber));
    PS_TRY(const JsonValue* loss, typed(text, "loss", Kind::kNumber));
    Baseline::Text& made = baseline.texts[id->text()];
    PS_TRY(made.tokens, tokens->integer());
    PS_TRY(made.loss, loss->real());
  }
  PS_TRY(const JsonValue* answers, typed(report, "answer_cases", Kind::kArray));
  for (const JsonValue& answer : answers->items()) {
    PS_TRY(const JsonValue* id, typed(answer, "id", Kind::kString));
    PS_TRY(const JsonValue* text, typed(answer, "text", Kind::kString));
    Baseline::Answer& made = baseline.answers[id->text()];
    PS_TRY(made.is_exact, flag(answer, "exact"));
    PS_TRY(made.is_right, flag(answer, "right"));
    made.text = text->text();
  }
  return {};
}

}  // namespace

std::string report_json(const ReportHead& head, const Outcomes& outcomes, const Summary& summary,
                        const Comparison* comparison, const Baseline* before) {
  JsonWriter json;
  json.begin_object();
  write_head(json, head);
  json.key("seconds").real(outcomes.seconds);
  write_summary(json, summary);
  if (comparison != nullptr) write_comparison(json, *comparison, *before);
  write_cases(json, outcomes);
  json.end_object();
  return std::move(json).text() + "\n";
}

Result<Baseline> read_report(const std::filesystem::path& path) {
  PS_TRY(const std::string content, read_file(path, kMostReportBytes));
  const auto read = [&]() -> Result<Baseline> {
    PS_TRY(const JsonValue report, JsonValue::parse(content, {.bytes = kMostReportBytes}));
    Baseline baseline;
    PS_TRY(baseline.head, read_head(report));
    PS_RETURN_IF_ERROR(read_cases(report, baseline));
    return baseline;
  };
  return read().with(path.string());
}

}  // namespace ps::apps::eval
