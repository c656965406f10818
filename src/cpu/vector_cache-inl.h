// The kernels of the caches, the indexer, the compressor and the router over an instruction set's vector type.
// Included by vector_rows-inl.h.

// ---- Codes ----------------------------------------------------------------------------------------------------------

// Signed E4M3 codes of 32 values on the grid.
inline void store_e4m3(const Group& group, std::byte* out) {
  alignas(64) uint32_t codes[kBlock];
#pragma GCC unroll 4
  for (int i = 0; i < kBlock / kLanes; ++i) {
    const IntVec sign = and_int(shift_right<24>(as_int(group[i])), broadcast_int(0x80));
    store(reinterpret_cast<float*>(codes) + i * kLanes, as_float(add_int(grid_codes<E4M3>(group[i]), sign)));
  }
  for (int i = 0; i < kBlock; ++i) out[i] = static_cast<std::byte>(codes[i]);
}

// Packed E2M1 codes of values on the grid, low nibble first.
template <int kCount>
inline void store_e2m1(const Vec (&values)[kCount], std::byte* out) {
  alignas(64) uint32_t codes[kCount * kLanes];
#pragma GCC unroll 4
  for (int i = 0; i < kCount; ++i) {
    const IntVec sign = and_int(shift_right<28>(as_int(values[i])), broadcast_int(8));
    store(reinterpret_cast<float*>(codes) + i * kLanes, as_float(add_int(grid_codes<E2M1>(values[i]), sign)));
  }
  for (int i = 0; i < kCount * kLanes / 2; ++i) out[i] = static_cast<std::byte>(codes[2 * i] | codes[2 * i + 1] << 4);
}

// ---- Rows of the window ring and the main plane ---------------------------------------------------------------------

void encode_row(const EncodeRowArgs& args) {
  auto* out = args.row;
  if (args.format == ops::RowFormat::kBF16) {
    const MutableRow row{out, false};
    for (int64_t at = 0; at < args.size; at += kLanes) store_row(row, at, args.size, load_row(args.x, at, args.size));
    return;
  }
  for (int64_t at = 0; at < args.size; at += kBlock) {
    Group group;
    load_values(args.x, at, args.size, group);
    const uint32_t scale = scale_to_grid<E4M3>(group);
    if (scale == 255) __builtin_memset(out + at, 0x7F, kBlock);
    else store_e4m3(group, out + at);
    out[args.size + at / kBlock] = static_cast<std::byte>(scale);
  }
}

// Groups of 16 with an E4M3 scale, which is no power of two.
void compress_row(const EncodeRowArgs& args) {
  for (int64_t at = 0; at < args.size; at += 16) {
    Vec group[kSumLanes];
    load_values(args.x, at, args.size, group);
    const float largest = largest_magnitude(group);
    const uint8_t code = float_to_e4m3((largest < 6.0f * 0x1p-9f ? 6.0f * 0x1p-9f : largest) / 6.0f);
    const Vec scale = broadcast(e4m3_to_float(code));
#pragma GCC unroll 2
    for (Vec& values : group) {
      const Vec scaled = div(values, scale);
      // The code of a NaN is a zero with its sign; the scale carries the NaN.
      values = copy_sign(select(is_nan(scaled), zero(), round_to_grid<E2M1>(scaled)), scaled);
    }
    if (args.format == ops::RowFormat::kCompressed) {
      store_e2m1(group, args.row + at / 2);
      args.row[args.size / 2 + at / 16] = static_cast<std::byte>(code);
      continue;
    }
#pragma GCC unroll 2
    for (Vec& values : group) values = mul(values, scale);
    store_values({args.row, false}, at, args.size, group);
  }
}

// ---- Index keys and queries -----------------------------------------------------------------------------------------

// The code of the scale of a whole FP8 key or query.
inline uint32_t fp8_key_scale(RowView x, int64_t size) {
  IntVec bits = broadcast_int(0);
  for (int64_t at = 0; at < size; at += kLanes) bits = max_int(bits, as_int(absolute(load_row(x, at, size))));
  const Vec all[1] = {as_float(bits)};
  const float largest = largest_magnitude(all);
  return power_code((largest < 1e-4f ? 1e-4f : largest) / 448.0f);
}

