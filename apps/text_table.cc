#include "apps/text_table.h"

#include <algorithm>
#include <utility>

#include "base/macros.h"

namespace ps::apps {

void TextTable::add_row(std::vector<std::string> cells) {
  PS_CHECK(cells.size() == columns_.size(), cells.size(), columns_.size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::to_string() const {
  std::vector<size_t> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    size_t width = columns_[i].title.size();
    for (const auto& row : rows_) width = std::max(width, row[i].size());
    widths.push_back(width);
  }
  std::string text;
  const auto add_line = [&](const auto& cell_of) {
    std::string line;
    for (size_t i = 0; i < columns_.size(); ++i) {
      const std::string& cell = cell_of(i);
      const std::string blanks(widths[i] - cell.size(), ' ');
      line += "  ";
      line += columns_[i].align == Align::kLeft ? cell + blanks : blanks + cell;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  add_line([&](size_t i) -> const std::string& { return columns_[i].title; });
  for (const auto& row : rows_) add_line([&](size_t i) -> const std::string& { return row[i]; });
  return text;
}

}  // namespace ps::apps
