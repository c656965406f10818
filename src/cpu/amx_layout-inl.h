// How the tiles' rows of x lie in memory: chunks of kChunk blocks of K, the last one shorter; a chunk is groups of 16
// rows of x, of which a lone group has only as many as there are and a last one ends with zeros; a group is
// [block of K][16 pairs of K][rows][2] BF16. So what is multiplied together lies together. Included inside the
// anonymous namespace of an instruction-set file.

constexpr int64_t kGroup = 16;  // rows of x in one tile

// Rows of every group, and of all of them, where `count` rows are packed.
inline int64_t group_rows(int64_t count) { return count < kGroup ? count : kGroup; }
inline int64_t laid_rows(int64_t count) { return count < kGroup ? count : (count + kGroup - 1) / kGroup * kGroup; }

// Block `block` of K of group `group`.
inline uint32_t* group_block(void* packed, int64_t columns, int64_t count, int64_t group, int64_t block) {
  const int64_t first = block / kChunk * kChunk;
  const int64_t left = (columns + kBlock - 1) / kBlock - first;
  const int64_t chunk = left < kChunk ? left : kChunk;
  const int64_t rows = group_rows(count);
  return static_cast<uint32_t*>(packed) + 16 * (first * laid_rows(count) + (group * chunk + block - first) * rows);
}
