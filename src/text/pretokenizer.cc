#include "text/pretokenizer.h"

#include <utf8proc.h>

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "text/unicode.h"
#include "text/utf8.h"

namespace ps::text {
namespace {

// Exactly one class per character, and kCjk beside it; sets of classes are bit masks.
enum Class : uint16_t {
  kOther = 1 << 0,  // controls, format characters, private use, unassigned
  kAsciiLetter = 1 << 1,
  kLetter = 1 << 2,  // beyond ASCII
  kMark = 1 << 3,
  kNumber = 1 << 4,
  kAsciiPunctuation = 1 << 5,  // punctuation and symbols below U+0080
  kPunctuation = 1 << 6,       // punctuation and symbols beyond ASCII
  kBlank = 1 << 7,             // U+0020
  kWhite = 1 << 8,             // other White_Space except \r and \n
  kNewline = 1 << 9,           // \r \n
  kInvalid = 1 << 10,          // one byte outside valid UTF-8
  kEnd = 1 << 11,              // the end of the segment
  kCjk = 1 << 12,              // in the ranges of the second split
};
constexpr uint16_t kWord = kAsciiLetter | kLetter | kMark;
constexpr uint16_t kMarkup = kAsciiPunctuation | kPunctuation;
constexpr uint16_t kSpace = kBlank | kWhite | kNewline;
constexpr uint16_t kSegmentEnd = kNumber | kInvalid | kEnd;  // what the third split never sees behind a character

bool is_cjk(char32_t code) noexcept { return (code >= 0x4E00 && code <= 0x9FA5) || (code >= 0x3040 && code <= 0x30FF); }

Class class_of(char32_t code) noexcept {
  if (code == '\r' || code == '\n') return kNewline;
  if (code == ' ') return kBlank;
  if (is_white_space(code)) return kWhite;
  const bool is_ascii = code < 0x80;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return is_ascii ? kAsciiLetter : kLetter;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: return kMark;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return kNumber;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO: return is_ascii ? kAsciiPunctuation : kPunctuation;
    default: return kOther;
  }
}

// Two-stage table over all code points: equal blocks of 256 are stored once.
class ClassTable {
 public:
  ClassTable() {
    std::map<std::array<uint16_t, kBlock>, uint16_t> known;
    std::array<uint16_t, kBlock> block{};
    for (char32_t start = 0; start < 0x110000; start += kBlock) {
      for (char32_t offset = 0; offset < kBlock; ++offset) {
        const char32_t code = start + offset;
        block[offset] = static_cast<uint16_t>(class_of(code) | (is_cjk(code) ? kCjk : 0));
      }
      const auto [entry, is_first] = known.emplace(block, static_cast<uint16_t>(known.size()));
      if (is_first) classes_.insert(classes_.end(), block.begin(), block.end());
      block_of_[start / kBlock] = entry->second;
    }
  }
  [[nodiscard]] uint16_t operator[](char32_t code) const noexcept {
    return classes_[block_of_[code / kBlock] * kBlock + code % kBlock];
  }
  // The block of U+0000, for bytes below 0x80.
  [[nodiscard]] const uint16_t* ascii() const noexcept { return classes_.data(); }

 private:
  static constexpr char32_t kBlock = 256;
  std::vector<uint16_t> classes_;
  std::array<uint16_t, 0x110000 / kBlock> block_of_{};
};

const ClassTable& class_table() {
  static const ClassTable table;
  return table;
}

struct Char {
  uint16_t class_bit;
  uint8_t length;
};

// The third split inside one segment: every piece that the first two leave is cut again by itself, so runs of the
// second split are segments (kInCjk), and so is what lies between them and the numbers.
template <bool kInCjk>
class Scanner {
 public:
  Scanner(std::string_view text, const ClassTable& table) noexcept
      : text_(text), table_(table), ascii_(table.ascii()) {}

