#include "checkpoint/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/json.h"
#include "base/macros.h"

namespace ps::checkpoint {
namespace {

constexpr int64_t kLengthBytes = 8;
constexpr JsonLimits kHeaderLimits = {.bytes = kMaxSafetensorsHeaderBytes, .depth = 8};
constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF8E4M3, DType::kF8E8M0,
                             DType::kI8,  DType::kI32,  DType::kI64};

bool find_dtype(std::string_view name, DType& type) {
  for (const DType candidate : kDTypes) {
    if (dtype_name(candidate) != name) continue;
    type = candidate;
    return true;
  }
  return false;
}

// A non-negative integer without point or exponent.
bool read_size(const JsonValue& value, int64_t& size) {
  const Result<int64_t> number = value.is_number() ? value.integer() : Result<int64_t>(Status::corrupt(""));
  if (!number.ok() || number.value() < 0) return false;
  size = number.value();
  return true;
}

Status read_shape(const JsonValue* value, Shape& shape) {
  if (value == nullptr || !value->is_array()) return Status::corrupt("shape is missing or no list");
  if (value->items().size() > static_cast<size_t>(Shape::kMaxRank)) {
    return Status::corrupt("shape has " + std::to_string(value->items().size()) + " axes, at most 4 are supported");
  }
  for (const JsonValue& item : value->items()) {
    int64_t size = 0;
    if (!read_size(item, size)) return Status::corrupt("shape has an entry that is no size");
    shape.dims[static_cast<size_t>(shape.rank++)] = size;
  }
  return {};
}

// Bytes of the tensor, or -1 when the product does not fit.
int64_t checked_bytes(const Shape& shape, DType dtype) {
  int64_t bytes = dtype_bytes(dtype);
  for (int axis = 0; axis < shape.rank; ++axis) {
    if (__builtin_mul_overflow(bytes, shape[axis], &bytes)) return -1;
  }
  return bytes;
}

Status read_entry(const JsonValue& value, SafetensorsEntry& entry) {
  if (!value.is_object()) return Status::corrupt("entry is " + std::string(value.kind_name()));
  if (const std::string* twice = value.duplicate_key()) return Status::corrupt("field " + *twice + " occurs twice");
  const JsonValue* dtype = value.find("dtype");
  if (dtype == nullptr || !dtype->is_string()) return Status::corrupt("dtype is missing or no string");
  if (!find_dtype(dtype->text(), entry.dtype)) {
    return Status::corrupt("dtype " + dtype->text() +
                           " is not used by this model, legal: F32 BF16 F8_E4M3 F8_E8M0 I8 I32 I64");
  }
  PS_RETURN_IF_ERROR(read_shape(value.find("shape"), entry.shape));
  const JsonValue* offsets = value.find("data_offsets");
  if (offsets == nullptr || !offsets->is_array() || offsets->items().size() != 2 ||
      !read_size(offsets->items()[0], entry.begin) || !read_size(offsets->items()[1], entry.end)) {
    return Status::corrupt("data_offsets is no pair of byte positions");
  }
  if (value.members().size() != 3) return Status::corrupt("has fields other than dtype, shape, data_offsets");
  const int64_t bytes = checked_bytes(entry.shape, entry.dtype);
  if (bytes < 0) return Status::corrupt("shape " + entry.shape.to_string() + " overflows");
  if (entry.end < entry.begin || entry.end - entry.begin != bytes) {
    return Status::corrupt("data_offsets [" + std::to_string(entry.begin) + ", " + std::to_string(entry.end) +
                           "] do not hold " + std::to_string(bytes) + " bytes of " + entry.shape.to_string() + " " +
                           std::string(dtype_name(entry.dtype)));
  }
  return {};
}

Status check_metadata(const JsonValue& value) {
  const auto is_text = [](const JsonValue::Member& member) { return member.second.is_string(); };
  if (!value.is_object() || !std::all_of(value.members().begin(), value.members().end(), is_text)) {
    return Status::corrupt("__metadata__ must map names to strings");
  }
  return {};
}

// The entries must tile the data: the format has no holes, so anything else is damage.
Status check_layout(const SafetensorsHeader& header, int64_t data_bytes) {
  int64_t position = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    if (entry.begin != position) {
      return Status::corrupt(entry.name + ": starts at byte " + std::to_string(entry.begin) +
                             (entry.begin < position ? ", inside of the tensor before it"
                                                     : ", after a hole from byte " + std::to_string(position)));
    }
    if (entry.end > data_bytes) {
      return Status::corrupt(entry.name + ": ends at byte " + std::to_string(entry.end) + " of " +
                             std::to_string(data_bytes) + ": the file is truncated");
    }
    if ((header.data_offset + entry.begin) % dtype_bytes(entry.dtype) != 0) {
      return Status::corrupt(entry.name + ": lies at file offset " + std::to_string(header.data_offset + entry.begin) +
                             ", which is not aligned to " + std::string(dtype_name(entry.dtype)));
    }
    position = entry.end;
  }
  if (position != data_bytes) {
    return Status::corrupt(std::to_string(data_bytes - position) + " bytes follow the last tensor");
  }
  return {};
}

}  // namespace

