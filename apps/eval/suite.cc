#include "apps/eval/suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/macros.h"
#include "base/mapped_file.h"
#include "base/sha256.h"

namespace ps::apps::eval {
namespace {

namespace fs = std::filesystem;
constexpr int64_t kMostFileBytes = int64_t{1} << 30;
constexpr int64_t kMostNeedleCharacters = int64_t{1} << 26;

// What needle cases are made from.
struct Filler {
  std::string head;
  std::string tail;
  std::vector<std::string> lines;
};

Result<const JsonValue*> member(const JsonValue& record, std::string_view key) {
  const JsonValue* value = record.find(key);
  if (value == nullptr) return Status::invalid(fmt::format("\"{}\" is missing", key));
  return value;
}

Result<std::string> string_of(const JsonValue& record, std::string_view key) {
  PS_TRY(const JsonValue* value, member(record, key));
  if (!value->is_string()) {
    return Status::invalid(fmt::format("\"{}\" is {}; a string is legal", key, value->kind_name()));
  }
  return value->text();
}

Result<std::string> filled_string_of(const JsonValue& record, std::string_view key) {
  PS_TRY(std::string text, string_of(record, key));
  if (text.empty()) return Status::invalid(fmt::format("\"{}\" is empty", key));
  return text;
}

Result<int64_t> integer_of(const JsonValue& record, std::string_view key, int64_t least, int64_t most) {
  PS_TRY(const JsonValue* value, member(record, key));
  const Result<int64_t> number =
      value->is_number() ? value->integer() : Result<int64_t>(Status::invalid("not a number"));
  if (!number.ok() || number.value() < least || number.value() > most) {
    return Status::invalid(fmt::format("\"{}\" is {}; legal values are {} to {}", key,
                                       value->is_number() ? value->text() : std::string(value->kind_name()), least,
                                       most));
  }
  return number.value();
}

Result<double> share_of(const JsonValue& record, std::string_view key) {
  PS_TRY(const JsonValue* value, member(record, key));
  const Result<double> number = value->is_number() ? value->real() : Result<double>(Status::invalid("not a number"));
  if (!number.ok() || !(number.value() >= 0 && number.value() <= 1)) {
    return Status::invalid(fmt::format("\"{}\" is {}; legal values are 0 to 1", key,
                                       value->is_number() ? value->text() : std::string(value->kind_name())));
  }
  return number.value();
}

Result<const std::vector<JsonValue>*> array_of(const JsonValue& record, std::string_view key) {
  PS_TRY(const JsonValue* value, member(record, key));
  if (!value->is_array() || value->items().empty()) {
    return Status::invalid(fmt::format("\"{}\" must be an array of one or more entries", key));
  }
  return &value->items();
}

Result<Filler> read_filler(const JsonValue& record) {
  Filler filler;
  PS_TRY(filler.head, string_of(record, "head"));
  PS_TRY(filler.tail, string_of(record, "tail"));
  PS_TRY(const auto* lines, array_of(record, "lines"));
  for (const JsonValue& line : *lines) {
    if (!line.is_string() || line.text().empty()) {
      return Status::invalid("\"lines\": every line must be a string that is not empty");
    }
    filler.lines.push_back(line.text());
  }
  return filler;
}

// Reads the records of one suite, file after file.
class Reader {
 public:
  Status read_file(const fs::path& path);
  Result<Suite> finish() &&;

 private:
  Status add(const std::string& place, std::string_view line);
  Status add_text(const std::string& place, const JsonValue& record);
  Status add_conversation(const std::string& place, const JsonValue& record);
  Status add_needle(const std::string& place, const JsonValue& record);
  Result<std::string> new_id(const JsonValue& record);

