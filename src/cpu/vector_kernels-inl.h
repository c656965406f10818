// The kernels that every instruction set shares, written once over its vector type. Included inside the anonymous
// namespace of an instruction-set file, which defines before it:
//   Vec, Mask, kLanes, kTileTokens and the primitives of Vec used below; vector_functions-inl.h;
//   decode_block(w, first, block, out): block `block` of K of panel `first` as floats out[32 k][32 rows].
// No include guard and no includes: each file gets its own copy under its own flags.

// ---- The canonical product ------------------------------------------------------------------------------------------

// acc[i][n] += (e + o) of one block, for kTokens rows of x and 2 vectors of n.
template <int kTokens>
inline void multiply_columns(const float* w, const float* x, float* acc) {
  Vec even[kTokens][2];
  Vec odd[kTokens][2];
#pragma GCC unroll 16
  for (int t = 0; t < kTokens; ++t) even[t][0] = even[t][1] = odd[t][0] = odd[t][1] = zero();
#pragma GCC unroll 2
  for (int p = 0; p < kBlock; p += 2) {
    const Vec e0 = load(w + p * kPanel);
    const Vec e1 = load(w + p * kPanel + kLanes);
#pragma GCC unroll 16
    for (int t = 0; t < kTokens; ++t) {
      const Vec value = broadcast(x[t * kBlock + p]);
      even[t][0] = fma(value, e0, even[t][0]);
      even[t][1] = fma(value, e1, even[t][1]);
    }
    const Vec o0 = load(w + (p + 1) * kPanel);
    const Vec o1 = load(w + (p + 1) * kPanel + kLanes);
#pragma GCC unroll 16
    for (int t = 0; t < kTokens; ++t) {
      const Vec value = broadcast(x[t * kBlock + p + 1]);
      odd[t][0] = fma(value, o0, odd[t][0]);
      odd[t][1] = fma(value, o1, odd[t][1]);
    }
  }
#pragma GCC unroll 16
  for (int t = 0; t < kTokens; ++t) {
    float* out = acc + t * kPanel;
    store(out, add(load(out), add(even[t][0], odd[t][0])));
    store(out + kLanes, add(load(out + kLanes), add(even[t][1], odd[t][1])));
  }
}

template <int kTokens>
inline void multiply_tokens(const float* w, const float* x, float* acc) {
#pragma GCC unroll 2
  for (int n = 0; n < kPanel; n += 2 * kLanes) multiply_columns<kTokens>(w + n, x, acc + n);
}

// One block of K: w [32 k][32 n], x [count][32 k], acc [count][32 n].
inline void multiply_block(const float* w, const float* x, int64_t count, float* acc) {
  int64_t t = 0;
  for (; t + kTileTokens <= count; t += kTileTokens) multiply_tokens<kTileTokens>(w, x + t * kBlock, acc + t * kPanel);
  x += t * kBlock;
  acc += t * kPanel;
  switch (count - t) {
    case 1: multiply_tokens<1>(w, x, acc); break;
    case 2: multiply_tokens<2>(w, x, acc); break;
    case 3: multiply_tokens<(kTileTokens > 3 ? 3 : 1)>(w, x, acc); break;
    case 4: multiply_tokens<(kTileTokens > 4 ? 4 : 1)>(w, x, acc); break;
    case 5: multiply_tokens<(kTileTokens > 5 ? 5 : 1)>(w, x, acc); break;
    default: break;
  }
}

// Packed rows: [block of K][count][32] floats.
int64_t exact_packed_bytes(int64_t count, int64_t columns) {
  return (columns + kBlock - 1) / kBlock * kBlock * count * static_cast<int64_t>(sizeof(float));
}

void exact_pack(const PackArgs& args) {
  float* packed = static_cast<float*>(args.packed);
  const int64_t blocks = (args.columns + kBlock - 1) / kBlock;
  for (int64_t i = args.begin; i < args.end; ++i) {
    const int64_t at = (args.rows != nullptr ? args.rows[i] : i) * args.stride;
    for (int64_t block = 0; block < blocks; ++block) {
      float* out = packed + (block * args.count + i) * kBlock;
      const int64_t left = args.columns - block * kBlock;
      const int64_t size = left < kBlock ? left : kBlock;
      if (args.is_f32) {
        copy_f32(static_cast<const float*>(args.x) + at + block * kBlock, size, out);
      } else {
        widen_bf16(static_cast<const uint16_t*>(args.x) + at + block * kBlock, size, out);
      }
    }
  }
}

void exact_pack_tile(const float* tile, int64_t count, int64_t, int64_t block, void* packed) {
  float* out = static_cast<float*>(packed) + block * count * kBlock;
  for (int64_t i = 0; i < count * kBlock; i += kLanes) store(out + i, load(tile + i));
}

inline void multiply_panel(const MultiplyArgs& args, int64_t first, float* tile) {
  alignas(64) float block_values[kBlock * kPanel];
  const float* packed = static_cast<const float*>(args.packed);
  for (int64_t i = 0; i < args.count * kPanel; i += kLanes) store(tile + i, zero());
  const int64_t blocks = (args.w.columns + kBlock - 1) / kBlock;
  for (int64_t block = 0; block < blocks; ++block) {
    decode_block(args.w, first, block, block_values);
    multiply_block(block_values, packed + block * args.count * kBlock, args.count, tile);
  }
}

