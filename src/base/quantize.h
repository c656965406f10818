// The three activation quantizers of model.md 2.1, one group at a time, and their exact inverses.
//
// Each takes BF16-valued (or, in f32 compute, any) floats, finds the group's scale from amax, and rounds to the grid.
// "Fake quantization" is quantize followed by dequantize: every result is exact in BF16, so a packed cache and a BF16
// cache hold equal values. Subnormal inputs and results count as zero whatever the floating-point environment: the
// results are the same on every thread. A NaN makes its whole group NaN through the scale; it is never turned into a
// number. An infinity does the same, except in Q4k, whose largest scale is 448. Pure functions, any thread.
#pragma once

#include <cstdint>

namespace ps {

inline constexpr int kMxGroup = 32;          // Q8 and Q4e: values per E8M0 scale
inline constexpr int kCompressedGroup = 16;  // Q4k: values per E4M3 scale

// Q8: MXFP8 activations and window rows. x[32] -> codes[32] E4M3; returns the E8M0 scale code. amax floor 1e-4.
uint8_t quantize_mxfp8(const float* x, uint8_t* codes) noexcept;

// Q4e: index queries and keys. x[32] -> 16 bytes of packed E2M1; returns the E8M0 scale code. amax floor 6*2^-126.
uint8_t quantize_mxfp4(const float* x, uint8_t* packed) noexcept;

// Q4k: compressed KV. x[16] -> 8 bytes of packed E2M1; returns the E4M3 scale code (>= 2^-9, not a power of two).
uint8_t quantize_compressed(const float* x, uint8_t* packed) noexcept;

// Exact inverses: values[group] = code * scale.
void dequantize_mxfp8(const uint8_t* codes, uint8_t scale, float* values) noexcept;
void dequantize_mxfp4(const uint8_t* packed, uint8_t scale, float* values) noexcept;
void dequantize_compressed(const uint8_t* packed, uint8_t scale, float* values) noexcept;

// A whole row in place: quantize and dequantize each group. REQUIRES: size is a multiple of the group.
void fake_quantize_mxfp8(float* row, int64_t size) noexcept;
void fake_quantize_mxfp4(float* row, int64_t size) noexcept;
void fake_quantize_compressed(float* row, int64_t size) noexcept;

}  // namespace ps
