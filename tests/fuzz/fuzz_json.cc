// base/json against arbitrary bytes. The first byte chooses the limits; the rest is the text.
//  - A text is accepted exactly when nlohmann::json accepts it. Exceptions: the limits, a byte order mark (the oracle
//    skips it), a zero byte (it ends there) and numbers above the range of double (it refuses them).
//  - Writing an accepted value and reading it back gives the same value, in both styles.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/json.h"

namespace {

using ps::JsonValue;
using ps::JsonWriter;

[[noreturn]] void fail(const char* what, std::string_view text) {
  std::fprintf(stderr, "%s: %.*s\n", what, static_cast<int>(text.size()), text.data());
  std::abort();
}

// A number above the range of double. Python reads 1e999 as an infinity and prints "Infinity", which is no JSON.
bool has_infinity(const JsonValue& value) {
  if (value.is_number()) return !value.real().ok();
  for (const JsonValue& item : value.items()) {
    if (has_infinity(item)) return true;
  }
  for (const auto& [name, member] : value.members()) {
    if (has_infinity(member)) return true;
  }
  return false;
}

void check_rewriting(const JsonValue& value, JsonWriter::Style style, const ps::JsonLimits& limits) {
  const std::string once = JsonWriter(style).value(value).text();
  // Spelling may grow: escapes, separators, "1e5" -> "100000.0".
  const auto again = JsonValue::parse(once, {.bytes = int64_t{1} << 30, .depth = limits.depth});
  if (!again.ok()) fail("the written text is refused", once);
  if (JsonWriter(style).value(again.value()).text() != once) fail("the second writing differs", once);
}

void touch(const JsonValue& value) {
  (void)value.integer();
  (void)value.real();
  (void)value.duplicate_key();
  (void)value.find("a");
  (void)value.kind_name();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  ps::JsonLimits limits;
  limits.depth = data[0] % 80;
  limits.bytes = (data[0] & 0x80) != 0 ? 64 : 1 << 20;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  const auto value = JsonValue::parse(text, limits);
  const bool oracle_is_lax = text.starts_with("\xEF\xBB\xBF") || text.find('\0') != std::string_view::npos;
  if (value.ok()) {
    touch(value.value());
    if (!has_infinity(value.value())) {
      if (!nlohmann::json::accept(text)) fail("accepted what is no JSON", text);
      check_rewriting(value.value(), JsonWriter::Style::kPython, limits);
      check_rewriting(value.value(), JsonWriter::Style::kCompact, limits);
    }
  } else if (!oracle_is_lax && nlohmann::json::accept(text)) {
    const bool limited = static_cast<int64_t>(text.size()) > limits.bytes ||
                         value.status().message().find("deeper than") != std::string_view::npos;
    if (!limited) fail(std::string(value.status().message()).c_str(), text);
  }
  return 0;
}
