// The row kernels of row_kernels.h over an instruction set's vector type; vector_cache-inl.h has those of the caches,
// the indexer and the router. Included after vector_kernels-inl.h inside the anonymous namespace of an instruction-set
// file, which also defines decode_words(codes, scale, out): 32 E4M3 codes as floats; and decode_fp4_words(codes, scale,
// out), decode_fp8_words(16 codes, 16 codes, scale, out): 32 values as BF16.

// Values at .. at + kLanes of a row of `size`, zeros behind its end.
inline Vec load_row(RowView x, int64_t at, int64_t size) {
  const int64_t left = size - at;
  if (left >= kLanes) {
    return x.is_f32 ? load_any(static_cast<const float*>(x.data) + at)
                    : load_bf16(static_cast<const uint16_t*>(x.data) + at);
  }
  alignas(64) float values[kLanes] = {};
  for (int64_t i = 0; i < left; ++i) {
    uint32_t bits;
    if (x.is_f32) __builtin_memcpy(&bits, static_cast<const float*>(x.data) + at + i, 4);
    else bits = static_cast<uint32_t>(static_cast<const uint16_t*>(x.data)[at + i]) << 16;
    __builtin_memcpy(values + i, &bits, 4);
  }
  return load(values);
}
inline void store_row(MutableRow y, int64_t at, int64_t size, Vec value) {
  const int64_t left = size - at;
  if (left >= kLanes) {
    if (y.is_f32) store_any(static_cast<float*>(y.data) + at, value);
    else store_bf16(static_cast<uint16_t*>(y.data) + at, value);
    return;
  }
  alignas(64) float wide[kLanes];
  alignas(64) uint16_t narrow[kLanes];
  store(wide, value);
  store_bf16(narrow, value);
  for (int64_t i = 0; i < left; ++i) {
    if (y.is_f32) static_cast<float*>(y.data)[at + i] = wide[i];
    else static_cast<uint16_t*>(y.data)[at + i] = narrow[i];
  }
}
inline RowView view(MutableRow row) { return {row.data, row.is_f32}; }
inline RowView from(RowView row, int64_t values) {
  return {static_cast<const std::byte*>(row.data) + values * (row.is_f32 ? 4 : 2), row.is_f32};
}
inline MutableRow from(MutableRow row, int64_t values) {
  return {static_cast<std::byte*>(row.data) + values * (row.is_f32 ? 4 : 2), row.is_f32};
}

// The values from `at` on, as many as the vectors hold.
template <int kCount>
inline void load_values(RowView x, int64_t at, int64_t size, Vec (&values)[kCount]) {
#pragma GCC unroll 4
  for (int i = 0; i < kCount; ++i) values[i] = load_row(x, at + i * kLanes, size);
}
template <int kCount>
inline void store_values(MutableRow y, int64_t at, int64_t size, const Vec (&values)[kCount]) {
#pragma GCC unroll 4
  for (int i = 0; i < kCount; ++i) store_row(y, at + i * kLanes, size, values[i]);
}

constexpr int kSumLanes = 16 / kLanes;  // vectors of a lane-16 sum

// Calls add(at, lanes-vector number) over a row. Values behind the end are zeros, which leave a lane as it is.
template <typename Add>
inline void over_lanes(int64_t size, const Add& add_at) {
  for (int64_t at = 0; at < size; at += 16) {
#pragma GCC unroll 2
    for (int i = 0; i < kSumLanes; ++i) {
      if (at + i * kLanes < size) add_at(at + i * kLanes, i);
    }
  }
}
inline float inverse_root(float squares, int64_t size, float eps) {
  const __m128 mean = _mm_set_ss(squares / static_cast<float>(size) + eps);
  return 1.0f / _mm_cvtss_f32(_mm_sqrt_ss(mean));
}

float inverse_rms(RowView x, int64_t size, float eps) {
  Vec lanes[kSumLanes];
  for (Vec& lane : lanes) lane = zero();
  over_lanes(size, [&](int64_t at, int i) {
    const Vec value = load_row(x, at, size);
    lanes[i] = fma(value, value, lanes[i]);
  });
  return inverse_root(fold_lanes(lanes), size, eps);
}

void norm_row(const NormArgs& args) {
  const Vec r = broadcast(inverse_rms(args.x, args.size, args.eps));
  for (int64_t at = 0; at < args.size; at += kLanes) {
    const Vec scaled = mul(load_row(args.x, at, args.size), r);
    store_row(args.y, at, args.size, mul(load_row(args.w, at, args.size), scaled));
  }
}

void scale_row(const ScaleRowArgs& args) {
  for (int64_t at = 0; at < args.size; at += kLanes) {
    store_row(args.y, at, args.size, mul(load_row(args.x, at, args.size), broadcast(args.factor)));
  }
}

void rotate_row(const RotateArgs& args) {
  const RowView first{args.first, true};
  const RowView second{args.second, true};
  for (int64_t head = 0; head < args.heads; ++head) {
    const MutableRow x = from(args.x, head * args.stride);
    for (int64_t at = 0; at < args.channels; at += kLanes) {
      const Vec pair = load_row(view(x), at, args.channels);
      const Vec turned = mul(odd_lanes(pair), load_row(second, at, args.channels));
      store_row(x, at, args.channels, fma(even_lanes(pair), load_row(first, at, args.channels), turned));
    }
  }
}

