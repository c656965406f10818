#include "checkpoint/config.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/json.h"
#include "base/macros.h"
#include "checkpoint/config_fields.h"

namespace ps::checkpoint {
namespace {

using fields::Need;
using fields::Range;
using fields::RealRange;

constexpr JsonLimits kConfigLimits = {.bytes = 1 << 20, .depth = 16};

std::string real_text(double value) {
  JsonWriter writer;
  writer.real(value);
  return std::move(writer).text();
}

// The value as the file spells it, cut to a line.
std::string spelled(const JsonValue& value) {
  JsonWriter writer;
  writer.value(value);
  std::string text = std::move(writer).text();
  constexpr size_t kShown = 80;
  if (text.size() > kShown) text = text.substr(0, kShown) + "...";
  return text;
}

// Walks the field table over one JSON object: fills members, records what is wrong, remembers which names are known.
class FieldReader {
 public:
  FieldReader(const JsonValue& object, std::string path, std::vector<Problem>& problems,
              std::vector<std::string>& unknown)
      : object_(object), path_(std::move(path)), problems_(problems), unknown_(unknown) {}

  // Lists the members that no field asked for. Call last.
  void finish() {
    if (const std::string* twice = object_.duplicate_key()) report(*twice, "occurs twice");
    for (const auto& [name, value] : object_.members()) {
      if (!known_.contains(name)) unknown_.push_back(path_ + name);
    }
  }

  void size(const char* name, int64_t& member, Range range, Need need) {
    if (const JsonValue* value = take(name, need)) read_integer(name, *value, range, member);
  }
  void layer(const char* name, int& member, Range range, Need need) {
    const JsonValue* value = take(name, need);
    if (value == nullptr || value->is_null()) return;  // null is "none" for the one field of this kind
    int64_t wide = member;
    read_integer(name, *value, range, wide);
    member = static_cast<int>(wide);
  }
  void token(const char* name, int32_t& member, Need need) {
    int64_t wide = member;
    size(name, wide, {0, fields::kVocab.high - 1}, need);
    member = static_cast<int32_t>(wide);
  }
  void real(const char* name, double& member, RealRange range, Need need) {
    if (const JsonValue* value = take(name, need)) read_real(name, *value, range, member);
  }
  void maybe_real(const char* name, std::optional<double>& member, RealRange range) {
    const JsonValue* value = take(name, Need::kOptional);
    if (value == nullptr || value->is_null()) return;
    double number = 0;
    if (read_real(name, *value, range, number)) member = number;
  }
  void flag(const char* name, bool& member, std::vector<bool> legal, Need need) {
    const JsonValue* value = take(name, need);
    if (value == nullptr) return;
    if (!value->is_bool()) return report(name, *value, "must be true or false");
    if (std::find(legal.begin(), legal.end(), value->boolean()) == legal.end()) {
      return report(name, *value, legal.front() ? "only true is supported" : "only false is supported");
    }
    member = value->boolean();
  }
  // `legal` lists the words that may stand there; empty admits any.
  void word(const char* name, std::string& member, std::string_view legal, Need need) {
    const JsonValue* value = take(name, need);
    if (value == nullptr) return;
    const std::string choices(legal);
    if (!value->is_string())
      return report(name, *value, "must be a string" + (choices.empty() ? "" : ", legal: " + choices));
    if (!legal.empty() && !contains_word(legal, value->text())) return report(name, *value, "legal: " + choices);
    member = value->text();
  }
  void words(const char* name, std::vector<std::string>& member, Need need) {
    const JsonValue* value = take_list(name, need);
    if (value == nullptr) return;
    member.clear();
    for (const JsonValue& item : value->items()) {
      if (!item.is_string()) return report(name, *value, "must be a list of strings");
      member.push_back(item.text());
    }
  }
  void sizes(const char* name, std::vector<int64_t>& member, Range range, Need need) {
    const JsonValue* value = take_list(name, need);
    if (value == nullptr) return;
    member.clear();
    for (const JsonValue& item : value->items()) {
      int64_t number = 0;
      if (!read_integer(name, item, range, number)) return;
      member.push_back(number);
    }
  }
  void layers(const char* name, std::vector<int>& member, Range range, Need need) {
    std::vector<int64_t> wide(member.begin(), member.end());
    sizes(name, wide, range, need);
    member.assign(wide.begin(), wide.end());
  }
  template <typename Section>
  void section(const char* name, Section& member) {
    if (const JsonValue* value = take(name, Need::kRequired)) read_section(name, *value, member);
  }
  template <typename Section>
  void section(const char* name, std::optional<Section>& member) {
    const JsonValue* value = take(name, Need::kOptional);
    if (value == nullptr || value->is_null()) return;
    read_section(name, *value, member.emplace());
  }

 private:
  static bool contains_word(std::string_view list, std::string_view word) {
    size_t start = 0;
    while (start < list.size()) {
      const size_t end = std::min(list.find(' ', start), list.size());
      if (list.substr(start, end - start) == word) return true;
      start = end + 1;
    }
    return false;
  }

  template <typename Section>
  void read_section(const char* name, const JsonValue& value, Section& member) {
    if (!value.is_object()) return report(name, value, "must be an object");
    FieldReader inner(value, path_ + name + ".", problems_, unknown_);
    fields::visit(inner, member);
    inner.finish();
  }

  const JsonValue* take(const char* name, Need need) {
    known_.insert(name);
    const JsonValue* value = object_.find(name);
    if (value == nullptr && need == Need::kRequired) report(name, "is missing");
    return value;
  }
  const JsonValue* take_list(const char* name, Need need) {
    const JsonValue* value = take(name, need);
    if (value == nullptr || value->is_array()) return value;
    report(name, *value, "must be a list");
    return nullptr;
  }

