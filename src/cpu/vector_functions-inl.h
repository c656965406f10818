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

// ---- The grids of the quantizers ------------------------------------------------------------------------------------

// Magnitudes from kSmallest on keep 23 - kDropped bits of mantissa, smaller ones are multiples of a fixed step.
struct E4M3 {
  static constexpr int kDropped = 20;
  static constexpr float kSmallest = 0x1p-6f;
  static constexpr float kPerStep = 0x1p9f;     // codes below the smallest normal
  static constexpr float kAligner = 0x1.8p14f;  // its last bit is a step
  static constexpr float kLargest = 448.0f;
  static constexpr int kBias = 120 << 3;  // float bits >> kDropped, less the code
  static constexpr float kFloor = 1e-4f;  // of a group's largest magnitude
};
struct E2M1 {
  static constexpr int kDropped = 22;
  static constexpr float kSmallest = 1.0f;
  static constexpr float kPerStep = 2.0f;
  static constexpr float kAligner = 0x1.8p22f;
  static constexpr float kLargest = 6.0f;
  static constexpr int kBias = 126 << 1;
  static constexpr float kFloor = 6.0f * 0x1p-126f;
};

// The nearest value of the grid, ties to the even code, beyond its end the largest. REQUIRES: no NaN.
template <typename Grid>
inline Vec round_to_grid(Vec value) {
  constexpr int kHalf = (1 << (Grid::kDropped - 1)) - 1;
  const Vec magnitude = absolute(value);
  const IntVec bits = as_int(magnitude);
  const IntVec tie = and_int(shift_right<Grid::kDropped>(bits), broadcast_int(1));
  const IntVec up = add_int(add_int(bits, broadcast_int(kHalf)), tie);
  const IntVec normal = and_int(up, broadcast_int(~((1 << Grid::kDropped) - 1)));
  const Vec small = subtract(add(magnitude, broadcast(Grid::kAligner)), broadcast(Grid::kAligner));
  Vec rounded = select(less(magnitude, broadcast(Grid::kSmallest)), small, as_float(normal));
  rounded = select(less(magnitude, broadcast(Grid::kLargest)), rounded, broadcast(Grid::kLargest));
  return copy_sign(rounded, value);
}

// Codes of values on the grid, without their signs.
template <typename Grid>
inline IntVec grid_codes(Vec value) {
  const Vec magnitude = absolute(value);
  const IntVec small = to_int(mul(magnitude, broadcast(Grid::kPerStep)));
  const IntVec normal = subtract_int(shift_right<Grid::kDropped>(as_int(magnitude)), broadcast_int(Grid::kBias));
  return as_int(select(less(magnitude, broadcast(Grid::kSmallest)), as_float(small), as_float(normal)));
}

// The code of the smallest power of two >= value, 255 for infinity and NaN.
inline uint32_t power_code(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, 4);
  bits &= 0x7FFFFFFFu;
  const uint32_t code = (bits >> 23) + ((bits & 0x7FFFFFu) != 0 ? 1u : 0u);
  return code < 255 ? code : 255;
}
// 2^(code - 127). REQUIRES: code is in [1, 254].
inline float power_value(uint32_t code) {
  const uint32_t bits = code << 23;
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}

// The largest magnitude of some vectors, ordered by bits: a NaN lies above infinity.
template <int kCount>
inline float largest_magnitude(const Vec (&values)[kCount]) {
  IntVec largest = as_int(absolute(values[0]));
#pragma GCC unroll 4
  for (int i = 1; i < kCount; ++i) largest = max_int(largest, as_int(absolute(values[i])));
  const uint32_t bits = reduce_max(largest);
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}

using Group = Vec[kBlock / kLanes];  // 32 values

// Divides a group by its scale and rounds it to the grid; the code of the scale. With 255 the group stays as it was.
template <typename Grid>
inline uint32_t scale_to_grid(Group& group) {
  const float largest = largest_magnitude(group);
  const uint32_t code = power_code((largest < Grid::kFloor ? Grid::kFloor : largest) * (1.0f / Grid::kLargest));
  if (code == 255) return code;
  const Vec inverse = broadcast(power_value(254 - code));
#pragma GCC unroll 4
  for (Vec& values : group) values = round_to_grid<Grid>(mul(values, inverse));
  return code;
}

// fake_quantize_mxfp8 or fake_quantize_mxfp4 of one group.
template <typename Grid>
inline void fake_quantize(Group& group) {
  const uint32_t code = scale_to_grid<Grid>(group);
  const Vec scale = broadcast(power_value(code));
#pragma GCC unroll 4
  for (Vec& values : group) values = code == 255 ? broadcast(__builtin_nanf("")) : mul(values, scale);
}
inline void quantize_group(Group& group) { fake_quantize<E4M3>(group); }
