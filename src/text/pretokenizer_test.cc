// The scanner against worked cuts and, on random text, against the regular expressions themselves run by PCRE2.
#include "text/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <unicode/uchar.h>

#include <memory>
#include <vector>

#include "text/test_data.h"

namespace ps::text {
namespace {

using Pieces = std::vector<std::string>;

Pieces split(std::string_view text) {
  Pieces pieces;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = piece_end(text, begin);
    EXPECT_GT(end, begin);
    EXPECT_LE(end, text.size());
    if (end <= begin) break;
    pieces.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return pieces;
}

class Regex {
 public:
  explicit Regex(std::string_view pattern) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF | PCRE2_UCP,
                              &error, &offset, nullptr));
    EXPECT_NE(code_, nullptr);
    match_.reset(pcre2_match_data_create(1, nullptr));
  }

  // The Split step with behaviour Isolated: matches and what lies between them.
  void cut(const std::string& text, Pieces& out) const {
    size_t at = 0;
    size_t gap = 0;
    while (at < text.size() && pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                                           PCRE2_NO_UTF_CHECK, match_.get(), nullptr) > 0) {
      const PCRE2_SIZE* span = pcre2_get_ovector_pointer(match_.get());
      if (span[0] > gap) out.push_back(text.substr(gap, span[0] - gap));
      out.push_back(text.substr(span[0], span[1] - span[0]));
      at = gap = span[1];
    }
    if (gap < text.size()) out.push_back(text.substr(gap));
  }

 private:
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
    void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
  };
  std::unique_ptr<pcre2_code, Free> code_;
  std::unique_ptr<pcre2_match_data, Free> match_;
};

Pieces split_by_regex(const std::string& text) {
  static const Regex regexes[3] = {Regex(kSplitPatterns[0]), Regex(kSplitPatterns[1]), Regex(kSplitPatterns[2])};
  Pieces pieces{text};
  for (const Regex& regex : regexes) {
    Pieces next;
    for (const std::string& piece : pieces) regex.cut(piece, next);
    pieces = std::move(next);
  }
  return pieces;
}

// Characters on which PCRE2 10.42 (Unicode 14) and the tables (Unicode 15) agree; PCRE2 takes U+180E for a space.
bool is_settled(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text.data() + at, text.size() - at);
    UVersionInfo age;
    u_charAge(static_cast<UChar32>(step.code), age);
    if (age[0] > 14 || step.code == 0x180E) return false;
    at += step.length;
  }
  return true;
}

TEST(Pretokenizer, WorkedCuts) {
  const std::pair<std::string_view, Pieces> cases[] = {
      {"1234567890", {"123", "456", "789", "0"}},
      {"a  b", {"a", " ", " b"}},
      {"a \n\n b", {"a", " \n\n", " b"}},
      {"a\t\tb", {"a", "\t", "\tb"}},
      {"a!\n", {"a", "!\n"}},
      {"x   ", {"x", "   "}},
      {"x   1", {"x", "   ", "1"}},  // the end of a segment is not a visible character
      {"x   漢", {"x", "   ", "漢"}},
      {"x   !", {"x", "  ", " !"}},
      {"x\t\t!", {"x", "\t", "\t", "!"}},  // only U+0020 leads punctuation
      {"file.txt", {"file", ".txt"}},
      {"I'm", {"I", "'m"}},
      {"snake_case", {"snake", "_case"}},
      {"'mé", {"'m", "é"}},  // ASCII letters only behind a mark
      {"!!a", {"!!", "a"}},
      {"\x01", {"\x01"}},
      {"\x01\x02", {"\x01\x02"}},
      {"\x01\x02z", {"\x01", "\x02z"}},
      {"½Ⅷ٣4", {"½Ⅷ٣", "4"}},
      {"漢字かなカナ々〇龦", {"漢字かなカナ", "々", "〇", "龦"}},
      {"カナ・ー", {"カナ", "・", "ー"}},  // a run of the second split is cut by the third
      {"漢\u3040\u3099", {"漢", "\u3040\u3099"}},
      {"漢・!", {"漢", "・", "!"}},  // but what follows is another segment
      {" 漢", {" ", "漢"}},
      {"a\u200Bb", {"a", "\u200Bb"}},  // not White_Space
      {"a\u0085\u0085b", {"a", "\u0085", "\u0085b"}},
      {"\r\n \t\n", {"\r\n \t\n"}},
      {"\n  x", {"\n", " ", " x"}},
  };
  for (const auto& [text, pieces] : cases) {
    EXPECT_EQ(split(text), pieces) << testing::PrintToString(text);
    EXPECT_EQ(split_by_regex(std::string(text)), pieces) << testing::PrintToString(text);
  }
}

TEST(Pretokenizer, EveryCharacterInEveryPosition) {
  const std::string_view frames[][2] = {{"", ""},    {"", "a"},  {"a", "b"},  {" ", " "},
                                        {"!", "\n"}, {"1", "2"}, {"漢", "漢"}};
  for (char32_t code = 0; code < 0x110000; ++code) {
    if ((code >= 0xD800 && code < 0xE000) || (code >= 0x20000 && code % 61 != 0)) continue;
    std::string character;
    append_utf8(character, code);
    if (!is_settled(character)) continue;
    for (const auto& frame : frames) {
      const std::string text = std::string(frame[0]) + character + std::string(frame[1]);
      ASSERT_EQ(split(text), split_by_regex(text)) << std::hex << static_cast<uint32_t>(code);
    }
  }
}

TEST(Pretokenizer, RandomTextCutsAsTheExpressionsDo) {
  test::TextSource source(41);
  int compared = 0;
  for (int round = 0; round < 60000; ++round) {
    const std::string text = source.text(1 + source.below(24));
    if (!is_settled(text)) continue;
    ++compared;
    ASSERT_EQ(split(text), split_by_regex(text)) << testing::PrintToString(text);
  }
  EXPECT_GT(compared, 30000);
}

TEST(Pretokenizer, BytesOutsideUtf8StandAlone) {
  EXPECT_EQ(split("a\xFFz"), (Pieces{"a", "\xFF", "z"}));
  EXPECT_EQ(split(" \xC3"), (Pieces{" ", "\xC3"}));
  EXPECT_EQ(split("  \xE2\x82x"), (Pieces{"  ", "\xE2", "\x82", "x"}));
  EXPECT_EQ(split("\xED\xA0\x80"), (Pieces{"\xED", "\xA0", "\x80"}));
  test::TextSource source(5);
  for (int round = 0; round < 20000; ++round) {
    std::string text = source.text(8);
    for (int i = 0; i < 3; ++i)
      text[source.below(static_cast<uint32_t>(text.size()))] = static_cast<char>(source.below(256));
    std::string joined;
    for (const std::string& piece : split(text)) joined += piece;
    ASSERT_EQ(joined, text);
  }
}

}  // namespace
}  // namespace ps::text
