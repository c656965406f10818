// The random values of synthetic checkpoints: which distribution each tensor has, and its bytes piece by piece.
//
// A tensor is cut into pieces of whole rows (whole 32-row blocks where scales span them) by its shape alone. A piece
// draws from its own generator, and a weight's piece needs the scales of the same piece only: so pieces can be made in
// any order and on any thread, and the dequantized storage is computed from the very codes of the official one.
// Threading: immutable after construction.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/pcg64.h"
#include "checkpoint/config.h"
#include "checkpoint/schema.h"

namespace ps::checkpoint {

class SyntheticWeights {
 public:
  SyntheticWeights(const Config& config, Storage storage, uint64_t seed);

  [[nodiscard]] static int64_t num_pieces(const TensorSpec& spec) noexcept;
  // Every piece has at most this size.
  [[nodiscard]] static int64_t piece_bytes(const TensorSpec& spec) noexcept;
  // Writes piece `index` of the tensor and returns its bytes.
  // REQUIRES: out holds piece_bytes(spec).
  int64_t fill(const TensorSpec& spec, int64_t index, std::byte* out) const;

 private:
  struct Piece;
  [[nodiscard]] Pcg64 generator(std::string_view name, int64_t piece) const noexcept;
  [[nodiscard]] int scale_code(const TensorSpec& weight_or_scale) const noexcept;
  void fill_scales(std::string_view name, const Piece& piece, int code, uint8_t* out) const;
  void fill_codes(const TensorSpec& spec, const Piece& piece, uint8_t* out) const;
  void fill_decoded(const TensorSpec& spec, const Piece& piece, std::byte* out) const;
  void fill_plain(const TensorSpec& spec, const Piece& piece, std::byte* out) const;

  const Config& config_;
  const Storage storage_;
  const uint64_t seed_;
  static constexpr int kCodeBits = 12;
  std::array<uint8_t, 1 << kCodeBits>
      e4m3_;  // mostly a bell of standard deviation near 100, each finite code at least once
  double e4m3_deviation_ = 0;
};

}  // namespace ps::checkpoint