Shape::Shape(std::initializer_list<int64_t> sizes) {
  PS_CHECK(sizes.size() <= static_cast<size_t>(kMaxRank));
  for (const int64_t size : sizes) dims[static_cast<size_t>(rank++)] = size;
}

int64_t Shape::elements() const noexcept {
  int64_t product = 1;
  for (int axis = 0; axis < rank; ++axis) product *= dims[static_cast<size_t>(axis)];
  return product;
}

std::string Shape::to_string() const {
  std::string text = "[";
  for (int axis = 0; axis < rank; ++axis) {
    if (axis > 0) text += ", ";
    text += std::to_string(dims[static_cast<size_t>(axis)]);
  }
  return text + "]";
}

Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> prefix, int64_t file_bytes) {
  if (file_bytes < kLengthBytes || static_cast<int64_t>(prefix.size()) < kLengthBytes) {
    return Status::corrupt("has " + std::to_string(file_bytes) + " bytes: no safetensors header");
  }
  uint64_t length = 0;
  for (int i = 0; i < kLengthBytes; ++i) length |= std::to_integer<uint64_t>(prefix[static_cast<size_t>(i)]) << (8 * i);
  const auto room = static_cast<uint64_t>(std::min(file_bytes, static_cast<int64_t>(prefix.size())) - kLengthBytes);
  if (length > static_cast<uint64_t>(kMaxSafetensorsHeaderBytes) || length > room) {
    return Status::corrupt("announces a header of " + std::to_string(length) + " bytes in a file of " +
                           std::to_string(file_bytes));
  }
  const std::string_view text(reinterpret_cast<const char*>(prefix.data()) + kLengthBytes, length);
  if (text.empty() || text.front() != '{') return Status::corrupt("the header is no JSON object");
  Result<JsonValue> parsed = JsonValue::parse(text, kHeaderLimits);
  if (!parsed.ok()) return Status::corrupt("header: " + std::string(parsed.status().message()));
  const JsonValue& root = parsed.value();
  if (const std::string* twice = root.duplicate_key()) return Status::corrupt(*twice + " occurs twice in the header");

  SafetensorsHeader header;
  header.data_offset = kLengthBytes + static_cast<int64_t>(length);
  for (const auto& [name, value] : root.members()) {
    if (name == "__metadata__") {
      PS_RETURN_IF_ERROR(check_metadata(value));
      continue;
    }
    SafetensorsEntry entry;
    entry.name = name;
    PS_RETURN_IF_ERROR(read_entry(value, entry).with(name));
    header.entries.push_back(std::move(entry));
  }
  // Empty tensors share their position with the next one; the end orders them.
  std::sort(header.entries.begin(), header.entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end != b.end ? a.end < b.end : a.name < b.name;
  });
  PS_RETURN_IF_ERROR(check_layout(header, file_bytes - header.data_offset));
  return header;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  PS_TRY(MappedFile file, MappedFile::open(path));
  PS_TRY(SafetensorsHeader header, parse_safetensors(file.bytes(), file.size_bytes()).with(path.string()));
  return SafetensorsFile(std::move(file), std::move(header));
}

TensorView SafetensorsFile::view(const SafetensorsEntry& entry) const noexcept {
  return {entry.dtype, entry.shape, file_.bytes().data() + header_.data_offset + entry.begin, entry.end - entry.begin};
}

}  // namespace ps::checkpoint
