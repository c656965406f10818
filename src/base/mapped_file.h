// A file mapped read-only and shared: several processes that open one checkpoint hold one copy of it. Works on a
// read-only directory; nothing is ever written beside the file.
// Threading: immutable after open; the view is readable from any thread while the object lives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace ps {

class MappedFile {
 public:
  // not_found, or invalid for a folder or an unreadable file. An empty file gives an empty view.
  static Result<MappedFile> open(const std::filesystem::path& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }
  [[nodiscard]] int64_t size_bytes() const noexcept { return static_cast<int64_t>(size_); }

 private:
  MappedFile(const std::byte* data, size_t size) noexcept : data_(data), size_(size) {}
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// A whole small file; refuses one above `limit_bytes` (invalid).
[[nodiscard]] Result<std::string> read_file(const std::filesystem::path& path, int64_t limit_bytes);

// Writes to a temporary name beside `path`, syncs, then renames: a reader sees the old file or the whole new one.
[[nodiscard]] Status write_file(const std::filesystem::path& path, std::string_view content);

}  // namespace ps
