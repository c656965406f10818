// Every field that this runtime depends on is refused when it says something else, by a message that names it.
#include "text/tokenizer_file.h"

#include "text/synthetic_tokenizer.h"
#include "text/test_data.h"

namespace ps::text {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The synthetic file with the first occurrence of `from` replaced.
std::string changed(const std::string& from, const std::string& to) {
  std::string text = make_synthetic_tokenizer(320).value();
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  if (at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

struct Refusal {
  const char* from;
  const char* to;
  Code code;
  const char* message;  // part of it
};

class TokenizerFileRefuses : public testing::TestWithParam<Refusal> {};

TEST_P(TokenizerFileRefuses, ByName) {
  const auto& [from, to, code, message] = GetParam();
  const auto file = Tokenizer::parse(changed(from, to));
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.status().code(), code) << file.status().to_string();
  EXPECT_THAT(std::string(file.status().message()), HasSubstr(message));
}

constexpr Code kUnsupported = Code::kUnsupported;
constexpr Code kInvalid = Code::kInvalid;
INSTANTIATE_TEST_SUITE_P(
    Fields, TokenizerFileRefuses,
    testing::Values(
        Refusal{"\"1.0\"", "\"2.0\"", kUnsupported, "version: legal is \"1.0\", found \"2.0\""},
        Refusal{"\"truncation\": null", "\"truncation\": {\"max_length\": 5}", kUnsupported,
                "truncation: legal is null"},
        Refusal{"\"padding\": null", "\"padding\": {}", kUnsupported, "padding: legal is null"},
        Refusal{"\"normalizers\": []", "\"normalizers\": [{\"type\": \"NFC\"}]", kUnsupported,
                "normalizer: legal is null"},
        Refusal{"\"type\": \"Split\"", "\"type\": \"Digits\"", kUnsupported,
                "pretokenizers[0].type: legal is \"Split\""},
        Refusal{"{1,3}", "{1,2}", kUnsupported, "pretokenizers[0].pattern.Regex: legal is \"\\\\p{N}{1,3}\""},
        Refusal{"ヿ", "ヾ", kUnsupported, "pretokenizers[1].pattern.Regex"},
        Refusal{"[A-Za-z]+", "[A-Z]+", kUnsupported, "pretokenizers[2].pattern.Regex"},
        Refusal{"\"Isolated\"", "\"Removed\"", kUnsupported, "behavior: legal is \"Isolated\", found \"Removed\""},
        Refusal{"\"invert\": false", "\"invert\": true", kUnsupported, "invert: legal is false"},
        Refusal{"\"use_regex\": false", "\"use_regex\": true", kUnsupported, "use_regex: legal is false"},
        Refusal{"\"add_prefix_space\": false", "\"add_prefix_space\": true", kUnsupported,
                "add_prefix_space: legal is false"},
        Refusal{"\"post_processor\": {\"type\": \"ByteLevel\"", "\"post_processor\": {\"type\": \"TemplateProcessing\"",
                kUnsupported, "post_processor: legal is null or ByteLevel"},
        Refusal{"\"decoder\": {\"type\": \"ByteLevel\"", "\"decoder\": {\"type\": \"Metaspace\"", kUnsupported,
                "decoder: legal is ByteLevel"},
        Refusal{"\"type\": \"BPE\"", "\"type\": \"Unigram\"", kUnsupported,
                "model.type: legal is \"BPE\", found \"Unigram\""},
        Refusal{"\"dropout\": null", "\"dropout\": 0.1", kUnsupported, "model.dropout: legal is null, found 0.1"},
        Refusal{"\"unk_token\": null", "\"unk_token\": \"<unk>\"", kUnsupported, "model.unk_token"},
        Refusal{"\"end_of_word_suffix\": null", "\"end_of_word_suffix\": \"</w>\"", kUnsupported,
                "model.end_of_word_suffix"},
        Refusal{"\"byte_fallback\": false", "\"byte_fallback\": true", kUnsupported,
                "model.byte_fallback: legal is false"},
        Refusal{"\"fuse_unk\": false", "\"ignore_merges\": true", kUnsupported, "model.ignore_merges: legal is false"},
        Refusal{"\"lstrip\": false", "\"lstrip\": true", kUnsupported, "added_tokens[0].lstrip: legal is false"},
        Refusal{"<｜begin▁of▁sentence｜>", "<bos>", kInvalid, "disagree with model.vocab"},
        Refusal{"\"content\": \"<think>\"", "\"content\": \"\"", kInvalid, "content: 0 bytes; legal are 1 to 256"},
        Refusal{"\"content\": \"<think>\"", "\"content\": \"</think>\"", kInvalid, "content: occurs twice"},
        Refusal{"\"content\": \"<think>\"", "\"contents\": \"<think>\"", kInvalid, "content: expected a string"},
        Refusal{"\"special\": true", "\"special\": 1", kInvalid, "special: expected true or false"},
        Refusal{"\"id\": 2,", "\"id\": -2,", kInvalid, "added_tokens[2].id: -2 is not in 0.."},
        Refusal{"\"id\": 2,", "\"id\": 2.0,", kInvalid, "added_tokens[2].id"},
        Refusal{"\"id\": 319,", "\"id\": 320,", kInvalid, "without holes: nothing has id 319"},
        Refusal{"\"id\": 319,", "\"id\": 318,", kInvalid, "id 318 occurs twice"},
        Refusal{"\"!\": ", "\"absent\": ", kInvalid, "the symbol of byte 33 (!) is missing"},
        Refusal{"\"a\": ", "\"b\": ", kInvalid, "model.vocab[\"b\"]: occurs twice"},
        Refusal{"\"merges\": [\"", "\"merges\": [\"q q\", \"", kInvalid, "a token that is not in model.vocab"},
        Refusal{"\"merges\": [\"", "\"merges\": [\"q\", \"", kInvalid, "expected two tokens"},
        Refusal{"\"merges\": [\"", "\"merges\": [[\"q\", 1], \"", kInvalid, "expected two tokens"},
        Refusal{"\"merges\": [", "\"merges\": {\"a\": [", kInvalid, "malformed JSON"},
        Refusal{"\"merges\"", "\"merge\"", kInvalid, "model.merges: expected an array"},
        Refusal{"\"vocab\"", "\"vocabulary\"", kInvalid, "model.vocab: expected an object"}));

TEST(TokenizerFile, RefusesDuplicateMergesAndIds) {
  const std::string text = make_synthetic_tokenizer(320).value();
  const size_t begin = text.find("\"merges\": [") + 11;
  const std::string first = text.substr(begin, text.find(',', begin) - begin);
  auto twice = text;
  twice.insert(begin, first + ", ");
  EXPECT_THAT(Tokenizer::parse(twice).status().to_string(),
              AllOf(HasSubstr("model.merges[1]"), HasSubstr("occurs twice")));
  EXPECT_THAT(Tokenizer::parse(changed("\"!\": 36", "\"!\": 37")).status().to_string(),
              HasSubstr("belongs to another token, too"));
}

TEST(TokenizerFile, RefusesAMetaspaceTokenizer) {
  const auto file = Tokenizer::parse(
      R"({"version": "1.0", "added_tokens": [], "normalizer": null,
          "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"},
          "decoder": {"type": "Metaspace"}, "model": {"type": "BPE", "vocab": {}, "merges": []}})");
  EXPECT_EQ(file.status().code(), kUnsupported);
  EXPECT_THAT(
      std::string(file.status().message()),
      HasSubstr("pre_tokenizer.type: legal is \"Sequence\" (three Split, then ByteLevel), found \"Metaspace\""));
}

