// A safetensors file from outside: any bytes are either refused or give entries that lie in the file, fit their shapes
// and tile the data.
#include <cstdint>
#include <cstdlib>
#include <set>
#include <span>
#include <string_view>

#include "base/number_formats.h"
#include "checkpoint/safetensors.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data), size);
  const auto file_bytes = static_cast<int64_t>(size);
  const auto header = ps::checkpoint::parse_safetensors(file, file_bytes);
  if (!header.ok()) {
    require(header.status().code() == ps::Code::kCorrupt && !header.status().message().empty());
    return 0;
  }
  int64_t position = 0;
  std::set<std::string_view> names;
  for (const auto& entry : header.value().entries) {
    require(names.insert(entry.name).second);
    require(entry.begin == position && entry.end >= entry.begin);
    require(entry.end - entry.begin == entry.shape.elements() * ps::dtype_bytes(entry.dtype));
    require((header.value().data_offset + entry.begin) % ps::dtype_bytes(entry.dtype) == 0);
    position = entry.end;
  }
  require(header.value().data_offset + position == file_bytes);
  return 0;
}
