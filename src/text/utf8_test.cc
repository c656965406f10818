#include "text/utf8.h"

#include <gtest/gtest.h>

#include <random>

#include "text/byte_alphabet.h"

namespace ps::text {
namespace {

TEST(Utf8, EveryScalarValueSurvives) {
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string bytes;
    append_utf8(bytes, code);
    const Utf8Step step = utf8_step(bytes.data(), bytes.size());
    ASSERT_EQ(step.kind, Utf8Step::Kind::kValid) << static_cast<uint32_t>(code);
    ASSERT_EQ(step.code, code);
    ASSERT_EQ(step.length, bytes.size());
    if (bytes.size() > 1) {
      ASSERT_EQ(utf8_step(bytes.data(), bytes.size() - 1).kind, Utf8Step::Kind::kTruncated);
    }
  }
}

// Expected strings are what Rust's String::from_utf8_lossy and Python's errors="replace" give.
TEST(Utf8, OneReplacementPerMaximalBrokenPrefix) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"", ""},
      {"abc", "abc"},
      {"\xFF", "\uFFFD"},
      {"\x80\x80", "\uFFFD\uFFFD"},
      {"\xC3", "\uFFFD"},
      {"\xC3z", "\uFFFDz"},
      {"\xC0\xAF", "\uFFFD\uFFFD"},  // overlong
      {"\xE2\x82", "\uFFFD"},        // cut behind two of three
      {"\xE2\x82z", "\uFFFDz"},
      {"\xE0\x80\x80", "\uFFFD\uFFFD\uFFFD"},  // overlong: the second byte is illegal already
      {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},  // a surrogate
      {"\xF0\x9F\x98", "\uFFFD"},
      {"\xF0\x9F\x98\x80\xF0\x9F", "\U0001F600\uFFFD"},
      {"\xF0\x9F"
       "a\xF0\x9F\x98",
       "\uFFFDa\uFFFD"},
      {"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},  // above U+10FFFF
      {"\xF5\x80", "\uFFFD\uFFFD"},
      {"\xEF\xBF\xBD", "\uFFFD"},
  };
  for (const auto& [bytes, text] : cases) EXPECT_EQ(lossy_utf8(bytes), text) << testing::PrintToString(bytes);
}

TEST(Utf8, PartsGiveWhatTheWholeGives) {
  std::mt19937 random(7);
  constexpr std::string_view kBytes = "a\x80\xBF\xC3\xE0\xA0\xE2\x82\xED\x9F\xF0\x9F\x98\xF4\x8F\xFF";
  for (int round = 0; round < 20000; ++round) {
    std::string bytes;
    for (unsigned i = random() % 12; i > 0; --i) bytes += kBytes[random() % kBytes.size()];
    LossyUtf8 decoder;
    std::string text;
    for (size_t at = 0; at < bytes.size();) {
      const size_t part = 1 + random() % 3;
      decoder.append(std::string_view(bytes).substr(at, part), text);
      at += part;
      const std::string so_far = text + (decoder.has_tail() ? std::string(kReplacement) : "");
      ASSERT_EQ(so_far, lossy_utf8(std::string_view(bytes).substr(0, at)));
    }
    decoder.finish(text);
    ASSERT_EQ(text, lossy_utf8(bytes));
  }
}

TEST(ByteAlphabet, EveryByteHasItsOwnSymbol) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ(unspell_bytes(spell_bytes(all)), all);
  EXPECT_EQ(spell_bytes(" a\n\xC3\xA9\xAD"), "Ġa\u010A\u00C3\u00A9\u0143");
  EXPECT_EQ(unspell_bytes("a｜"), std::nullopt);
  EXPECT_EQ(unspell_bytes("a b"), std::nullopt);
}

}  // namespace
}  // namespace ps::text
