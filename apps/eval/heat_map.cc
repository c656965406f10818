// The picture of needle recall; see summary.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "apps/eval/summary.h"
#include "apps/units.h"

namespace ps::apps::eval {
namespace {

constexpr int kCellWidth = 72;
constexpr int kCellHeight = 36;
constexpr int kLeft = 84;
constexpr int kTop = 70;
constexpr int kBelow = 54;
constexpr int kRight = 20;

// From a warm light tone at 0 to a dark blue at 1; lightness alone tells the order, so it reads without color too.
std::string color_of(double share) {
  const double low[] = {253, 231, 200};
  const double high[] = {16, 66, 130};
  const auto mix = [&](int i) { return static_cast<int>(std::lround(low[i] + (high[i] - low[i]) * share)); };
  return fmt::format("#{:02x}{:02x}{:02x}", mix(0), mix(1), mix(2));
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string label(int x, int y, std::string_view anchor, std::string_view color, std::string_view text) {
  return fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\" fill=\"{}\">{}</text>\n", x, y, anchor, color,
                     escaped(text));
}

}  // namespace

std::string heat_map_svg(const std::vector<NeedleSummary>& needles, const std::string& title) {
  std::set<int64_t> distances;
  std::set<double> depths;
  std::map<std::pair<double, int64_t>, Rate> cells;
  for (const NeedleSummary& needle : needles) {
    distances.insert(needle.tokens);
    depths.insert(needle.depth);
    cells[{needle.depth, needle.tokens}] = needle.exact;
  }
  const int columns = static_cast<int>(distances.size());
  const int rows = static_cast<int>(depths.size());
  const int width = std::max(kLeft + columns * kCellWidth + kRight, 480);
  const int height = kTop + rows * kCellHeight + kBelow;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
      width, height);
  svg += label(kLeft, 24, "start", "#222", title);
  svg += label(kLeft, 44, "start", "#666", "exact answers of all cases; depth 0 % is the beginning of the text");
  int row = 0;
  for (const double depth : depths) {
    const int y = kTop + row++ * kCellHeight;
    svg += label(kLeft - 10, y + kCellHeight / 2 + 5, "end", "#222", fmt::format("{:.0f} %", 100 * depth));
    int column = 0;
    for (const int64_t tokens : distances) {
      const int x = kLeft + column++ * kCellWidth;
      const auto found = cells.find({depth, tokens});
      if (found == cells.end() || found->second.of == 0) continue;
      const Rate& rate = found->second;
      const double share = rate.interval().value;
      svg += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>\n", x + 1, y + 1,
                         kCellWidth - 2, kCellHeight - 2, color_of(share));
      svg += label(x + kCellWidth / 2, y + kCellHeight / 2 + 5, "middle", share > 0.45 ? "white" : "#222",
                   fmt::format("{}/{}", rate.hits, rate.of));
    }
  }
  int column = 0;
  for (const int64_t tokens : distances) {
    svg += label(kLeft + column++ * kCellWidth + kCellWidth / 2, kTop + rows * kCellHeight + 20, "middle", "#222",
                 grouped(tokens));
  }
  svg += label(kLeft + columns * kCellWidth / 2, height - 12, "middle", "#222", "tokens of the text");
  svg += fmt::format(
      "<text transform=\"translate(18 {}) rotate(-90)\" text-anchor=\"middle\" fill=\"#222\">depth of "
      "the fact</text>\n</svg>\n",
      kTop + rows * kCellHeight / 2);
  return svg;
}

}  // namespace ps::apps::eval