  bool read_integer(const char* name, const JsonValue& value, Range range, int64_t& member) {
    const std::string legal = range.low == range.high ? "only " + std::to_string(range.low) + " is supported"
                                                      : "must be an integer from " + std::to_string(range.low) +
                                                            " to " + std::to_string(range.high);
    const Result<int64_t> number = value.is_number() ? value.integer() : Result<int64_t>(Status::invalid(""));
    if (!number.ok() || number.value() < range.low || number.value() > range.high) {
      report(name, value, legal);
      return false;
    }
    member = number.value();
    return true;
  }
  bool read_real(const char* name, const JsonValue& value, RealRange range, double& member) {
    const Result<double> number = value.is_number() ? value.real() : Result<double>(Status::invalid(""));
    if (!number.ok() || !(number.value() >= range.low && number.value() <= range.high)) {
      report(name, value, "must be a number from " + real_text(range.low) + " to " + real_text(range.high));
      return false;
    }
    member = number.value();
    return true;
  }

  void report(std::string_view name, std::string message) {
    problems_.push_back({path_ + std::string(name), std::move(message)});
  }
  void report(std::string_view name, const JsonValue& value, const std::string& message) {
    report(name, "= " + spelled(value) + ": " + message);
  }

  const JsonValue& object_;
  std::string path_;
  std::vector<Problem>& problems_;
  std::vector<std::string>& unknown_;
  std::set<std::string, std::less<>> known_;
};

// Walks the same table and writes the members.
class FieldWriter {
 public:
  // An optional size below its range was never set: its feature is absent.
  void size(const char* name, int64_t& member, Range range, Need need) {
    if (need == Need::kRequired || member >= range.low) json_.key(name).integer(member);
  }
  void layer(const char* name, int& member, Range, Need) { json_.key(name).integer(member); }
  void token(const char* name, int32_t& member, Need) {
    if (member >= 0) json_.key(name).integer(member);
  }
  void real(const char* name, double& member, RealRange, Need) { json_.key(name).real(member); }
  void maybe_real(const char* name, std::optional<double>& member, RealRange) {
    json_.key(name);
    if (member.has_value()) json_.real(*member);
    else json_.null();
  }
  void flag(const char* name, bool& member, const std::vector<bool>&, Need) { json_.key(name).boolean(member); }
  void word(const char* name, std::string& member, std::string_view, Need) { json_.key(name).string(member); }
  void words(const char* name, std::vector<std::string>& member, Need) {
    json_.key(name).begin_array();
    for (const std::string& item : member) json_.string(item);
    json_.end_array();
  }
  void sizes(const char* name, std::vector<int64_t>& member, Range, Need) { integers(name, member); }
  void layers(const char* name, std::vector<int>& member, Range, Need) { integers(name, member); }
  template <typename Section>
  void section(const char* name, Section& member) {
    json_.key(name).begin_object();
    fields::visit(*this, member);
    json_.end_object();
  }
  template <typename Section>
  void section(const char* name, std::optional<Section>& member) {
    if (member.has_value()) return section(name, *member);
    // A null section and an absent one mean the same; only the vision tower and the rope scaling are usually spelled
    // out.
    if (std::string_view(name) != "quantization_config") json_.key(name).null();
  }

  std::string write(Config& config) {
    json_.begin_object();
    fields::visit(*this, config);
    json_.end_object();
    return std::move(json_).text() + "\n";
  }

 private:
  template <typename Integer>
  void integers(const char* name, const std::vector<Integer>& member) {
    json_.key(name).begin_array();
    for (const Integer item : member) json_.integer(item);
    json_.end_array();
  }
  JsonWriter json_;
};

// Answers the two files that are most often taken for this one. Only model_type decides (never a substring of a name).
Status check_identity(const JsonValue& root) {
  if (!root.is_object()) return Status::invalid("must be a JSON object, is " + std::string(root.kind_name()));
  if (root.find("text_config") == nullptr && root.find("dim") != nullptr && root.find("n_layers") != nullptr) {
    return Status::invalid(
        "this is the flat inference/config.json; the config.json of the release's root folder is needed");
  }
  const JsonValue* type = root.find("model_type");
  if (type == nullptr) return Status::invalid("model_type is missing, legal: deepseek_v41");
  if (!type->is_string() || type->text() != "deepseek_v41") {
    return Status::invalid("model_type = " + spelled(*type) + ", legal: deepseek_v41");
  }
  return {};
}

}  // namespace

Status join_problems(const std::vector<Problem>& problems) {
  if (problems.empty()) return {};
  std::string text;
  if (problems.size() > 1) text = std::to_string(problems.size()) + " problems: ";
  for (size_t i = 0; i < problems.size(); ++i) {
    if (i > 0) text += "; ";
    text += problems[i].field + " " + problems[i].message;
  }
  return Status::invalid(std::move(text));
}

Result<Config> parse_config(std::string_view json) {
  PS_TRY(const JsonValue root, JsonValue::parse(json, kConfigLimits).with("config.json"));
  PS_RETURN_IF_ERROR(check_identity(root).with("config.json"));
  Config config;
  std::vector<Problem> problems;
  FieldReader reader(root, "", problems, config.unknown_fields);
  fields::visit(reader, config);
  reader.finish();
  // Relations between fields are meaningless while a field itself is wrong.
  if (problems.empty()) problems = validate(config);
  PS_RETURN_IF_ERROR(join_problems(problems).with("config.json"));
  return config;
}

std::string write_config(const Config& config) {
  Config copy = config;
  return FieldWriter().write(copy);
}

}  // namespace ps::checkpoint