void quantize_fp8_key(const FakeQuantizeArgs& args) {
  const uint32_t code = fp8_key_scale(view(args.x), args.size);
  const Vec scale = broadcast(power_value(code));
  const Vec inverse = broadcast(power_value(254 - code));
  for (int64_t at = 0; at < args.size; at += kLanes) {
    const Vec scaled = mul(load_row(view(args.x), at, args.size), inverse);
    store_row(args.x, at, args.size,
              code == 255 ? broadcast(__builtin_nanf("")) : mul(round_to_grid<E4M3>(scaled), scale));
  }
}

inline void encode_fp8_key(const EncodeKeyArgs& args, std::byte* block, int64_t row) {
  const int64_t dim = args.plane.dim;
  const uint32_t code = fp8_key_scale(args.x, dim);
  const Vec inverse = broadcast(power_value(254 - code));
  alignas(64) std::byte codes[kBlock];
  __builtin_memset(codes, 0x7F, kBlock);
  for (int64_t at = 0; at < dim; at += kBlock) {
    if (code != 255) {
      Group group;
      load_values(args.x, at, dim, group);
#pragma GCC unroll 4
      for (Vec& values : group) values = round_to_grid<E4M3>(mul(values, inverse));
      store_e4m3(group, codes);
    }
    __builtin_memcpy(block + at * 8 + row * 16, codes, 16);
    __builtin_memcpy(block + at * 8 + 128 + row * 16, codes + 16, 16);
  }
  const uint32_t scale = code == 255 ? 0x7FC00000u : code << 23;
  __builtin_memcpy(block + 8 * dim + row * 4, &scale, 4);
}

void encode_index_key(const EncodeKeyArgs& args) {
  const int64_t dim = args.plane.dim;
  const int64_t block = args.flat_row / 8;
  const int64_t row = args.flat_row % 8;
  if (args.plane.format == ops::IndexFormat::kFp8) {
    encode_fp8_key(args, args.plane.values + block * 8 * (dim + 4), row);
    return;
  }
  std::byte* values = args.plane.values + block * 4 * dim + row % 4 * dim + row / 4 * 16;
  std::byte* scales = args.plane.scales + block * (dim / 4) + row;
  for (int64_t at = 0; at < dim; at += kBlock) {
    Group group;
    load_values(args.x, at, dim, group);
    const uint32_t scale = scale_to_grid<E2M1>(group);
    if (scale == 255) __builtin_memset(values + at, 0, 16);
    else store_e2m1(group, values + at);
    scales[at / kBlock * 8] = static_cast<std::byte>(scale);
  }
}

void quantize_mxfp4_row(const FakeQuantizeArgs& args) {
  for (int64_t at = 0; at < args.size; at += kBlock) {
    Group group;
    load_values(view(args.x), at, args.size, group);
    fake_quantize<E2M1>(group);
    store_values(args.x, at, args.size, group);
  }
}

// The bytes of 32 dims of a key: FP4 16 packed bytes, FP8 two chunks of 16 codes (the layouts of cache_views.h).
void decode_index_keys(const DecodeKeysArgs& args) {
  const int64_t dim = args.plane.dim;
  const bool is_fp4 = args.plane.format == ops::IndexFormat::kFp4;
  for (int64_t b = 0; b < args.count; ++b) {
    const std::byte* values = args.plane.values + args.blocks[b] * (is_fp4 ? 4 * dim : 8 * (dim + 4));
    const std::byte* scales = is_fp4 ? args.plane.scales + args.blocks[b] * (dim / 4) : values + 8 * dim;
    for (int64_t row = 0; row < 8; ++row) {
      uint16_t* key = args.keys + (b * 8 + row) * dim;
      for (int64_t group = 0; group < dim / kBlock; ++group) {
        if (is_fp4) {
          const std::byte* codes = values + row % 4 * dim + group * 32 + row / 4 * 16;
          decode_fp4_words(codes, static_cast<uint8_t>(scales[group * 8 + row]), key + group * kBlock);
        } else {
          uint32_t scale;
          __builtin_memcpy(&scale, scales + row * 4, 4);
          const std::byte* codes = values + group * 256 + row * 16;
          decode_fp8_words(codes, codes + 128, static_cast<uint8_t>(scale >> 23), key + group * kBlock);
        }
      }
    }
  }
}

