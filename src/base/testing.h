// Helpers for unit tests: golden data under tests/ and folders that vanish. Test programs only.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"

namespace ps::test {

inline std::filesystem::path data_path(std::string_view name) {
  return std::filesystem::path(PAGESTATE_TEST_DATA) / "data" / name;
}

// A parsed file of tests/data. A missing or malformed one ends the program with its Status.
inline JsonValue load_json(std::string_view name) {
  Result<std::string> text = read_file(data_path(name), int64_t{64} << 20);
  Result<JsonValue> value = text.ok() ? JsonValue::parse(text.value()) : Result<JsonValue>(std::move(text).status());
  if (!value.ok()) {
    std::fprintf(stderr, "%s\n", value.status().to_string().c_str());
    std::abort();
  }
  return std::move(value).value();
}

// Member `key`, an array of integers.
template <typename T>
std::vector<T> integers(const JsonValue& object, std::string_view key) {
  std::vector<T> result;
  for (const JsonValue& item : object.find(key)->items()) {
    result.push_back(static_cast<T>(std::strtoull(item.text().c_str(), nullptr, 10)));
  }
  return result;
}

// An empty folder, removed with its content at the end of the scope.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "pagestate_test_XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::permissions(path_, std::filesystem::perms::owner_all, ignored);
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace ps::test
