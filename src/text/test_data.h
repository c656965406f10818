// What the tests of this module share: files under tests/data, the released tokenizer, a seeded source of hostile text.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <memory>
#include <random>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/mapped_file.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace ps::text::test {

inline std::string data_path(std::string_view name) { return std::string(PAGESTATE_TEST_DATA "/data/").append(name); }

inline JsonValue read_json(std::string_view name) {
  auto text = read_file(data_path(name), 64 << 20);
  EXPECT_TRUE(text.ok()) << text.status().to_string();
  auto json = JsonValue::parse(text.ok() ? text.value() : "null");
  EXPECT_TRUE(json.ok()) << json.status().to_string();
  return json.ok() ? std::move(json).value() : JsonValue();
}

inline std::string gunzip(const std::string& path) {
  std::string content;
  gzFile file = gzopen(path.c_str(), "rb");
  EXPECT_NE(file, nullptr) << path;
  if (file == nullptr) return content;
  std::string block(1 << 16, '\0');
  int count = 0;
  while ((count = gzread(file, block.data(), static_cast<unsigned>(block.size()))) > 0) {
    content.append(block, 0, static_cast<size_t>(count));
  }
  EXPECT_EQ(count, 0) << path;
  gzclose(file);
  return content;
}

// The text of the released vocabulary, merges and added tokens.
inline const std::string& released_json() {
  static const std::string json = gunzip(data_path("tokenizer_v41.json.gz"));
  return json;
}

inline const Tokenizer& released_tokenizer() {
  static const std::shared_ptr<const Tokenizer> tokenizer = [] {
    auto parsed = Tokenizer::parse(released_json());
    EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
    return std::move(parsed).value();
  }();
  return *tokenizer;
}

// Random text that mixes the classes on which the splits depend; runs of one class are common.
class TextSource {
 public:
  explicit TextSource(uint32_t seed) : engine_(seed) {}

  uint32_t below(uint32_t limit) { return static_cast<uint32_t>(engine_() % limit); }

  std::string text(uint32_t characters) {
    std::string out;
    uint32_t kind = 0;
    for (uint32_t i = 0; i < characters; ++i) {
      if (i == 0 || below(3) != 0) kind = below(12);
      append_utf8(out, character(kind));
    }
    return out;
  }

 private:
  char32_t pick(std::u32string_view set) { return set[below(static_cast<uint32_t>(set.size()))]; }

  char32_t character(uint32_t kind) {
    switch (kind) {
      case 0: return pick(U"abcdeXYZ");
      case 1: return pick(U"  \t\n\r\v\f\u0085\u00A0\u2003\u2028\u3000");
      case 2: return U'0' + below(10);
      case 3: return pick(U"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~");
      case 4: return pick(U"\u00BD\u2167\u0660\u0967\u3007\u2460");        // numbers of other kinds
      case 5: return pick(U"\u4E00\u9FA5\u3042\u30AB\u30FC\u3099\u30FB");  // the second split
      case 6: return pick(U"\u9FA6\u3400\u3005\uAC00\u00E9\u0416\u0130");  // other letters
      case 7: return pick(U"\u0301\u0903\u20DD\u200D\uFE0F\u0E31");        // marks, joiners
      case 8: return pick(U"\u2014\u00AB\u20AC\u2192\uFF01\uFF5C\u2581");  // punctuation, symbols
      case 9: return pick(U"\U0001F600\U0001F1E9\U0001F468\U0001F3FD");    // emoji
      case 10: return pick(std::u32string_view(U"\x01\0\x1F\u200B\uFEFF\uE000\uFFFF\U000E0001", 8));
      default: {
        char32_t code = 0;
        do code = below(0x110000);
        while (code >= 0xD800 && code < 0xE000);
        return code;
      }
    }
  }

  std::mt19937 engine_;
};

}  // namespace ps::text::test