void exact_multiply(const MultiplyArgs& args) {
  for (int64_t p = 0; p < args.panels; ++p) {
    multiply_panel(args, args.first + p * kPanel, args.tile + p * args.count * kPanel);
  }
}

// ---- Rows ---------------------------------------------------------------------------------------------------------

void quantize(const QuantizeArgs& args) {
  for (int64_t at = 0; at < args.columns; at += kBlock) {
    Vec group[kBlock / kLanes];
#pragma GCC unroll 4
    for (int i = 0; i < kBlock / kLanes; ++i) {
      const int64_t from = at + i * kLanes;
      group[i] = args.x_is_f32 ? load_any(static_cast<const float*>(args.x) + from)
                               : load_bf16(static_cast<const uint16_t*>(args.x) + from);
    }
    quantize_group(group);
#pragma GCC unroll 4
    for (int i = 0; i < kBlock / kLanes; ++i) {
      const int64_t to = at + i * kLanes;
      if (args.y_is_f32) store_any(static_cast<float*>(args.y) + to, group[i]);
      else store_bf16(static_cast<uint16_t*>(args.y) + to, group[i]);
    }
  }
}

void activate(const ActivateArgs& args) {
  const Vec limit = broadcast(args.limit);
  const Vec lowest = broadcast(-args.limit);
  for (int64_t i = 0; i < args.count; ++i) {
    const Vec weight = broadcast(args.weight != nullptr ? args.weight[i] : 1.0f);
    Vec group[kBlock / kLanes];
#pragma GCC unroll 4
    for (int j = 0; j < kBlock / kLanes; ++j) {
      Vec a = load(args.gate + i * kPanel + j * kLanes);
      Vec u = load(args.up + i * kPanel + j * kLanes);
      if (args.round) {
        a = round_bf16(a);
        u = round_bf16(u);
      }
      a = minimum(limit, a);  // the second operand where either is NaN
      u = minimum(limit, maximum(lowest, u));
      Vec t = mul(weight, mul(silu(a), u));
      if (args.round) t = round_bf16(t);
      group[j] = t;
    }
    if (args.quantize) quantize_group(group);
#pragma GCC unroll 4
    for (int j = 0; j < kBlock / kLanes; ++j) store(args.gate + i * kPanel + j * kLanes, group[j]);
    for (int64_t n = args.outputs; n < kPanel; ++n) args.gate[i * kPanel + n] = 0.0f;
  }
}

// ---- Tiles into rows ------------------------------------------------------------------------------------------------

// 32 values or the `size` first ones of them, as element `first` of a row of y.
inline void store_panel_row(const float* from, int64_t size, void* row, int64_t first, bool is_f32) {
  alignas(64) uint16_t narrow[kPanel];
  if (is_f32) {
    float* to = static_cast<float*>(row) + first;
    if (size == kPanel) {
#pragma GCC unroll 4
      for (int64_t n = 0; n < kPanel; n += kLanes) store_any(to + n, load(from + n));
    } else {
      for (int64_t n = 0; n < size; ++n) to[n] = from[n];
    }
    return;
  }
  uint16_t* to = static_cast<uint16_t*>(row) + first;
  uint16_t* out = size == kPanel ? to : narrow;
#pragma GCC unroll 4
  for (int64_t n = 0; n < kPanel; n += kLanes) store_bf16(out + n, load(from + n));
  if (size == kPanel) return;
  for (int64_t n = 0; n < size; ++n) to[n] = narrow[n];
}

// Row by row, so that lines next to each other are written together.
void store_tile(const StoreArgs& args) {
  constexpr int64_t kAhead = 6;  // rows that come near: they may lie pages apart
  const StoreArgs a = args;
  const int64_t row_bytes = a.stride * (a.is_f32 ? 4 : 2);
  for (int64_t i = 0; i < a.count; ++i) {
    std::byte* row = static_cast<std::byte*>(a.y) + i * row_bytes;
    const float* from = a.tile + i * kPanel;
    for (int64_t first = 0; first < a.outputs; first += kPanel) {
      __builtin_prefetch(row + kAhead * row_bytes + first * (a.is_f32 ? 4 : 2), 1);
      const int64_t left = a.outputs - first;
      store_panel_row(from, left < kPanel ? left : kPanel, row, first, a.is_f32);
      from += a.count * kPanel;
    }
  }
}

void add_tile(const AddArgs& args) {
  alignas(64) float sum[kPanel];
  for (int64_t i = 0; i < args.count; ++i) {
    float* total = args.total + (args.rows != nullptr ? args.rows[i] : i) * args.stride;
#pragma GCC unroll 4
    for (int64_t n = 0; n < kPanel; n += kLanes) {
      Vec value = load(args.tile + i * kPanel + n);
      if (args.round) value = round_bf16(value);
      if (args.outputs == kPanel) store_any(total + n, add(load_any(total + n), value));
      else store(sum + n, value);
    }
    if (args.outputs == kPanel) continue;
    for (int64_t n = 0; n < args.outputs; ++n) total[n] += sum[n];
  }
}
