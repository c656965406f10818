#include "server/completion_format.h"

#include <algorithm>
#include <utility>

#include "server/openai_json.h"
#include "text/utf8.h"

namespace ps::server {
namespace {

// A token as a name: its text, or "bytes:" and its bytes as a Python literal writes them where they are no whole UTF-8.
// A replacement character would give one name to different tokens.
std::string token_name(std::string_view bytes) {
  std::string text = text::lossy_utf8(bytes);
  if (text == bytes) return text;
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string name = "bytes:";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7F) {
      name.append(c == '\\' ? 2 : 1, c);
    } else {
      name.append("\\x") += kDigits[byte >> 4];
      name += kDigits[byte & 15];
    }
  }
  return name;
}

}  // namespace

CompletionFormat::CompletionFormat(CompletionCall call, std::shared_ptr<const text::Tokenizer> tokenizer,
                                   const std::string& model)
    : call_(std::move(call)),
      tokenizer_(std::move(tokenizer)),
      choices_(call_.prompts.size() * static_cast<size_t>(call_.n)) {
  JsonWriter head(JsonWriter::Style::kCompact);
  head.key("id").string(make_object_id("cmpl")).key("object").string("text_completion");
  head.key("created").integer(unix_seconds()).key("model").string(model);
  head_ = std::move(head).text();
}

void CompletionFormat::echo(size_t index, const Generation& generation, TextDelta& delta, Lists& lists) {
  const CompletionCall::Prompt& prompt = prompt_of(index);
  std::vector<TokenDetail> answer = std::move(delta.tokens);
  delta.tokens.clear();
  if (wants_logprobs()) {
    const auto logprobs = generation.prompt_logprobs();
    const auto top = generation.prompt_top();
    const size_t width = logprobs.empty() ? 0 : top.size() / logprobs.size();
    CharacterCount count;
    for (size_t i = 0; i < prompt.ids.size(); ++i) {
      TokenDetail detail{prompt.ids[i], 0, {}, count.begun()};
      if (i > 0 && i - 1 < logprobs.size()) {
        detail.logprob = logprobs[i - 1];
        const auto own = top.subspan((i - 1) * width, width);
        detail.top.assign(own.begin(), own.end());
      }
      // A control token that the server put in front is in the list, but not in the text.
      const bool is_shown = i > 0 || !prompt.has_bos_added;
      if (is_shown) count.add(tokenizer_->token_bytes(prompt.ids[i]));
      delta.tokens.push_back(std::move(detail));
    }
    lists.without_logprob = 1;
  }
  for (TokenDetail& detail : answer) delta.tokens.push_back(std::move(detail));
  delta.text.insert(0, prompt.text);
  choices_[index].shift = count_characters(prompt.text);
}

bool CompletionFormat::take(size_t index, const Generation& generation, TextDelta delta, std::string* events) {
  Choice& choice = choices_[index];
  Lists lists;
  const size_t own_tokens = delta.tokens.size();
  if (!std::exchange(choice.has_begun, true) && call_.echo) echo(index, generation, delta, lists);
  for (size_t i = delta.tokens.size() - own_tokens; i < delta.tokens.size(); ++i)
    delta.tokens[i].offset += choice.shift;
  if (events == nullptr) {
    choice.text += delta.text;
    if (lists.without_logprob > 0) choice.lists.without_logprob = lists.without_logprob;
    for (TokenDetail& detail : delta.tokens) choice.lists.tokens.push_back(std::move(detail));
    return false;
  }
  lists.tokens = std::move(delta.tokens);
  JsonWriter json(JsonWriter::Style::kCompact);
  json.begin_object().members(head_);
  json.key("choices").begin_array();
  write_choice(json, index, delta.text, lists, generation.end());
  json.end_array();
  if (call_.sampling.includes_usage) json.key("usage").null();
  json.end_object();
  append_data_event(*events, json.text());
  return false;
}

void CompletionFormat::close(const std::vector<Generation>& generations, std::string& events) {
  if (call_.sampling.includes_usage) {
    JsonWriter json(JsonWriter::Style::kCompact);
    json.begin_object().members(head_);
    json.key("choices").begin_array().end_array();
    write_usage(json, generations);
    json.end_object();
    append_data_event(events, json.text());
  }
  events += kDoneEvent;
}

HttpReply CompletionFormat::whole(const std::vector<Generation>& generations) {
  JsonWriter json(JsonWriter::Style::kCompact);
  json.begin_object().members(head_);
  json.key("choices").begin_array();
  for (size_t i = 0; i < choices_.size(); ++i) {
    write_choice(json, i, choices_[i].text, choices_[i].lists, generations[i].end());
  }
  json.end_array();
  write_usage(json, generations);
  json.end_object();
  return json_reply(std::move(json).text());
}

void CompletionFormat::write_choice(JsonWriter& json, size_t index, const std::string& text, const Lists& lists,
                                    AnswerEnd end) const {
  json.begin_object().key("text").string(text).key("index").integer(static_cast<int64_t>(index));
  json.key("logprobs");
  wants_logprobs() ? write_lists(json, lists) : static_cast<void>(json.null());
  json.key("finish_reason");
  write_finish_reason(json, end);
  json.end_object();
}

void CompletionFormat::write_lists(JsonWriter& json, const Lists& lists) const {
  const auto name_of = [&](int32_t id) { return token_name(tokenizer_->token_bytes(id)); };
  json.begin_object().key("tokens").begin_array();
  for (const TokenDetail& detail : lists.tokens) json.string(name_of(detail.id));
  json.end_array().key("token_logprobs").begin_array();
  for (size_t i = 0; i < lists.tokens.size(); ++i) {
    i < lists.without_logprob ? json.null() : json.real(json_logprob(lists.tokens[i].logprob));
  }
  json.end_array().key("top_logprobs").begin_array();
  std::vector<std::string> seen;
  for (size_t i = 0; i < lists.tokens.size(); ++i) {
    const TokenDetail& detail = lists.tokens[i];
    if (i < lists.without_logprob) {
      json.null();
      continue;
    }
    // A control token may be spelled like plain ones; the likelier keeps the key. The chosen one is always there.
    seen.clear();
    json.begin_object();
    const auto add = [&](int32_t id, float logprob) {
      std::string name = name_of(id);
      if (std::find(seen.begin(), seen.end(), name) != seen.end()) return;
      json.key(name).real(json_logprob(logprob));
      seen.push_back(std::move(name));
    };
    for (const auto& [id, logprob] : detail.top) add(id, logprob);
    add(detail.id, detail.logprob);
    json.end_object();
  }
  json.end_array().key("text_offset").begin_array();
  for (const TokenDetail& detail : lists.tokens) json.integer(detail.offset);
  json.end_array().end_object();
}

void CompletionFormat::write_usage(JsonWriter& json, const std::vector<Generation>& generations) const {
  TokenUsage sum;
  for (size_t i = 0; i < generations.size(); ++i) {
    const TokenUsage& usage = generations[i].usage();
    sum.completion_tokens += usage.completion_tokens;
    if (i % static_cast<size_t>(call_.n) != 0) continue;  // a prompt counts once
    sum.prompt_tokens += usage.prompt_tokens;
    sum.cached_tokens += usage.cached_tokens;
  }
  json.key("usage");
  server::write_usage(json, sum);
}

}  // namespace ps::server
