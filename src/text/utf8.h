// UTF-8 at the level of one character: strict decoding step, encoding, and Rust's lossy rule (encoding.md 1.2 item 7):
// every maximal prefix of a broken sequence becomes one U+FFFD. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ps::text {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

struct Utf8Step {
  enum class Kind : uint8_t {
    kValid,      // one character of `length` bytes
    kInvalid,    // `length` bytes that no continuation could complete: one U+FFFD
    kTruncated,  // all `length` remaining bytes begin a character whose rest is missing
  };
  char32_t code = 0;  // of a valid character
  uint8_t length = 0;
  Kind kind = Kind::kInvalid;
};

// The step at the front of `bytes`: surrogates, overlong forms and values above U+10FFFF are invalid.
// REQUIRES: size > 0.
[[nodiscard]] Utf8Step utf8_step(const char* bytes, size_t size) noexcept;

// REQUIRES: code is a Unicode scalar value.
void append_utf8(std::string& out, char32_t code);

// Appends the text of bytes that arrive in parts. What was appended plus one U+FFFD for a non-empty tail is the lossy
// decoding of everything appended so far.
class LossyUtf8 {
 public:
  void append(std::string_view bytes, std::string& out);
  // An unfinished character is waiting for its rest.
  [[nodiscard]] bool has_tail() const noexcept { return !tail_.empty(); }
  // Ends the input: an unfinished character becomes U+FFFD.
  void finish(std::string& out);

 private:
  std::string tail_;  // at most 3 bytes
};

[[nodiscard]] std::string lossy_utf8(std::string_view bytes);

}  // namespace ps::text
