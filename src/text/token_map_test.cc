// The Engram classes of the released tokenizer, held to the published digest, and the normalizer, held to ICU.
#include "text/token_map.h"

#include <unicode/uchar.h>
#include <unicode/unorm2.h>

#include <bit>
#include <cstring>

#include "text/synthetic_tokenizer.h"
#include "text/test_data.h"

namespace ps::text {
namespace {

// SHA-256 (FIPS 180-4) of a short message.
std::string sha256_hex(std::string message) {
  static constexpr uint32_t kRound[64] = {
      0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
      0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
      0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
      0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
      0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
      0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
      0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
      0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
  uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const uint64_t bits = message.size() * 8;
  message += '\x80';
  while (message.size() % 64 != 56) message += '\0';
  for (int shift = 56; shift >= 0; shift -= 8) message += static_cast<char>(bits >> shift);
  for (size_t block = 0; block < message.size(); block += 64) {
    uint32_t w[64];
    for (size_t i = 0; i < 16; ++i) {
      uint32_t word;
      std::memcpy(&word, message.data() + block + 4 * i, 4);
      w[i] = __builtin_bswap32(word);
    }
    for (size_t i = 16; i < 64; ++i) {
      const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
      const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (size_t i = 0; i < 64; ++i) {
      const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
      const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
      const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
      const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    const uint32_t sums[8] = {a, b, c, d, e, f, g, h};
    for (size_t i = 0; i < 8; ++i) state[i] += sums[i];
  }
  std::string hex;
  for (const uint32_t word : state) {
    for (int shift = 28; shift >= 0; shift -= 4) hex += "0123456789abcdef"[(word >> shift) & 15];
  }
  return hex;
}

class IcuNormalizer {
 public:
  IcuNormalizer() {
    UErrorCode error = U_ZERO_ERROR;
    nfkc_ = unorm2_getNFKCInstance(&error);
    nfd_ = unorm2_getNFDInstance(&error);
    EXPECT_TRUE(U_SUCCESS(error));
  }

  // The steps of model.md 3.1 one by one.
  [[nodiscard]] std::u32string operator()(const std::u32string& text) const {
    std::u32string codes = utf32(apply(nfd_, apply(nfkc_, utf16(text))));
    std::erase_if(codes, [](char32_t code) { return (U_GET_GC_MASK(static_cast<UChar32>(code)) & U_GC_M_MASK) != 0; });
    std::u32string joined;
    for (char32_t code : codes) {
      code = static_cast<char32_t>(u_tolower(static_cast<UChar32>(code)));
      const bool is_blank = code == ' ' || code == '\t' || code == '\r' || code == '\n';
      if (!is_blank) joined += code;
      else if (joined.empty() || joined.back() != ' ') joined += U' ';
    }
    if (joined == U" ") joined = U"\uE000";
    const auto is_space = [](char32_t code) { return u_isUWhiteSpace(static_cast<UChar32>(code)) != 0; };
    while (!joined.empty() && is_space(joined.front())) joined.erase(0, 1);
    while (!joined.empty() && is_space(joined.back())) joined.pop_back();
    for (char32_t& code : joined) code = code == U'\uE000' ? U' ' : code;
    return joined;
  }

 private:
  static std::u16string utf16(const std::u32string& text) {
    std::u16string units;
    for (const char32_t code : text) {
      if (code >= 0x10000) units += static_cast<char16_t>(0xD7C0 + (code >> 10));
      units += static_cast<char16_t>(code >= 0x10000 ? 0xDC00 + (code & 0x3FF) : code);
    }
    return units;
  }
  static std::u32string utf32(const std::u16string& units) {
    std::u32string text;
    for (size_t i = 0; i < units.size(); ++i) {
      const bool is_pair = units[i] >= 0xD800 && units[i] < 0xDC00;
      text += is_pair ? static_cast<char32_t>(0x10000 + ((units[i] & 0x3FF) << 10) + (units[i + 1] & 0x3FF)) : units[i];
      if (is_pair) ++i;
    }
    return text;
  }
  static std::u16string apply(const UNormalizer2* normalizer, const std::u16string& text) {
    std::u16string out(text.size() * 20 + 16, u'\0');
    UErrorCode error = U_ZERO_ERROR;
    const int32_t size = unorm2_normalize(normalizer, text.data(), static_cast<int32_t>(text.size()), out.data(),
                                          static_cast<int32_t>(out.size()), &error);
    EXPECT_TRUE(U_SUCCESS(error)) << u_errorName(error);
    out.resize(static_cast<size_t>(size));
    return out;
  }

  const UNormalizer2* nfkc_ = nullptr;
  const UNormalizer2* nfd_ = nullptr;
};

std::string utf8(const std::u32string& text) {
  std::string bytes;
  for (const char32_t code : text) append_utf8(bytes, code);
  return bytes;
}

TEST(TokenMap, ReleasedTokenizerHasThePublishedClasses) {
  ASSERT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const TokenMap map = engram_token_map(test::released_tokenizer());
  ASSERT_EQ(map.class_of.size(), 129280u);
  EXPECT_EQ(map.classes, 99092);
  EXPECT_EQ(map.class_of[0], 0);
  EXPECT_EQ(map.class_of[2], 2);
  EXPECT_EQ(map.class_of[3], 3);
  const auto* bytes = reinterpret_cast<const char*>(map.class_of.data());
  EXPECT_EQ(sha256_hex(std::string(bytes, map.class_of.size() * sizeof(int32_t))),
            "c60a86322ec17b4142bfef3c57a8d81fb428550cdf487f88a4320cb59fe46481");
}

TEST(TokenMap, NormalizerOnWorkedTexts) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"", ""},
      {" ", " "},
      {"  ", " "},
      {"\n\t", " "},
      {"\u3000", " "},
      {"\u2028", ""},
      {" Hello", "hello"},
      {"ÉCOLE ", "ecole"},
      {"ﬁ", "fi"},
      {"Ａ", "a"},
      {"İ", "i"},
      {"ς", "ς"},
      {"a \r\n b", "a b"},
      {"\u0301", ""},
      {"\u20DD", ""},
      {"\u0903", ""},
      {"\uE000", " "},
      {"a\uE000", "a "},
      {"½", "1⁄2"},
      {"\u1E9B\u0323", "s"},
      {"각", "\u1100\u1161\u11A8"},
  };
  for (const auto& [text, expected] : cases)
    EXPECT_EQ(engram_normalize(text), expected) << testing::PrintToString(text);
}

TEST(TokenMap, NormalizerAgreesWithIcuOnEveryCharacter) {
  const IcuNormalizer icu;
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    const std::u32string text(1, code);
    ASSERT_EQ(engram_normalize(utf8(text)), utf8(icu(text))) << std::hex << static_cast<uint32_t>(code);
  }
}

TEST(TokenMap, NormalizerAgreesWithIcuOnRandomTexts) {
  const IcuNormalizer icu;
  test::TextSource source(31);
  for (int round = 0; round < 20000; ++round) {
    const std::string text = source.text(1 + source.below(10));
    std::u32string codes;
    for (size_t at = 0; at < text.size();) {
      const Utf8Step step = utf8_step(text.data() + at, text.size() - at);
      codes += step.code;
      at += step.length;
    }
    ASSERT_EQ(engram_normalize(text), utf8(icu(codes))) << testing::PrintToString(text);
  }
}

TEST(TokenMap, WorksForASyntheticTokenizer) {
  const auto tokenizer = Tokenizer::parse(make_synthetic_tokenizer(1024).value()).value();
  const TokenMap map = engram_token_map(*tokenizer);
  ASSERT_EQ(map.class_of.size(), 1024u);
  EXPECT_LT(map.classes, 1024);
  EXPECT_GT(map.classes, 600);
  const auto class_of = [&](std::string_view text) {
    const std::vector<TokenId> ids = tokenizer->encode(text);
    EXPECT_EQ(ids.size(), 1u) << text;
    return map.class_of[static_cast<size_t>(ids[0])];
  };
  EXPECT_EQ(class_of("a"), class_of("A"));
  EXPECT_EQ(class_of(" a"), class_of("a"));
  EXPECT_NE(class_of("a"), class_of("b"));
  int32_t next = 0;
  for (const int32_t value : map.class_of) {
    ASSERT_LE(value, next);
    next = std::max(next, value + 1);
  }
  EXPECT_EQ(next, map.classes);
}

}  // namespace
}  // namespace ps::text
