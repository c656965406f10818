// pagestate tokenize and detokenize: one JSON value per line in, one per line out, so that any text survives the pipe.
#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "apps/commands/commands.h"
#include "apps/tokenizer_source.h"
#include "base/json.h"
#include "base/macros.h"
#include "text/tokenizer.h"

namespace ps::apps {
namespace {

using text::TokenId;
using text::Tokenizer;

struct Options {
  TokenizerSource source;
  bool no_added_tokens = false;
  bool skip_special = false;
};

Result<std::string> encode_line(const Tokenizer& tokenizer, const std::string& line, text::AddedTokens mode) {
  PS_TRY(const JsonValue value, JsonValue::parse(line));
  if (!value.is_string()) {
    return Status::invalid("expected a JSON string, found " + std::string(value.kind_name()));
  }
  JsonWriter out;
  out.begin_array();
  for (const TokenId id : tokenizer.encode(value.text(), mode)) out.integer(id);
  out.end_array();
  return std::move(out).text();
}

Result<std::string> decode_line(const Tokenizer& tokenizer, const std::string& line, bool skip_special) {
  PS_TRY(const JsonValue value, JsonValue::parse(line));
  if (!value.is_array()) {
    return Status::invalid("expected a JSON array of token ids, found " + std::string(value.kind_name()));
  }
  std::vector<TokenId> ids;
  ids.reserve(value.items().size());
  for (const JsonValue& item : value.items()) {
    PS_TRY(const int64_t id, item.integer());
    if (id < 0 || id >= tokenizer.vocab_size()) {
      return Status::invalid(fmt::format("token id {}: legal are 0 to {}", id, tokenizer.vocab_size() - 1));
    }
    ids.push_back(static_cast<TokenId>(id));
  }
  std::string text;
  append_json_string(text, tokenizer.decode(ids, skip_special));
  return text;
}

// Answers every line of standard input in order; stops at the first bad one, after the answers to those before it.
template <typename Convert>
Status convert_lines(const Convert& convert) {
  std::ios::sync_with_stdio(false);
  std::string line;
  for (int64_t number = 1; std::getline(std::cin, line); ++number) {
    auto answer = convert(line);
    if (!answer.ok()) {
      std::cout.flush();
      return std::move(answer).status().with(fmt::format("standard input, line {}", number));
    }
    std::cout << answer.value() << '\n';
  }
  if (std::cin.bad()) return Status::unavailable("cannot read standard input");
  std::cout.flush();
  if (!std::cout) return Status::unavailable("cannot write to standard output");
  return {};
}

}  // namespace

void add_tokenize(CLI::App& program, Work& chosen) {
  const auto options = std::make_shared<Options>();

  CLI::App* tokenize = program.add_subcommand("tokenize", "Texts (one JSON string per line) to token ids");
  options->source.add_options(*tokenize);
  tokenize->add_flag("--no-added-tokens", options->no_added_tokens,
                     "Read control tokens such as <think> as plain characters");
  tokenize->callback([&chosen, options] {
    chosen = [options]() -> Status {
      PS_TRY(const auto tokenizer, options->source.load());
      const auto mode = options->no_added_tokens ? text::AddedTokens::kAsText : text::AddedTokens::kParse;
      return convert_lines([&](const std::string& line) { return encode_line(*tokenizer, line, mode); });
    };
  });

  CLI::App* detokenize = program.add_subcommand("detokenize", "Token ids (one JSON array per line) to JSON strings");
  options->source.add_options(*detokenize);
  detokenize->add_flag("--skip-special", options->skip_special, "Leave out tokens that the file flags special");
  detokenize->callback([&chosen, options] {
    chosen = [options]() -> Status {
      PS_TRY(const auto tokenizer, options->source.load());
      return convert_lines(
          [&](const std::string& line) { return decode_line(*tokenizer, line, options->skip_special); });
    };
  });
}

}  // namespace ps::apps
