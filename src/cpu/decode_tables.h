// Every FP8 and FP4 code times every scale, as BF16: what decode_weights and decode_row of the reference give, rounding
// and flushing included, so that the kernels only look up. Built once, before the first table is handed out; read-only
// after that.
#pragma once

#include <cstdint>

namespace ps::cpu {

struct DecodeTables {
  // [scale][code without sign]
  alignas(64) uint16_t fp8[256][128];
  // The same, the high bytes of all codes before the low bytes.
  alignas(64) uint8_t fp8_bytes[256][2][128];
  // [scale][code]
  alignas(64) uint16_t fp4[256][16];
  // [E4M3 scale][code]: compressed rows of the cache.
  alignas(64) uint16_t compressed[256][16];
};

[[nodiscard]] const DecodeTables& decode_tables();

}  // namespace ps::cpu
