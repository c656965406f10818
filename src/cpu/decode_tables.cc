#include "cpu/decode_tables.h"

#include <memory>

#include "base/number_formats.h"

namespace ps::cpu {
namespace {

std::unique_ptr<const DecodeTables> build() {
  auto tables = std::make_unique<DecodeTables>();
  for (int scale = 0; scale < 256; ++scale) {
    const auto scale_code = static_cast<uint8_t>(scale);
    for (int code = 0; code < 128; ++code) {
      const uint16_t bits = to_bf16(scale_by_e8m0(e4m3_to_float(static_cast<uint8_t>(code)), scale_code)).bits;
      tables->fp8[scale][code] = bits;
      tables->fp8_bytes[scale][0][code] = static_cast<uint8_t>(bits >> 8);
      tables->fp8_bytes[scale][1][code] = static_cast<uint8_t>(bits & 0xFF);
    }
    for (int code = 0; code < 16; ++code) {
      const float value = e2m1_to_float(static_cast<uint8_t>(code));
      tables->fp4[scale][code] = to_bf16(scale_by_e8m0(value, scale_code)).bits;
      tables->compressed[scale][code] = to_bf16(value * e4m3_to_float(scale_code)).bits;
    }
  }
  return tables;
}

}  // namespace

const DecodeTables& decode_tables() {
  static const std::unique_ptr<const DecodeTables> kTables = build();
  return *kTables;
}

}  // namespace ps::cpu
