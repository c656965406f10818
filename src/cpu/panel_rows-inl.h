// Which rows of W a panel takes where few rows of x are multiplied, that is, where memory is the limit. A core reads
// fastest as 16 streams that each go on for long: its prefetchers follow them, and software asks for each a little
// ahead. So the rows of a whole step, all its panels, are cut into 16 lanes of neighbours, and a panel takes the next
// two rows of every lane. FP8 rows stay together: 32 neighbours share their scales, and look-ups of them are what such a
// panel takes longest for. Included after avx512_vectors-inl.h and prefetch-inl.h inside the anonymous namespace of an
// instruction-set file.

constexpr int64_t kStreams = 16;
constexpr int64_t kAheadBytes = 1024;  // in a row

// Row n of a panel is row first + n % kStreams * lane + n / kStreams * half of W.
struct PanelRows {
  int64_t first;
  int64_t lane;
  int64_t half;
};

inline bool is_streamed(const MultiplyArgs& args) { return args.w.format != ops::WeightFormat::kFp8Block32; }

// 32 neighbours.
inline PanelRows neighbours(int64_t first) { return {first, 1, kStreams}; }

// Panels of a step that are not cut short.
inline int64_t whole_panels(const MultiplyArgs& args) {
  const int64_t most = (args.w.rows - args.first) / kPanel;
  return most < args.panels ? most : args.panels;
}
inline PanelRows panel_rows(const MultiplyArgs& args, int64_t panel) {
  const int64_t whole = whole_panels(args);
  if (panel < whole && is_streamed(args)) return {args.first + 2 * panel, 2 * whole, 1};
  return neighbours(args.first + panel * kPanel);
}

// From byte `at` of a row of row_bytes to what is asked for meanwhile: further on in the row or in that of the next
// panel, or all of the next panel.
inline int64_t bytes_ahead(const MultiplyArgs& args, int64_t at, int64_t row_bytes) {
  if (!is_streamed(args)) return kPanel * row_bytes;
  const int64_t distance = row_bytes < kAheadBytes ? row_bytes : kAheadBytes;
  return at + distance < row_bytes ? distance : distance + row_bytes;
}

// The beginning of a step's streams, which nobody asked for before.
inline void bring_streams(const MultiplyArgs& args, int64_t row_bytes) {
  if (!is_streamed(args) || whole_panels(args) == 0) return;
  const PanelRows rows = panel_rows(args, 0);
  const int64_t size = row_bytes < kAheadBytes ? row_bytes : kAheadBytes;
  for (int64_t n = 0; n < kPanel; ++n) {
    const std::byte* row = args.w.data + (rows.first + n % kStreams * rows.lane + n / kStreams) * row_bytes;
    for (int64_t at = 0; at < size; at += kCacheLine) prefetch_first(row + at);
  }
}

// Sums [count][32] of a panel into args.tile, which goes by rows of W.
inline void place_panel(const float* sums, const MultiplyArgs& args, int64_t panel) {
  const PanelRows rows = panel_rows(args, panel);
  if (rows.half != 1) {
    float* to = args.tile + panel * args.count * kPanel;
    for (int64_t i = 0; i < args.count * kPanel; i += kLanes) store(to + i, load(sums + i));
    return;
  }
  for (int64_t i = 0; i < args.count; ++i) {
    const Vec low = load(sums + i * kPanel);
    const Vec high = load(sums + i * kPanel + kLanes);
    alignas(64) float pairs[2 * kStreams];  // of each lane; four lanes in turn, their first two before their others
    store(pairs, _mm512_unpacklo_ps(low, high));
    store(pairs + kLanes, _mm512_unpackhi_ps(low, high));
#pragma GCC unroll 16
    for (int64_t lane = 0; lane < kStreams; ++lane) {
      const int64_t row = rows.first - args.first + lane * rows.lane;
      float* to = args.tile + (row / kPanel * args.count + i) * kPanel + row % kPanel;
      const float* from = pairs + lane % 4 / 2 * kLanes + lane / 4 * 4 + lane % 2 * 2;
      __builtin_memcpy(to, from, 2 * sizeof(float));
    }
  }
}