  Suite suite_;
  Sha256 hash_;
  std::set<std::string> ids_;
  Filler filler_;  // of the current file
};

Status Reader::read_file(const fs::path& path) {
  PS_TRY(const std::string content, ps::read_file(path, kMostFileBytes));
  hash_.update(std::as_bytes(std::span(content)));
  filler_ = {};
  size_t number = 0;
  for (size_t at = 0; at < content.size();) {
    const size_t end = std::min(content.find('\n', at), content.size());
    const std::string place = fmt::format("{}:{}", path.string(), ++number);
    const std::string_view line = std::string_view(content).substr(at, end - at);
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) {
      PS_RETURN_IF_ERROR(add(place, line).with(place));
    }
    at = end + 1;
  }
  return {};
}

Result<Suite> Reader::finish() && {
  if (suite_.windows.empty() && suite_.answers.empty()) return Status::invalid("the suite has no cases");
  suite_.sha256 = to_hex(hash_.finish());
  return std::move(suite_);
}

Status Reader::add(const std::string& place, std::string_view line) {
  PS_TRY(const JsonValue record, JsonValue::parse(line));
  if (!record.is_object()) return Status::invalid("a record is an object");
  PS_TRY(const std::string kind, string_of(record, "kind"));
  if (kind == "text") return add_text(place, record);
  if (kind == "conversation") return add_conversation(place, record);
  if (kind == "needle") return add_needle(place, record);
  if (kind == "filler") {
    PS_TRY(filler_, read_filler(record));
    return {};
  }
  return Status::invalid(fmt::format("\"kind\" is \"{}\"; legal values are text, conversation, filler, needle", kind));
}

Result<std::string> Reader::new_id(const JsonValue& record) {
  PS_TRY(std::string id, filled_string_of(record, "id"));
  if (!ids_.insert(id).second) return Status::invalid(fmt::format("\"id\": {} occurs twice", id));
  return id;
}

Status Reader::add_text(const std::string& place, const JsonValue& record) {
  TextWindow window;
  window.place = place;
  PS_TRY(window.id, new_id(record));
  PS_TRY(window.source, string_of(record, "source"));
  PS_TRY(window.text, filled_string_of(record, "text"));
  PS_TRY(const JsonValue* ends, member(record, "ends"));
  if (!ends->is_bool()) return Status::invalid("\"ends\" must be true or false");
  window.ends = ends->boolean();
  suite_.windows.push_back(std::move(window));
  return {};
}

Status Reader::add_conversation(const std::string& place, const JsonValue& record) {
  PS_TRY(const std::string id, new_id(record));
  PS_TRY(const std::string skill, filled_string_of(record, "skill"));
  if (skill == kNeedleSkill) return Status::invalid("\"skill\" is needle, a name kept for needle records");
  std::vector<JsonValue> tools;
  if (record.find("tools") != nullptr) {
    PS_TRY(const auto* offered, array_of(record, "tools"));
    tools = *offered;
  }
  PS_TRY(const auto* turns, array_of(record, "turns"));
  std::string prompt;
  for (size_t i = 0; i < turns->size(); ++i) {
    AnswerCase answer;
    answer.id = i == 0 ? id : fmt::format("{}/{}", id, i);
    answer.place = place;
    answer.skill = skill;
    answer.tools = tools;
    const std::string context = fmt::format("turn {}", i);
    PS_TRY(const std::string more, filled_string_of((*turns)[i], "prompt").with(context));
    PS_TRY(answer.answer, filled_string_of((*turns)[i], "answer").with(context));
    prompt += more;
    answer.prompt = prompt;
    prompt += answer.answer;
    suite_.answers.push_back(std::move(answer));
  }
  return {};
}

// Filler lines first, first + step, ... until there are enough characters; the fact goes in at its depth.
Status Reader::add_needle(const std::string& place, const JsonValue& record) {
  if (filler_.lines.empty()) return Status::invalid("a needle needs a filler record above it in the same file");
  AnswerCase made;
  made.place = place;
  made.skill = kNeedleSkill;
  PS_TRY(made.id, new_id(record));
  PS_TRY(made.needle_tokens, integer_of(record, "tokens", 1, int64_t{1} << 30));
  PS_TRY(made.needle_depth, share_of(record, "depth"));
  PS_TRY(made.answer, filled_string_of(record, "answer"));
  const auto count = static_cast<int64_t>(filler_.lines.size());
  PS_TRY(const int64_t characters, integer_of(record, "characters", 0, kMostNeedleCharacters));
  PS_TRY(const int64_t first, integer_of(record, "first", 0, count - 1));
  PS_TRY(const int64_t step, integer_of(record, "step", 1, std::max<int64_t>(1, count - 1)));
  PS_TRY(const std::string intro, string_of(record, "intro"));
  PS_TRY(const std::string fact, filled_string_of(record, "fact"));
  PS_TRY(const std::string question, filled_string_of(record, "question"));
  std::vector<std::string_view> lines;
  int64_t size = 0;
  for (int64_t at = first; size < characters; at = (at + step) % count) {
    lines.emplace_back(filler_.lines[static_cast<size_t>(at)]);
    size += static_cast<int64_t>(lines.back().size()) + 1;
  }
  lines.insert(lines.begin() + std::lround(made.needle_depth * static_cast<double>(lines.size())), fact);
  made.prompt =
      filler_.head + intro + "\n" + fmt::format("{}", fmt::join(lines, "\n")) + "\n" + question + filler_.tail;
  suite_.answers.push_back(std::move(made));
  return {};
}

template <typename T>
bool keeps(const std::vector<T>& wanted, const T& value) {
  return wanted.empty() || std::find(wanted.begin(), wanted.end(), value) != wanted.end();
}

// Every wanted value must be one that exists.
template <typename T>
Status check_known(std::string_view what, const std::vector<T>& wanted, const std::set<T>& known) {
  for (const T& value : wanted) {
    if (!known.contains(value)) {
      return Status::invalid(fmt::format("{} {}: legal values are {}", what, value, fmt::join(known, ", ")));
    }
  }
  return {};
}

}  // namespace