  [[nodiscard]] size_t end_of_piece(size_t begin) const noexcept {
    const Char first = at(begin);
    const size_t next = begin + first.length;
    switch (first.class_bit) {
      case kAsciiLetter:
      case kLetter:
      case kMark: return skip(next, kWord);
      case kNumber: return number_end(next);
      case kAsciiPunctuation:
        if (at(next).class_bit == kAsciiLetter) return skip(next + 1, kAsciiLetter);
        return markup_end(next);
      case kPunctuation: return markup_end(next);
      case kBlank: {
        const Char second = at(next);
        if ((second.class_bit & kWord) != 0) return skip(next + second.length, kWord);
        if ((second.class_bit & kMarkup) != 0) return markup_end(next + second.length);
        return space_end(begin);
      }
      case kWhite:
        if ((at(next).class_bit & kWord) != 0) return skip(next, kWord);
        return space_end(begin);
      case kNewline: return space_end(begin);
      case kOther:
        if ((at(next).class_bit & kWord) != 0) return skip(next, kWord);
        return gap_end(next);
      default: return next;  // kInvalid
    }
  }

 private:
  [[nodiscard]] Char at(size_t position) const noexcept {
    if (position >= text_.size()) return {kEnd, 0};
    const auto byte = static_cast<uint8_t>(text_[position]);
    if (byte < 0x80) return kInCjk ? Char{kEnd, 0} : Char{ascii_[byte], 1};
    const Utf8Step step = utf8_step(text_.data() + position, text_.size() - position);
    if (step.kind != Utf8Step::Kind::kValid) return {kInvalid, 1};
    const uint16_t class_bits = table_[step.code];
    if (((class_bits & kCjk) != 0) != kInCjk) return {kEnd, 0};
    return {static_cast<uint16_t>(class_bits & ~kCjk), step.length};
  }

  [[nodiscard]] size_t skip(size_t position, uint16_t classes) const noexcept {
    for (;;) {
      const Char next = at(position);
      if ((next.class_bit & classes) == 0) return position;
      position += next.length;
    }
  }

  // \p{N}{1,3}, behind the first.
  [[nodiscard]] size_t number_end(size_t position) const noexcept {
    for (int count = 1; count < 3; ++count) {
      const Char next = at(position);
      if (next.class_bit != kNumber) break;
      position += next.length;
    }
    return position;
  }

  // [\p{P}\p{S}]+[\r\n]*, behind the first.
  [[nodiscard]] size_t markup_end(size_t position) const noexcept { return skip(skip(position, kMarkup), kNewline); }

  // \s*[\r\n]+ | \s+(?!\S) | \s+: up to the last newline of the run if it has one; otherwise the run, without its last
  // character where a visible one of the same segment follows (that character then leads the next piece).
  [[nodiscard]] size_t space_end(size_t begin) const noexcept {
    size_t position = begin;
    size_t last_start = begin;
    size_t behind_newline = 0;
    Char next = at(position);
    for (; (next.class_bit & kSpace) != 0; next = at(position)) {
      last_start = position;
      position += next.length;
      if (next.class_bit == kNewline) behind_newline = position;
    }
    if (behind_newline != 0) return behind_newline;
    if ((next.class_bit & kSegmentEnd) != 0 || last_start == begin) return position;
    return last_start;
  }

  // Characters that no alternative matches stay together until one starts a match, alone or as the leader of a word.
  [[nodiscard]] size_t gap_end(size_t position) const noexcept {
    for (;;) {
      const Char next = at(position);
      if (next.class_bit != kOther) return position;
      if ((at(position + next.length).class_bit & kWord) != 0) return position;
      position += next.length;
    }
  }

  std::string_view text_;
  const ClassTable& table_;
  const uint16_t* ascii_;
};

}  // namespace

size_t piece_end(std::string_view text, size_t begin) noexcept {
  const ClassTable& table = class_table();
  if (static_cast<uint8_t>(text[begin]) >= 0x80) {
    const Utf8Step step = utf8_step(text.data() + begin, text.size() - begin);
    if (step.kind == Utf8Step::Kind::kValid && is_cjk(step.code)) {
      return Scanner<true>(text, table).end_of_piece(begin);
    }
  }
  return Scanner<false>(text, table).end_of_piece(begin);
}

}  // namespace ps::text
