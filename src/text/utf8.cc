#include "text/utf8.h"

namespace ps::text {
namespace {

// What a lead byte promises: the length of its character and the legal range of the second byte.
struct Lead {
  uint8_t length;  // 0: no character starts with this byte
  uint8_t second_low;
  uint8_t second_high;
};

constexpr Lead lead_of(uint8_t byte) noexcept {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

// Decodes `bytes` up to an unfinished character at the end; returns how many bytes were used.
size_t decode_complete(std::string_view bytes, std::string& out) {
  size_t at = 0;
  size_t valid_from = 0;
  while (at < bytes.size()) {
    const Utf8Step step = utf8_step(bytes.data() + at, bytes.size() - at);
    if (step.kind == Utf8Step::Kind::kTruncated) break;
    if (step.kind == Utf8Step::Kind::kInvalid) {
      out.append(bytes, valid_from, at - valid_from);
      out += kReplacement;
      valid_from = at + step.length;
    }
    at += step.length;
  }
  out.append(bytes, valid_from, at - valid_from);
  return at;
}

}  // namespace

Utf8Step utf8_step(const char* bytes, size_t size) noexcept {
  const auto byte_at = [bytes](size_t index) { return static_cast<uint8_t>(bytes[index]); };
  const uint8_t first = byte_at(0);
  if (first < 0x80) return {first, 1, Utf8Step::Kind::kValid};
  const Lead lead = lead_of(first);
  if (lead.length == 0) return {0, 1, Utf8Step::Kind::kInvalid};
  char32_t code = first & (0x7Fu >> lead.length);
  for (uint8_t index = 1; index < lead.length; ++index) {
    if (index >= size) return {0, index, Utf8Step::Kind::kTruncated};
    const uint8_t byte = byte_at(index);
    const uint8_t low = index == 1 ? lead.second_low : 0x80;
    const uint8_t high = index == 1 ? lead.second_high : 0xBF;
    if (byte < low || byte > high) return {0, index, Utf8Step::Kind::kInvalid};
    code = (code << 6) | (byte & 0x3Fu);
  }
  return {code, lead.length, Utf8Step::Kind::kValid};
}

void append_utf8(std::string& out, char32_t code) {
  const auto continuation = [code](int shift) { return static_cast<char>(0x80u | ((code >> shift) & 0x3Fu)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0u | (code >> 6));
    out += continuation(0);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0u | (code >> 12));
    out += continuation(6);
    out += continuation(0);
  } else {
    out += static_cast<char>(0xF0u | (code >> 18));
    out += continuation(12);
    out += continuation(6);
    out += continuation(0);
  }
}

void LossyUtf8::append(std::string_view bytes, std::string& out) {
  if (tail_.empty()) {
    const size_t used = decode_complete(bytes, out);
    tail_ = bytes.substr(used);
    return;
  }
  tail_ += bytes;
  tail_.erase(0, decode_complete(tail_, out));
}

void LossyUtf8::finish(std::string& out) {
  if (!tail_.empty()) out += kReplacement;
  tail_.clear();
}

std::string lossy_utf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  LossyUtf8 decoder;
  decoder.append(bytes, text);
  decoder.finish(text);
  return text;
}

}  // namespace ps::text
