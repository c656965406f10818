// Which rows of W a panel takes where few rows of x are multiplied, that is, where memory is the limit. A core reads
// fastest as 16 streams that each go on for long: its prefetchers follow them, and software asks for each a little
// ahead. So the rows of a step's whole panels are cut into 16 lanes of neighbours, and a panel takes the next two rows
// of every lane. FP8 rows stay together: 32 neighbours share a scale, and its look-ups are what such a panel takes
// longest for. Included after avx512_vectors-inl.h and prefetch-inl.h inside the anonymous namespace of an
// instruction-set file.

constexpr int64_t kStreams = 16;
constexpr int64_t kAheadBytes = 1024;  // in a row

// Row n of a panel is row first + n % kStreams * lane + n / kStreams * half of W.
struct PanelRows {
  int64_t first;
  int64_t lane;
  int64_t half;
  [[nodiscard]] bool are_streams() const { return half == 1; }
};

// 32 neighbours.
inline PanelRows neighbours(int64_t first) { return {first, 1, kStreams}; }

// Panels of a step that are not cut short.
inline int64_t whole_panels(const MultiplyArgs& args) {
  const int64_t most = (args.w.rows - args.first) / kPanel;
  return most < args.panels ? most : args.panels;
}
// The first ones, which take streams: an odd number, so that lanes, twice as many rows apart, do not share the sets of
// a cache.
inline int64_t streamed_panels(const MultiplyArgs& args) {
  const int64_t whole = whole_panels(args);
  if (args.w.format == ops::WeightFormat::kFp8Block32 || whole == 0) return 0;
  return (whole - 1) | 1;
}
inline PanelRows panel_rows(const MultiplyArgs& args, int64_t panel) {
  const int64_t streamed = streamed_panels(args);
  if (panel < streamed) return {args.first + 2 * panel, 2 * streamed, 1};
  return neighbours(args.first + panel * kPanel);
}

// From byte `at` of a row of row_bytes to what is asked for meanwhile: further on in the stream, or in neighbours the
// same place of the panel after this one.
inline int64_t bytes_ahead(const PanelRows& rows, int64_t at, int64_t row_bytes) {
  if (!rows.are_streams()) return kPanel * row_bytes;
  const int64_t distance = row_bytes < kAheadBytes ? row_bytes : kAheadBytes;
  return at + distance < row_bytes ? distance : distance + row_bytes;
}

// The beginning of a step's streams, which nobody asked for before.
inline void bring_streams(const MultiplyArgs& args, int64_t row_bytes) {
  const PanelRows rows = panel_rows(args, 0);
  if (!rows.are_streams()) return;
  const int64_t size = row_bytes < kAheadBytes ? row_bytes : kAheadBytes;
  for (int64_t n = 0; n < kPanel; ++n) {
    const std::byte* row = args.w.data + (rows.first + n % kStreams * rows.lane + n / kStreams) * row_bytes;
    for (int64_t at = 0; at < size; at += kCacheLine) prefetch_first(row + at);
  }
}

// Sums [count][32] of a panel into args.tile, which goes by rows of W.
inline void place_panel(const float* sums, const MultiplyArgs& args, int64_t panel) {
  const PanelRows rows = panel_rows(args, panel);
  if (!rows.are_streams()) {
    float* to = args.tile + panel * args.count * kPanel;
    for (int64_t i = 0; i < args.count * kPanel; i += kLanes) store(to + i, load(sums + i));
    return;
  }
  for (int64_t i = 0; i < args.count; ++i) {
    const Vec low = load(sums + i * kPanel);
    const Vec high = load(sums + i * kPanel + kLanes);
    alignas(64) float pairs[2 * kStreams];  // of lanes 0 1 4 5 8 9 12 13, then 2 3 6 7 10 11 14 15
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