void collapse_row(const CollapseArgs& args) {
  for (int64_t at = 0; at < args.size; at += kLanes) {
    Vec value = mul(broadcast(args.pre[0]), load_row(args.h, at, args.size));
#pragma GCC unroll 3
    for (int c = 1; c < 4; ++c) {
      value = fma(broadcast(args.pre[c]), load_row(from(args.h, c * args.size), at, args.size), value);
    }
    store_row(args.x, at, args.size, value);
  }
}

void expand_row(const ExpandArgs& args) {
  for (int64_t at = 0; at < args.size; at += kLanes) {
    Vec old[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) old[i] = load_row(view(from(args.h, i * args.size)), at, args.size);
    const Vec y = load_row(args.y, at, args.size);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      Vec value = mul(broadcast(args.post[j]), y);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) value = fma(broadcast(args.combine[4 * i + j]), old[i], value);
      store_row(from(args.h, j * args.size), at, args.size, value);
    }
  }
}

void mix_rows(const MixArgs& args) {
  alignas(64) float w[kBlock * kPanel];
  alignas(64) float x[kMixRows * kBlock];
  const int64_t tile = args.count * kPanel;
  if (!args.apart) {
    for (int64_t i = 0; i < tile; i += kLanes) store(args.sums + i, zero());
  }
  for (int64_t block = args.begin; block < args.end; ++block) {
    const int64_t left = args.fn.columns - block * kBlock;
    decode_block(args.fn, 0, block, w);
    for (int64_t t = 0; t < args.count; ++t) {
      const RowView row = from(args.h, t * args.stride + block * kBlock);
      if (row.is_f32) copy_f32(static_cast<const float*>(row.data), left < kBlock ? left : kBlock, x + t * kBlock);
      else widen_bf16(static_cast<const uint16_t*>(row.data), left < kBlock ? left : kBlock, x + t * kBlock);
    }
    float* sums = args.apart ? args.sums + block * tile : args.sums;
    if (args.apart) {
      for (int64_t i = 0; i < tile; i += kLanes) store(sums + i, zero());
    }
    multiply_block(w, x, args.count, sums);
  }
}

GateSums gate_sums(const GateArgs& args) {
  Vec h_lanes[kSumLanes];
  Vec key_lanes[kSumLanes];
  Vec dot_lanes[kSumLanes];
  for (int i = 0; i < kSumLanes; ++i) h_lanes[i] = key_lanes[i] = dot_lanes[i] = zero();
  over_lanes(args.size, [&](int64_t at, int i) {
    const Vec h = load_row(args.h, at, args.size);
    const Vec key = load_row(args.key, at, args.size);
    const Vec qk = mul(load_row(args.q, at, args.size), load_row(args.k, at, args.size));
    h_lanes[i] = fma(h, h, h_lanes[i]);
    key_lanes[i] = fma(key, key, key_lanes[i]);
    dot_lanes[i] = fma(mul(h, qk), key, dot_lanes[i]);
  });
  return {fold_lanes(h_lanes), fold_lanes(key_lanes), fold_lanes(dot_lanes)};
}

void add_scaled_row(const AddScaledArgs& args) {
  for (int64_t at = 0; at < args.size; at += kLanes) {
    const Vec h = load_row(view(args.h), at, args.size);
    store_row(args.h, at, args.size, fma(broadcast(args.gamma), load_row(args.value, at, args.size), h));
  }
}

void decode_fp8_row(const DecodeRowArgs& args) {
  alignas(64) float values[kBlock];
  for (int64_t at = 0; at < args.size; at += kBlock) {
    decode_words(args.codes + at, args.scales[at / kBlock], values);
#pragma GCC unroll 4
    for (int64_t i = 0; i < kBlock; i += kLanes) store_row(args.y, at + i, args.size, load(values + i));
  }
}

#include "cpu/vector_cache-inl.h"

constexpr RowKernels kRowKernels{.norm = norm_row,
                                 .inverse_rms = inverse_rms,
                                 .scale = scale_row,
                                 .rotate = rotate_row,
                                 .collapse = collapse_row,
                                 .expand = expand_row,
                                 .mix = mix_rows,
                                 .gate_sums = gate_sums,
                                 .add_scaled = add_scaled_row,
                                 .decode_row = decode_fp8_row,
                                 .quantize_mxfp4 = quantize_mxfp4_row,
                                 .decode_keys = decode_index_keys,
                                 .weigh_scores = weigh_scores,
                                 .encode_row = encode_row,
                                 .compress_row = compress_row,
                                 .encode_key = encode_index_key,
                                 .quantize_fp8_key = quantize_fp8_key,
                                 .pool = pool_rows,
                                 .bound_experts = bound_experts};

// Everything that vectors alone can do, in any instruction set.
constexpr Kernels kVectorKernels{.exact = {exact_packed_bytes, exact_pack, exact_pack_tile, exact_multiply},
                                 .activate = activate,
                                 .store = store_tile,
                                 .add = add_tile,
                                 .quantize = quantize,
                                 .attend_bytes = exact_attend_bytes,
                                 .attend = exact_attend,
                                 .rows = kRowKernels};