Status select(Suite& suite, const Selection& selection) {
  std::set<std::string> skills;
  std::set<int64_t> lengths;
  for (const AnswerCase& answer : suite.answers) {
    if (answer.needle_tokens > 0) {
      lengths.insert(answer.needle_tokens);
    } else {
      skills.insert(answer.skill);
    }
  }
  PS_RETURN_IF_ERROR(check_known("part", selection.parts, std::set<std::string>{"text", "skills", "needle"}));
  PS_RETURN_IF_ERROR(check_known("skill", selection.skills, skills));
  PS_RETURN_IF_ERROR(check_known("needle length", selection.needle_tokens, lengths));
  if (selection.limit < 0) return Status::invalid("limit must be 0 (no limit) or more");

  std::map<std::tuple<std::string, int64_t, double>, int64_t> taken;
  const auto is_within_limit = [&](const std::string& group, int64_t tokens, double depth) {
    return selection.limit == 0 || taken[{group, tokens, depth}]++ < selection.limit;
  };
  std::erase_if(suite.windows, [&](const TextWindow&) {
    return !keeps<std::string>(selection.parts, "text") || !is_within_limit("", 0, 0);
  });
  std::erase_if(suite.answers, [&](const AnswerCase& answer) {
    const bool is_needle = answer.needle_tokens > 0;
    const bool is_wanted =
        keeps<std::string>(selection.parts, is_needle ? "needle" : "skills") &&
        (is_needle ? keeps(selection.needle_tokens, answer.needle_tokens) : keeps(selection.skills, answer.skill));
    return !is_wanted || !is_within_limit(answer.skill, answer.needle_tokens, answer.needle_depth);
  });
  if (suite.windows.empty() && suite.answers.empty()) return Status::invalid("the selection leaves no case");
  return {};
}

Result<Suite> read_suite(const fs::path& path) {
  std::error_code error;
  std::vector<fs::path> files;
  if (fs::is_directory(path, error)) {
    for (fs::directory_iterator at(path, error); !error && at != fs::directory_iterator(); at.increment(error)) {
      if (at->path().extension() == ".jsonl") files.push_back(at->path());
    }
    if (error) return Status::invalid(fmt::format("{}: cannot be listed: {}", path.string(), error.message()));
    if (files.empty()) return Status::not_found(fmt::format("{}: no *.jsonl file in this folder", path.string()));
    std::sort(files.begin(), files.end());
  } else {
    files.push_back(path);
  }
  Reader reader;
  for (const fs::path& file : files) PS_RETURN_IF_ERROR(reader.read_file(file));
  return std::move(reader).finish().with(path.string());
}

}  // namespace ps::apps::eval
