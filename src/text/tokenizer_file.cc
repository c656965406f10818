#include "text/tokenizer_file.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/json.h"
#include "base/macros.h"
#include "text/byte_alphabet.h"
#include "text/pretokenizer.h"
#include "text/utf8.h"

namespace ps::text {
namespace {

constexpr int64_t kMaxTokens = 1 << 22;

// What a field says, for a message; long values are cut.
std::string shown(const JsonValue* value) {
  if (value == nullptr) return "nothing";
  std::string text = JsonWriter().value(*value).text();
  constexpr size_t kShown = 120;
  if (text.size() <= kShown) return text;
  size_t cut = kShown;
  while (cut > 0 && (static_cast<uint8_t>(text[cut]) & 0xC0) == 0x80) --cut;
  return text.substr(0, cut) + "...";
}

Status different(const std::string& field, const std::string& legal, const JsonValue* value) {
  return Status::unsupported(field + ": legal is " + legal + ", found " + shown(value));
}

bool is_absent(const JsonValue* value) { return value == nullptr || value->is_null(); }

bool is_text(const JsonValue* value, std::string_view text) {
  return value != nullptr && value->is_string() && value->text() == text;
}

bool is_flag(const JsonValue* value, bool flag) {
  return value != nullptr && value->is_bool() && value->boolean() == flag;
}

// Optional flags that must be off.
Status require_off(const JsonValue& object, const char* name, const std::string& field) {
  const JsonValue* value = object.find(name);
  if (is_absent(value) || is_flag(value, false)) return {};
  return different(field + "." + name, "false", value);
}

Status check_normalizer(const JsonValue* normalizer) {
  if (is_absent(normalizer)) return {};
  const JsonValue* steps = normalizer->find("normalizers");
  if (is_text(normalizer->find("type"), "Sequence") && steps != nullptr && steps->is_array() &&
      steps->items().empty()) {
    return {};
  }
  return different("normalizer", "null or an empty Sequence", normalizer);
}

Status check_split(const JsonValue& step, std::string_view pattern, const std::string& field) {
  if (!is_text(step.find("type"), "Split")) return different(field + ".type", "\"Split\"", step.find("type"));
  const JsonValue* regex = step.find("pattern");
  if (regex != nullptr) regex = regex->find("Regex");
  if (!is_text(regex, pattern)) {
    std::string legal;
    append_json_string(legal, pattern);
    return different(field + ".pattern.Regex", legal, regex);
  }
  if (!is_text(step.find("behavior"), "Isolated")) {
    return different(field + ".behavior", "\"Isolated\"", step.find("behavior"));
  }
  return require_off(step, "invert", field);
}

Status check_pre_tokenizer(const JsonValue* sequence) {
  const std::string field = "pre_tokenizer";
  const JsonValue* type = sequence == nullptr ? nullptr : sequence->find("type");
  if (!is_text(type, "Sequence")) return different(field + ".type", "\"Sequence\" (three Split, then ByteLevel)", type);
  const JsonValue* steps = sequence->find("pretokenizers");
  if (steps == nullptr || !steps->is_array() || steps->items().size() != 4) {
    return different(field + ".pretokenizers", "three Split, then ByteLevel", steps);
  }
  for (size_t i = 0; i < 3; ++i) {
    const std::string name = field + ".pretokenizers[" + std::to_string(i) + "]";
    PS_RETURN_IF_ERROR(check_split(steps->items()[i], kSplitPatterns[i], name));
  }
  const JsonValue& last = steps->items()[3];
  const std::string name = field + ".pretokenizers[3]";
  if (!is_text(last.find("type"), "ByteLevel")) return different(name + ".type", "\"ByteLevel\"", last.find("type"));
  for (const char* flag : {"add_prefix_space", "use_regex"}) {
    // NOTE: both are true when they are left out.
    if (!is_flag(last.find(flag), false)) return different(name + "." + flag, "false", last.find(flag));
  }
  return {};
}

Status check_pipeline(const JsonValue& root) {
  if (!is_text(root.find("version"), "1.0")) return different("version", "\"1.0\"", root.find("version"));
  for (const char* name : {"truncation", "padding"}) {
    if (!is_absent(root.find(name))) return different(name, "null", root.find(name));
  }
  PS_RETURN_IF_ERROR(check_normalizer(root.find("normalizer")));
  PS_RETURN_IF_ERROR(check_pre_tokenizer(root.find("pre_tokenizer")));
  const JsonValue* post = root.find("post_processor");
  if (!is_absent(post) && !is_text(post->find("type"), "ByteLevel")) {
    return different("post_processor", "null or ByteLevel", post);
  }
  const JsonValue* decoder = root.find("decoder");
  if (decoder == nullptr || !is_text(decoder->find("type"), "ByteLevel"))
    return different("decoder", "ByteLevel", decoder);
  return {};
}

Status check_model(const JsonValue& model) {
  if (!is_text(model.find("type"), "BPE")) return different("model.type", "\"BPE\"", model.find("type"));
  for (const char* name : {"dropout", "unk_token"}) {
    if (!is_absent(model.find(name))) return different(std::string("model.") + name, "null", model.find(name));
  }
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const JsonValue* value = model.find(name);
    if (!is_absent(value) && !is_text(value, "")) return different(std::string("model.") + name, "null or \"\"", value);
  }
  PS_RETURN_IF_ERROR(require_off(model, "byte_fallback", "model"));
  return require_off(model, "ignore_merges", "model");
}

Result<TokenId> read_id(const JsonValue* value, const std::string& field) {
  if (value == nullptr) return Status::invalid(field + ": missing");
  auto id = value->integer();
  if (!id.ok()) return std::move(id).status().with(field);
  if (id.value() < 0 || id.value() >= kMaxTokens) {
    return Status::invalid(field + ": " + value->text() + " is not in 0.." + std::to_string(kMaxTokens - 1));
  }
  return static_cast<TokenId>(id.value());
}

using IdsBySpelling = std::unordered_map<std::string_view, TokenId>;

// The views in `ids` point into `vocab`.
Status read_vocabulary(const JsonValue* vocab, TokenizerFile& file, IdsBySpelling& ids) {
  if (vocab == nullptr || !vocab->is_object()) return Status::invalid("model.vocab: expected an object of token: id");
  const auto size_limit = static_cast<TokenId>(kMaxTokens);
  ids.reserve(vocab->members().size());
  for (const auto& [spelling, value] : vocab->members()) {
    const auto field = [&name = spelling] {
      std::string text = "model.vocab[";
      append_json_string(text, name);
      return text + "]";
    };
    if (spelling.empty()) return Status::invalid(field() + ": an empty token");
    const auto number = value.integer();
    if (!number.ok() || number.value() < 0 || number.value() >= size_limit) return read_id(&value, field()).status();
    const auto id = static_cast<TokenId>(number.value());
    if (!ids.emplace(spelling, id).second) return Status::invalid(field() + ": occurs twice");
    if (static_cast<size_t>(id) >= file.base.size()) file.base.resize(static_cast<size_t>(id) + 1);
    std::string& slot = file.base[static_cast<size_t>(id)];
    if (!slot.empty())
      return Status::invalid(field() + ": id " + std::to_string(id) + " belongs to another token, too");
    slot = spelling;
  }
  for (int byte = 0; byte < 256; ++byte) {
    std::string symbol;
    append_utf8(symbol, byte_symbol(static_cast<uint8_t>(byte)));
    if (!ids.contains(symbol)) {
      return Status::invalid("model.vocab: the symbol of byte " + std::to_string(byte) + " (" + symbol +
                             ") is missing");
    }
  }
  return {};
}

// "a b", or ["a", "b"] as later versions of the format write it.
bool split_merge(const JsonValue& value, std::string_view& left, std::string_view& right) {
  if (value.is_array()) {
    if (value.items().size() != 2 || !value.items()[0].is_string() || !value.items()[1].is_string()) return false;
    left = value.items()[0].text();
    right = value.items()[1].text();
    return true;
  }
  if (!value.is_string()) return false;
  const std::string_view text = value.text();
  const size_t blank = text.find(' ');
  if (blank == std::string_view::npos || text.find(' ', blank + 1) != std::string_view::npos) return false;
  left = text.substr(0, blank);
  right = text.substr(blank + 1);
  return true;
}

Status read_merges(const JsonValue* merges, const IdsBySpelling& ids, TokenizerFile& file) {
  if (merges == nullptr || !merges->is_array())
    return Status::invalid("model.merges: expected an array of \"left right\"");
  if (merges->items().size() >= Bpe::kMaxMerges) {
    return Status::invalid("model.merges: " + std::to_string(merges->items().size()) +
                           " merges; legal are fewer than " + std::to_string(Bpe::kMaxMerges));
  }
  file.merges.reserve(merges->items().size());
  std::unordered_set<uint64_t> seen;
  seen.reserve(merges->items().size());
  std::string joined;
  for (size_t rank = 0; rank < merges->items().size(); ++rank) {
    const JsonValue& value = merges->items()[rank];
    const auto fail = [&](const std::string& reason) {
      return Status::invalid("model.merges[" + std::to_string(rank) + "]: " + shown(&value) + ": " + reason);
    };
    std::string_view left;
    std::string_view right;
    if (!split_merge(value, left, right)) return fail("expected two tokens, \"left right\" or [\"left\", \"right\"]");
    joined.assign(left).append(right);
    const auto left_id = ids.find(left);
    const auto right_id = ids.find(right);
    const auto result_id = ids.find(joined);
    if (left_id == ids.end() || right_id == ids.end() || result_id == ids.end()) {
      return fail("a token that is not in model.vocab");
    }
    const Merge merge{left_id->second, right_id->second, result_id->second};
    if (!seen.insert(static_cast<uint64_t>(merge.left) << 32 | static_cast<uint32_t>(merge.right)).second) {
      return fail("occurs twice");
    }
    file.merges.push_back(merge);
  }
  return {};
}

Result<AddedToken> read_added_token(const JsonValue& value, const std::string& field) {
  AddedToken token;
  PS_TRY(token.id, read_id(value.find("id"), field + ".id"));
  const JsonValue* content = value.find("content");
  if (content == nullptr || !content->is_string()) return Status::invalid(field + ".content: expected a string");
  token.content = content->text();
  if (token.content.empty() || token.content.size() > kAddedTokenBytes) {
    return Status::invalid(field + ".content: " + std::to_string(token.content.size()) + " bytes; legal are 1 to " +
                           std::to_string(kAddedTokenBytes));
  }
  for (const char* flag : {"single_word", "lstrip", "rstrip"}) PS_RETURN_IF_ERROR(require_off(value, flag, field));
  const JsonValue* special = value.find("special");
  const JsonValue* normalized = value.find("normalized");
  if (special == nullptr || !special->is_bool()) return Status::invalid(field + ".special: expected true or false");
  if (normalized == nullptr || !normalized->is_bool())
    return Status::invalid(field + ".normalized: expected true or false");
  token.is_special = special->boolean();
  token.is_normalized = normalized->boolean();
  return token;
}

Status read_added_tokens(const JsonValue* tokens, const IdsBySpelling& ids, TokenizerFile& file) {
  if (tokens == nullptr || !tokens->is_array()) return Status::invalid("added_tokens: expected an array");
  std::unordered_set<std::string_view> contents;
  file.added.reserve(tokens->items().size());  // the views in `contents` stay valid
  for (size_t i = 0; i < tokens->items().size(); ++i) {
    const std::string field = "added_tokens[" + std::to_string(i) + "]";
    PS_TRY(AddedToken token, read_added_token(tokens->items()[i], field));
    const auto base = ids.find(token.content);
    const auto index = static_cast<size_t>(token.id);
    const bool is_in_base = index < file.base.size() && !file.base[index].empty();
    if (is_in_base ? file.base[index] != token.content : base != ids.end()) {
      return Status::invalid(field + ": id " + std::to_string(token.id) + " and its content disagree with model.vocab");
    }
    file.added.push_back(std::move(token));
    if (!contents.insert(file.added.back().content).second) return Status::invalid(field + ".content: occurs twice");
  }
  return {};
}

// Sorts the added tokens and makes sure that ids have neither holes nor double use.
Status close_ids(TokenizerFile& file) {
  std::sort(file.added.begin(), file.added.end(), [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  size_t size = file.base.size();
  for (size_t i = 0; i < file.added.size(); ++i) {
    if (i > 0 && file.added[i].id == file.added[i - 1].id) {
      return Status::invalid("added_tokens: id " + std::to_string(file.added[i].id) + " occurs twice");
    }
    size = std::max(size, static_cast<size_t>(file.added[i].id) + 1);
  }
  std::vector<bool> is_added(size);
  for (const AddedToken& token : file.added) is_added[static_cast<size_t>(token.id)] = true;
  file.base.resize(size);
  for (size_t id = 0; id < size; ++id) {
    if (file.base[id].empty() && !is_added[id]) {
      return Status::invalid("ids must be 0.." + std::to_string(size - 1) + " without holes: nothing has id " +
                             std::to_string(id));
    }
  }
  return {};
}

}  // namespace

Result<TokenizerFile> parse_tokenizer_file(std::string_view json) {
  PS_TRY(const JsonValue root, JsonValue::parse(json));
  if (!root.is_object()) return Status::invalid("expected an object, found " + std::string(root.kind_name()));
  PS_RETURN_IF_ERROR(check_pipeline(root));
  const JsonValue* model = root.find("model");
  if (model == nullptr || !model->is_object()) return Status::invalid("model: expected an object");
  PS_RETURN_IF_ERROR(check_model(*model));
  TokenizerFile file;
  IdsBySpelling ids;
  PS_RETURN_IF_ERROR(read_vocabulary(model->find("vocab"), file, ids));
  PS_RETURN_IF_ERROR(read_merges(model->find("merges"), ids, file));
  PS_RETURN_IF_ERROR(read_added_tokens(root.find("added_tokens"), ids, file));
  PS_RETURN_IF_ERROR(close_ids(file));
  return file;
}

}  // namespace ps::text
