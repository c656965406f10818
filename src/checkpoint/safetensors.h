// The safetensors container: 8 bytes of header length (little-endian), a JSON header, the tensors' bytes.
//
// The reader trusts no number of a file. It refuses: a header that does not fit the file or exceeds 100 MB, malformed
// or duplicate entries, dtypes that this model does not use, negative or overflowing shapes, a byte range outside the
// file or of another size than shape x dtype, overlaps, holes and trailing bytes (the format has none), and data that
// is not aligned to its element (F32 4, BF16 2, ...; every writer pads its header to 8 bytes and sorts by element size,
// so that views can be read in place).
// The writer streams to a temporary name and renames at the end: a file of the final name is complete. Its bytes depend
// on the declared tensors alone.
// Threading: a reader is immutable; a writer belongs to one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/number_formats.h"
#include "base/status.h"

namespace ps::checkpoint {

// Up to four dimensions, in elements as stored (a packed FP4 row of K values has K/2).
struct Shape {
  static constexpr int kMaxRank = 4;
  int rank = 0;
  std::array<int64_t, kMaxRank> dims = {0, 0, 0, 0};

  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes);  // NOLINT(google-explicit-constructor): REQUIRES at most kMaxRank sizes
  [[nodiscard]] int64_t operator[](int axis) const noexcept { return dims[static_cast<size_t>(axis)]; }
  // Product of the dimensions; 1 for rank 0.
  // REQUIRES: it fits, as every parsed or derived shape does.
  [[nodiscard]] int64_t elements() const noexcept;
  // "[4, 5120]".
  [[nodiscard]] std::string to_string() const;
  friend bool operator==(const Shape&, const Shape&) = default;
};

// One tensor where it lies in a mapped file. Packed FP4 is kI8 of half the columns. Data is aligned to its element
// only.
struct TensorView {
  DType dtype = DType::kF32;
  Shape shape;
  const std::byte* data = nullptr;
  int64_t size_bytes = 0;
};

// One header entry; the byte range counts from the end of the header.
struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  int64_t begin = 0;
  int64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // ascending by begin
  int64_t data_offset = 0;                // of the first tensor byte in the file
};

inline constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;

// `prefix` holds the file's first bytes, at least the whole header; `file_bytes` is the size of the file.
// corrupt, with the tensor's name where there is one.
[[nodiscard]] Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> prefix, int64_t file_bytes);

// A mapped file and its entries.
class SafetensorsFile {
 public:
  [[nodiscard]] static Result<SafetensorsFile> open(const std::filesystem::path& path);

  [[nodiscard]] const std::vector<SafetensorsEntry>& entries() const noexcept { return header_.entries; }
  [[nodiscard]] TensorView view(const SafetensorsEntry& entry) const noexcept;
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return file_.bytes(); }
  [[nodiscard]] const MappedFile& file() const noexcept { return file_; }

 private:
  SafetensorsFile(MappedFile file, SafetensorsHeader header) : file_(std::move(file)), header_(std::move(header)) {}
  MappedFile file_;
  SafetensorsHeader header_;
};

// Declares all tensors first (the header precedes the data), then takes their bytes in file order.
class SafetensorsWriter {
 public:
  struct Declaration {
    std::string name;
    DType dtype = DType::kF32;
    Shape shape;
  };

  // `tensors` in file order; tensors of wider elements must come first so that all are aligned (see aligned_order).
  [[nodiscard]] static Result<SafetensorsWriter> create(const std::filesystem::path& path,
                                                        const std::vector<Declaration>& tensors);
  // The next bytes of the payload; pieces may end anywhere.
  [[nodiscard]] Status append(std::span<const std::byte> bytes);
  // Syncs and renames. invalid, and the file is removed, when bytes are missing.
  [[nodiscard]] Status finish();

  SafetensorsWriter(SafetensorsWriter&&) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&&) noexcept;
  // Removes an unfinished file.
  ~SafetensorsWriter();

 private:
  struct State;
  explicit SafetensorsWriter(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

}  // namespace ps::checkpoint
