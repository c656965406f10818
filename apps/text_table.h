// Aligned columns of ASCII text for the terminal.
#pragma once

#include <string>
#include <vector>

namespace ps::apps {

class TextTable {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kRight;
  };

  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // REQUIRES: one cell per column.
  void add_row(std::vector<std::string> cells);
  // Title and rows, two spaces of indentation and between columns, no blanks at line ends.
  [[nodiscard]] std::string to_string() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace ps::apps