TEST(TokenizerFile, RefusesWhatIsNoTokenizer) {
  for (const char* text : {"", "null", "[]", "{}", "3", "{\"version\": \"1.0\"", "\"1.0\"", "{\"version\": \"1.0\"}"}) {
    EXPECT_FALSE(Tokenizer::parse(text).ok()) << text;
  }
}

TEST(TokenizerFile, NeedsTheSentenceTokens) {
  std::string text = make_synthetic_tokenizer(320).value();
  for (size_t at = 0; (at = text.find("<｜end▁of▁sentence｜>", at)) != std::string::npos;) text.replace(at, 5, "<end");
  const auto file = Tokenizer::parse(text);
  EXPECT_EQ(file.status().code(), kUnsupported);
  EXPECT_THAT(std::string(file.status().message()), HasSubstr("<｜end▁of▁sentence｜> is missing"));
}

TEST(TokenizerFile, TakesPairsAsMergesAndAnyMemberOrder) {
  std::string text = make_synthetic_tokenizer(320).value();
  const auto plain = Tokenizer::parse(text);
  ASSERT_TRUE(plain.ok());
  size_t at = text.find("\"merges\": [") + 11;
  while (text[at] == '"') {
    const size_t end = text.find('"', at + 1);
    const size_t blank = text.find(' ', at);
    std::string pair = "[" + text.substr(at, blank - at) + "\", \"" + text.substr(blank + 1, end - blank) + "]";
    text.replace(at, end + 1 - at, pair);
    at += pair.size() + 2;
  }
  const auto pairs = Tokenizer::parse(text);
  ASSERT_TRUE(pairs.ok()) << pairs.status().to_string();
  EXPECT_EQ(pairs.value()->encode("Hello there"), plain.value()->encode("Hello there"));
}

}  // namespace
}  // namespace ps::text
