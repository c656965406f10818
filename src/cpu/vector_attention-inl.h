// Sparse attention on vectors: scores and values are canonical products of 32 keys at a time, with heads in the place
// of rows of x. Included after vector_kernels-inl.h inside the anonymous namespace of an instruction-set file, which
// also defines decode_key(key, dim, out): a key as floats, exact.

struct AttendWork {
  float* keys;     // [64][dim]
  float* query;    // packed
  float* weights;  // [2][heads][32] scores, then weights, of each half of a block
  float* sum;      // [dim / 32][heads][32]
  float* largest;  // [heads]
  float* divisor;  // [heads]
};

inline int64_t whole_lines(int64_t floats) { return (floats + 15) / 16 * 16; }

int64_t exact_attend_bytes(int64_t heads, int64_t dim) {
  return 4 * (kKeyBlock * dim + 2 * whole_lines(heads * dim) + kKeyBlock * heads + 2 * whole_lines(heads));
}

inline AttendWork attend_work(const AttendArgs& args) {
  float* at = reinterpret_cast<float*>(args.work);
  const auto take = [&at](int64_t floats) {
    float* taken = at;
    at += whole_lines(floats);
    return taken;
  };
  AttendWork work;
  work.keys = take(kKeyBlock * args.dim);
  work.query = take(args.heads * args.dim);
  work.weights = take(kKeyBlock * args.heads);
  work.sum = take(args.heads * args.dim);
  work.largest = take(args.heads);
  work.divisor = take(args.heads);
  return work;
}

// Scores of one head become weights; returns the factor of what was summed before.
inline float weigh_head(const AttendArgs& args, int64_t count, float* low, float* high, float& largest,
                        float& divisor) {
  constexpr int kVectors = static_cast<int>(kKeyBlock) / kLanes;
  constexpr int kHalf = kVectors / 2;
  const auto place = [&](int i) { return i < kHalf ? low + i * kLanes : high + (i - kHalf) * kLanes; };
  const Vec before = broadcast(largest);
  Vec scores[kVectors];
  Mask is_key[kVectors];
  Vec top = before;
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) {
    is_key[i] =
        less(add(lane_numbers(), broadcast(static_cast<float>(i * kLanes))), broadcast(static_cast<float>(count)));
    scores[i] = mul(load(place(i)), broadcast(args.scale));
    top = select(is_key[i], maximum(scores[i], top), top);  // the second operand where a score is NaN
  }
  largest = reduce_maximum(top);
  const Vec now = broadcast(largest);
  Vec lanes[16 / kLanes];
#pragma GCC unroll 2
  for (int i = 0; i < 16 / kLanes; ++i) lanes[i] = zero();
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) {
    Vec weight = select(is_key[i], exp_f32(subtract(scores[i], now)), zero());
    lanes[i % (16 / kLanes)] = add(lanes[i % (16 / kLanes)], weight);
    if (!args.is_f32) weight = round_bf16(weight);
    store(place(i), weight);
  }
  const float decay = first_lane(exp_f32(subtract(before, now)));
  const float decayed = divisor * decay;
  divisor = decayed + fold_lanes(lanes);
  return decay;
}

// sum = sum * decay + weights * keys, for 32 channels of all heads.
inline void add_values(const AttendWork& work, int64_t count, int64_t heads, int64_t dim, int64_t channel, float* sum) {
  alignas(64) float values[kBlock * kPanel];
  for (int64_t first = 0; first < count; first += kBlock) {
    for (int64_t n = 0; n < kBlock; ++n) {
#pragma GCC unroll 4
      for (int64_t c = 0; c < kPanel; c += kLanes) {
        store(values + n * kPanel + c, load(work.keys + (first + n) * dim + channel + c));
      }
    }
    multiply_block(values, work.weights + first * heads, heads, sum);
  }
}

inline void attend_to_block(const AttendArgs& args, const AttendWork& work, const Key* keys, int64_t count) {
  const int64_t padded = (count + kBlock - 1) / kBlock * kBlock;
  for (int64_t n = 0; n < count; ++n) decode_key(keys[n], args.dim, work.keys + n * args.dim);
  for (int64_t i = count * args.dim; i < padded * args.dim; i += kLanes) store(work.keys + i, zero());
  ops::Weight rows;
  rows.format = ops::WeightFormat::kF32;
  rows.rows = count;
  rows.columns = args.dim;
  rows.data = reinterpret_cast<const std::byte*>(work.keys);
  float* low = work.weights;
  float* high = work.weights + kBlock * args.heads;
  exact_multiply({rows, 0, work.query, args.heads, low});
  if (count > kBlock) exact_multiply({rows, kBlock, work.query, args.heads, high});
  else
    for (int64_t i = 0; i < kBlock * args.heads; i += kLanes) store(high + i, zero());
  for (int64_t h = 0; h < args.heads; ++h) {
    const float decay = weigh_head(args, count, low + h * kBlock, high + h * kBlock, work.largest[h], work.divisor[h]);
    if (decay == 1.0f) continue;
    for (int64_t c = 0; c < args.dim; c += kPanel) {
      float* sum = work.sum + c * args.heads + h * kPanel;
#pragma GCC unroll 4
      for (int64_t i = 0; i < kPanel; i += kLanes) store(sum + i, mul(load(sum + i), broadcast(decay)));
    }
  }
  for (int64_t c = 0; c < args.dim; c += kPanel) {
    add_values(work, count, args.heads, args.dim, c, work.sum + c * args.heads);
  }
}

void exact_attend(const AttendArgs& args) {
  const AttendWork work = attend_work(args);
  PackArgs pack;
  pack.x = args.q;
  pack.is_f32 = args.is_f32;
  pack.stride = pack.columns = args.dim;
  pack.count = pack.end = args.heads;
  pack.packed = work.query;
  exact_pack(pack);
  for (int64_t i = 0; i < args.heads * args.dim; i += kLanes) store(work.sum + i, zero());
  for (int64_t h = 0; h < args.heads; ++h) {
    work.largest[h] = -1e30f;
    work.divisor[h] = 0.0f;
  }
  for (int64_t first = 0; first < args.count; first += kKeyBlock) {
    const int64_t left = args.count - first;
    attend_to_block(args, work, args.keys + first, left < kKeyBlock ? left : kKeyBlock);
  }
  for (int64_t h = 0; h < args.heads; ++h) {
    const float sink = first_lane(exp_f32(subtract(broadcast(args.sink[h]), broadcast(work.largest[h]))));
    const Vec divisor = broadcast(work.divisor[h] + sink);
    for (int64_t d = 0; d < args.dim; d += kLanes) {
      const float* sum = work.sum + d / kPanel * kPanel * args.heads + h * kPanel + d % kPanel;
      const Vec value = args.count == 0 ? zero() : div(load(sum), divisor);
      if (args.is_f32) store_any(static_cast<float*>(args.o) + h * args.dim + d, value);
      else store_bf16(static_cast<uint16_t*>(args.o) + h * args.dim + d, value);
    }
  }
}
