// Engram addressing (model.md 3.2, 3.3): primes, offsets, multipliers, and the rows of a token's n-grams.
//
// All integers, all exact (pitfalls D2): doubles would not do, yet class x multiplier stays below 2^63 because the
// multipliers are drawn below 2^63 / classes. Knows token classes, not token text: the map from tokens to classes is
// text/token_map.h. The constants of the published model are a test of this generator.
// Threading: immutable after create; hash_rows is pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "checkpoint/config.h"

namespace ps::checkpoint {

// Class of a token that has no text (an image span), and of the time before the prompt.
inline constexpr int32_t kEngramDead = -1;

inline constexpr int kMaxEngramNgram = 8;
inline constexpr int kMaxEngramLayers = 16;

// Addressing of one Engram layer. Column (s-1) x heads + head belongs to the (s+1)-gram.
struct EngramLayer {
  int layer = 0;                     // backbone layer id
  int max_ngram = 0;                 // 4
  int heads = 0;                     // 8
  int32_t pad_class = 0;             // stands for every blocked lookback
  std::vector<int64_t> multipliers;  // [max_ngram]
  std::vector<int64_t> primes;       // [columns]
  std::vector<int64_t> offsets;      // [columns], exclusive prefix sums of primes
  int64_t total_rows = 0;            // sum of primes

  [[nodiscard]] int columns() const noexcept { return static_cast<int>(primes.size()); }
};

// Sum of primes per Engram layer, in the order of engram_layer_ids.
// REQUIRES: field ranges of config.json.
[[nodiscard]] std::vector<int64_t> engram_table_rows(const TextConfig& text);

// `num_classes` is the size of the token map (config: engram_compressed_vocab_size), `pad_class` its value at
// engram_pad_token_id. invalid when the two contradict the config.
// REQUIRES: a legal config.
[[nodiscard]] Result<std::vector<EngramLayer>> make_engram_layers(const TextConfig& text, int64_t num_classes,
                                                                  int32_t pad_class);

// Table rows of the token at position p. classes[s] = class at p - s (kEngramDead before the prompt or in an image
// span), s = 0 .. max_ngram-1. Once a lookback is dead, it and all deeper ones count as pad. rows: [columns].
// REQUIRES: classes.size() == max_ngram, rows.size() == columns(), classes in [-1, num_classes).
void hash_rows(const EngramLayer& engram, std::span<const int32_t> classes, std::span<int64_t> rows) noexcept;

// Exact for every 64-bit value.
[[nodiscard]] bool is_prime(uint64_t value) noexcept;

}  // namespace ps::checkpoint
