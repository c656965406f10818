#include "apps/units.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

namespace ps::apps {

std::string grouped(int64_t value) {
  std::string digits = std::to_string(value);
  const size_t first = value < 0 ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

std::string human_bytes(int64_t bytes) {
  constexpr std::array kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.2f} {}", value, kUnits[unit]);
}

std::string human_count(int64_t count) {
  const auto value = static_cast<double>(count);
  if (count >= 1'000'000'000) return fmt::format("{:.2f} B", value / 1e9);
  if (count >= 1'000'000) return fmt::format("{:.2f} M", value / 1e6);
  return grouped(count);
}

Result<int64_t> parse_bytes(std::string_view text) {
  const auto illegal = [&] {
    return Status::invalid(
        fmt::format("size \"{}\": expected a number and a unit, as in 64GiB, 1.5TB, 512M or 1000000", text));
  };
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || !std::isfinite(number) || number < 0) return illegal();
  std::string unit;
  for (const char* at = end; at != text.data() + text.size(); ++at) {
    if (*at != ' ') unit += static_cast<char>(std::toupper(static_cast<unsigned char>(*at)));
  }
  double scale = 1;
  if (!unit.empty() && unit != "B") {
    constexpr std::string_view kLetters = "KMGT";
    const size_t power = kLetters.find(unit[0]);
    const std::string_view rest = std::string_view(unit).substr(1);
    if (power == std::string_view::npos || (!rest.empty() && rest != "B" && rest != "IB")) return illegal();
    scale = std::pow(rest == "B" ? 1000.0 : 1024.0, static_cast<double>(power + 1));
  }
  const double bytes = number * scale;
  if (bytes >= 9.2e18) return illegal();
  return static_cast<int64_t>(bytes);
}

}  // namespace ps::apps
