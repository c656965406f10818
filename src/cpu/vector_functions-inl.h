// Rounding and functions over an instruction set's vector type, bit for bit those of number_formats.h, quantize.h and
// numerics.h. Included inside the anonymous namespace of an instruction-set file, after the primitives of Vec.

// round_bf16
inline Vec round_bf16(Vec v) { return as_float(shift_left<16>(bf16_bits(v))); }

inline Vec exp_f32(Vec v) {
  const Vec n = round_nearest(mul(v, broadcast(1.44269504f)));
  Vec r = fma(n, broadcast(-0.693359375f), v);
  r = fma(n, broadcast(2.12194440e-4f), r);
  Vec p = broadcast(1.9875691500e-4f);
  p = fma(p, r, broadcast(1.3981999507e-3f));
  p = fma(p, r, broadcast(8.3334519073e-3f));
  p = fma(p, r, broadcast(4.1665795894e-2f));
  p = fma(p, r, broadcast(1.6666665459e-1f));
  p = fma(p, r, broadcast(5.0000001201e-1f));
  const Vec y = add(fma(p, mul(r, r), r), broadcast(1.0f));
  const IntVec exponent = to_int(n);
  const IntVec half = shift_right_signed<1>(exponent);
  Vec e = mul(mul(y, power_of_two(half)), power_of_two(subtract_int(exponent, half)));
  e = select(less(v, broadcast(-87.33654f)), zero(), e);
  e = select(less(broadcast(88.72283f), v), broadcast(__builtin_inff()), e);
  return select(is_nan(v), v, e);
}

inline Vec sigmoid(Vec x) { return div(broadcast(1.0f), add(broadcast(1.0f), exp_f32(negate(x)))); }
inline Vec silu(Vec x) { return mul(x, sigmoid(x)); }

// fake_quantize_mxfp8 of one group of 32, as it lies in kBlock / kLanes vectors.
inline void quantize_group(Vec (&group)[kBlock / kLanes]) {
  IntVec largest = as_int(absolute(group[0]));
#pragma GCC unroll 4
  for (int i = 1; i < kBlock / kLanes; ++i) largest = max_int(largest, as_int(absolute(group[i])));
  const uint32_t amax_bits = reduce_max(largest);
  float amax;
  __builtin_memcpy(&amax, &amax_bits, 4);
  const float wanted = (amax < 1e-4f ? 1e-4f : amax) * (1.0f / 448.0f);
  uint32_t bits;
  __builtin_memcpy(&bits, &wanted, 4);
  bits &= 0x7FFFFFFFu;
  const uint32_t code = (bits >> 23) + ((bits & 0x7FFFFFu) != 0 ? 1u : 0u);
  if (code >= 255) {
#pragma GCC unroll 4
    for (int i = 0; i < kBlock / kLanes; ++i) group[i] = broadcast(__builtin_nanf(""));
    return;
  }
  const uint32_t inverse_bits = (254u - code) << 23;
  const uint32_t scale_bits = code << 23;
  float inverse;
  float scale;
  __builtin_memcpy(&inverse, &inverse_bits, 4);
  __builtin_memcpy(&scale, &scale_bits, 4);
#pragma GCC unroll 4
  for (int i = 0; i < kBlock / kLanes; ++i) {
    const Vec scaled = mul(group[i], broadcast(inverse));
    const Vec magnitude = absolute(scaled);
    // Three bits of mantissa; below 2^-6 multiples of 2^-9; never above 448.
    const IntVec raw = as_int(magnitude);
    const IntVec tie = and_int(shift_right<20>(raw), broadcast_int(1));
    const IntVec normal = and_int(add_int(add_int(raw, broadcast_int(0x7FFFF)), tie), broadcast_int(~0xFFFFF));
    const Vec small = subtract(add(magnitude, broadcast(0x1.8p14f)), broadcast(0x1.8p14f));
    Vec rounded = select(less(magnitude, broadcast(0x1p-6f)), small, as_float(normal));
    rounded = select(less(magnitude, broadcast(448.0f)), rounded, broadcast(448.0f));
    group[i] = mul(copy_sign(rounded, scaled), broadcast(scale));
  }
}

// fake_quantize_mxfp4 of one group of 32, whose largest magnitude has the bits `amax_bits`.
inline void quantize_fp4_group(Vec (&group)[kBlock / kLanes], uint32_t amax_bits) {
  float amax;
  __builtin_memcpy(&amax, &amax_bits, 4);
  const float wanted = (amax < 6.0f * 0x1p-126f ? 6.0f * 0x1p-126f : amax) * (1.0f / 6.0f);
  uint32_t bits;
  __builtin_memcpy(&bits, &wanted, 4);
  bits &= 0x7FFFFFFFu;
  const uint32_t code = (bits >> 23) + ((bits & 0x7FFFFFu) != 0 ? 1u : 0u);
  if (code >= 255) {
#pragma GCC unroll 4
    for (int i = 0; i < kBlock / kLanes; ++i) group[i] = broadcast(__builtin_nanf(""));
    return;
  }
  const uint32_t inverse_bits = (254u - code) << 23;
  const uint32_t scale_bits = code << 23;
  float inverse;
  float scale;
  __builtin_memcpy(&inverse, &inverse_bits, 4);
  __builtin_memcpy(&scale, &scale_bits, 4);
#pragma GCC unroll 4
  for (int i = 0; i < kBlock / kLanes; ++i) {
    const Vec scaled = mul(group[i], broadcast(inverse));
    const Vec magnitude = absolute(scaled);
    // One bit of mantissa; below 1 multiples of 0.5; never above 6.
    const IntVec raw = as_int(magnitude);
    const IntVec tie = and_int(shift_right<22>(raw), broadcast_int(1));
    const IntVec normal = and_int(add_int(add_int(raw, broadcast_int(0x1FFFFF)), tie), broadcast_int(~0x3FFFFF));
    const Vec small = subtract(add(magnitude, broadcast(0x1.8p22f)), broadcast(0x1.8p22f));
    Vec rounded = select(less(magnitude, broadcast(1.0f)), small, as_float(normal));
    rounded = select(less(magnitude, broadcast(6.0f)), rounded, broadcast(6.0f));
    group[i] = mul(copy_sign(rounded, scaled), broadcast(scale));
  }
}
