// A file mapped read-only and shared: several processes that open one checkpoint hold one copy of it. Works on a
// read-only directory; nothing is ever written beside the file.
// Threading: immutable after open; the view is readable from any thread while the object lives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace ps {

class MappedFile {
 public:
  MappedFile() noexcept = default;  // an empty view
  // not_found, or invalid for a folder or an unreadable file. An empty file gives an empty view.
  static Result<MappedFile> open(const std::filesystem::path& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }
  [[nodiscard]] int64_t size_bytes() const noexcept { return static_cast<int64_t>(size_); }

  // The following take a range of the file. REQUIRES: it lies inside.
  // How many pages of it the page cache holds, of all that it touches; nothing where the system does not tell (it does
  // not tell everybody about everybody's files).
  struct CachedPages {
    int64_t cached = 0;
    int64_t all = 0;
  };
  [[nodiscard]] std::optional<CachedPages> cached_pages(int64_t offset, int64_t size_bytes) const noexcept;
  // Asks the system to start reading it into the page cache, and returns.
  void read_ahead(int64_t offset, int64_t size_bytes) const noexcept;
  // Waits until it is in the page cache and in this process's page tables. unavailable when the disk fails, where a
  // plain access would end the process.
  [[nodiscard]] Status populate(int64_t offset, int64_t size_bytes) const;
  // Copies it from the file. unavailable when the disk fails, corrupt when the file shrank.
  [[nodiscard]] Status copy(int64_t offset, std::span<std::byte> destination) const;
  // Lets the page cache forget it where nobody has it mapped and touched.
  void forget(int64_t offset, int64_t size_bytes) const noexcept;

 private:
  MappedFile(const std::byte* data, size_t size, int descriptor, std::string name) noexcept
      : data_(data), size_(size), descriptor_(descriptor), name_(std::move(name)) {}
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int descriptor_ = -1;
  std::string name_;  // for errors
};

// A whole small file; refuses one above `limit_bytes` (invalid).
[[nodiscard]] Result<std::string> read_file(const std::filesystem::path& path, int64_t limit_bytes);

// Writes to a temporary name beside `path`, syncs, then renames: a reader sees the old file or the whole new one.
[[nodiscard]] Status write_file(const std::filesystem::path& path, std::string_view content);

}  // namespace ps