void weigh_scores(const WeighScoresArgs& args) {
  for (int64_t n = 0; n < kPanel; n += kLanes) {
    Vec sum = load(args.scores + n);
    for (int64_t h = 0; h < args.heads; ++h) {
      Vec dot = load(args.tile + h * kPanel + n);
      if (args.round) dot = round_bf16(dot);
      Vec term = mul(maximum(zero(), dot), broadcast(args.weights[h]));  // NaN stays: the second operand
      if (args.round) term = round_bf16(term);
      sum = add(sum, term);
    }
    store(args.scores + n, sum);
  }
}

// ---- Compressor and router ------------------------------------------------------------------------------------------

void pool_rows(const PoolArgs& args) {
  const auto row = [](const float* data) { return RowView{data, true}; };
  for (int64_t at = 0; at < args.size; at += kLanes) {
    const Vec s0 = load_row(row(args.score[0]), at, args.size);
    const Vec s1 = load_row(row(args.score[1]), at, args.size);
    const Vec most = maximum(s1, s0);  // s0 where either is NaN
    const Vec e0 = exp_f32(subtract(s0, most));
    const Vec e1 = exp_f32(subtract(s1, most));
    const Vec z = add(e0, e1);
    const Vec first = mul(div(e0, z), load_row(row(args.kv[0]), at, args.size));
    store_row(args.y, at, args.size, fma(div(e1, z), load_row(row(args.kv[1]), at, args.size), first));
  }
}

// log(1 + e) for e >= 0 within 2^-18 of itself: 2 atanh of the mantissa, plus the exponent.
inline Vec approximate_log1p(Vec e) {
  const Vec u = add(broadcast(1.0f), e);
  const IntVec bits = as_int(u);
  const Vec mantissa = as_float(add_int(and_int(bits, broadcast_int(0x7FFFFF)), broadcast_int(0x3F800000)));
  // The exponent as a float: its integer in the last bits of 2^23.
  const Vec exponent =
      subtract(as_float(add_int(shift_right<23>(bits), broadcast_int(0x4B000000))), broadcast(0x1p23f + 127.0f));
  const Mask is_small = less(e, broadcast(1.0f));
  const Vec above = select(is_small, e, subtract(mantissa, broadcast(1.0f)));
  const Vec t = div(above, add(broadcast(2.0f), above));
  const Vec square = mul(t, t);
  Vec p = broadcast(2.0f / 9.0f);
  p = fma(p, square, broadcast(2.0f / 7.0f));
  p = fma(p, square, broadcast(2.0f / 5.0f));
  p = fma(p, square, broadcast(2.0f / 3.0f));
  p = fma(p, square, broadcast(2.0f));
  return fma(select(is_small, zero(), exponent), broadcast(0.693147181f), mul(p, t));
}

void bound_experts(const BoundExpertsArgs& args) {
  constexpr float kRelative = 0x1p-14f;  // far above the error of the logarithm
  constexpr float kAbsolute = 0x1p-60f;  // above the root of whatever is flushed to zero
  const Vec lowest = broadcast(-__builtin_inff());
  for (int64_t at = 0; at < args.size; at += kLanes) {
    const Vec z = load_row(args.logits, at, args.size);
    const Vec bias = load_row(args.bias, at, args.size);
    const Vec logarithm = select(is_nan(z), z, approximate_log1p(exp_f32(z)));
    const Vec softplus = select(less(broadcast(20.0f), z), z, logarithm);
    const Vec score = square_root(softplus);
    const Vec low = fma(score, broadcast(1.0f - kRelative), broadcast(-kAbsolute));
    const Vec high = fma(score, broadcast(1.0f + kRelative), broadcast(kAbsolute));
    const auto rank = [&](Vec value) { return select(is_nan(value), lowest, value); };
    store_row({args.lower, true}, at, args.size, rank(add(low, bias)));
    store_row({args.upper, true}, at, args.size, rank(add(high, bias)));
  }
}
