// AMX-BF16: the kernels of AVX-512, and tiles where inputs are BF16. This file packs rows of x for them and holds the
// table.
#include <immintrin.h>

#include "cpu/amx_kernels.h"
#include "cpu/avx512_kernels.h"
#include "cpu/kernels.h"

namespace ps::cpu {
namespace {

#include "cpu/avx512_vectors-inl.h"
#include "cpu/amx_layout-inl.h"

constexpr int64_t kIntegerRows = 2;  // of FP4 weights that vectors multiply faster

int64_t matrix_packed_bytes(int64_t count, int64_t columns) {
  return (columns + kBlock - 1) / kBlock * kBlock * laid_rows(count) * 2;
}

// Rows as 16 pairs each, `size` of them, into one block of a group.
inline void write_block(__m512i (&rows)[16], int64_t size, uint32_t* out) {
  transpose(rows);
  const auto mask = static_cast<Mask>((1u << size) - 1u);
#pragma GCC unroll 16
  for (int p = 0; p < 16; ++p) _mm512_mask_storeu_epi32(out + p * size, mask, rows[p]);
}

void matrix_pack(const PackArgs& args) {
  const int64_t blocks = (args.columns + kBlock - 1) / kBlock;
  for (int64_t first = args.begin; first < args.end; first += kGroup) {
    const int64_t left = args.count - first;
    const int64_t size = left < kGroup ? left : kGroup;
    const uint16_t* from[kGroup];
    for (int64_t i = 0; i < size; ++i) {
      from[i] = static_cast<const uint16_t*>(args.x) +
                (args.rows != nullptr ? args.rows[first + i] : first + i) * args.stride;
    }
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t rest = args.columns - block * kBlock;
      const uint32_t mask = rest >= kBlock ? ~0u : (1u << rest) - 1u;
      uint32_t* out = group_block(args.packed, args.columns, args.count, first / kGroup, block);
      if (args.count == 1) {
        _mm512_storeu_si512(out, _mm512_maskz_loadu_epi16(mask, from[0] + block * kBlock));
        continue;
      }
      __m512i rows[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        rows[i] = i < size ? _mm512_maskz_loadu_epi16(mask, from[i] + block * kBlock) : _mm512_setzero_si512();
      }
      write_block(rows, group_rows(args.count), out);
    }
  }
}

// REQUIRES: the values are exact in BF16.
void matrix_pack_tile(const float* tile, int64_t count, int64_t columns, int64_t block, void* packed) {
  for (int64_t first = 0; first < count; first += kGroup) {
    const int64_t size = count - first < kGroup ? count - first : kGroup;
    __m512i rows[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      rows[i] = _mm512_setzero_si512();
      if (i < size) {
        const float* from = tile + (first + i) * kPanel;
        const __m256i low = _mm512_cvtepi32_epi16(_mm512_srli_epi32(as_int(load(from)), 16));
        const __m256i high = _mm512_cvtepi32_epi16(_mm512_srli_epi32(as_int(load(from + 16)), 16));
        rows[i] = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
      }
    }
    write_block(rows, group_rows(count), group_block(packed, columns, count, first / kGroup, block));
  }
}

}  // namespace

const Kernels& amx_kernels() {
  static const Kernels kKernels = [] {
    Kernels kernels = avx512_vnni_kernels();
    kernels.integer_rows = kIntegerRows;
    kernels.matrix = {matrix_packed_bytes, matrix_pack, matrix_pack_tile, amx_multiply, amx_multiply_store};
    kernels.attend_bytes = amx_attend_bytes;
    kernels.attend = amx_attend;
    kernels.score_keys = amx_score_keys;
    return kernels;
  }();
  return kKernels;
}

}  // namespace ps::cpu
