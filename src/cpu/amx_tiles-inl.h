// The tile registers of AMX. Included inside the anonymous namespace of an instruction-set file.

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

inline void configure_tiles(const TileConfig& config) { __asm__ volatile("ldtilecfg %0" ::"m"(config)); }

// The tile instructions, with the memory they touch told to the compiler (its own intrinsics leave that out for loads).
template <int kTile>
inline void load_tile(const void* from, int64_t row_bytes) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(row_bytes), "i"(kTile) : "memory");
}
// The same for what the second cache holds and the first one shall not: it passes by.
template <int kTile>
inline void load_passing_tile(const void* from, int64_t row_bytes) {
  __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(row_bytes), "i"(kTile) : "memory");
}
template <int kTile>
inline void store_tile(void* to, int64_t row_bytes) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(row_bytes), "i"(kTile) : "memory");
}
template <int kTile>
inline void zero_tile() {
  __asm__ volatile("tilezero %%tmm%c0" ::"i"(kTile));
}
// Tile kSum += tile kWeights * tile kInput.
template <int kSum, int kWeights, int kInput>
inline void multiply_tiles() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kWeights), "i"(kInput));
}
