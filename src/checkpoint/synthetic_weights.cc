#include "checkpoint/synthetic_weights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/macros.h"
#include "base/number_formats.h"

namespace ps::checkpoint {
namespace {

constexpr int64_t kBlock = 32;
constexpr int64_t kPieceValues = 1 << 18;
constexpr double kE2m1Deviation = 2.9261749776799064;  // of the 16 codes, each equally likely
// Block exponents are -1, 0, 0, +1 around their center: the root mean square of their factors.
constexpr double kScaleSpread = 1.25;

enum class Law : uint8_t {
  kBell,     // mean 0, standard deviation `spread`
  kUniform,  // center - spread .. center + spread
  kSigned,   // the same with a random sign
  kMixBase,  // biases of the mHC coefficients, by position
};

struct Recipe {
  Law law = Law::kBell;
  double center = 0;
  double spread = 1;
};

bool ends_with(std::string_view name, std::string_view tail) { return name.ends_with(tail); }
bool has(std::string_view name, std::string_view part) { return name.find(part) != std::string_view::npos; }

// Of the inputs of a matrix with unit variance, the outputs get the variance gain^2.
double gain_of(std::string_view name) {
  if (ends_with(name, "attn.wq_b.weight") || ends_with(name, "attn.wq_b.scale"))
    return 2;                                                            // attention that prefers some keys
  if (ends_with(name, "head.weight") && !has(name, "markov")) return 3;  // and tokens
  if (has(name, ".ffn.gate.")) return 1.5;
  // What enters the residual is damped, so that it grows slowly with depth.
  if (has(name, ".wo_b.") || has(name, ".w2.") || has(name, ".wo.weight") || has(name, "engram.wkv")) return 0.5;
  return 1;
}

Recipe vector_recipe(std::string_view name) {
  if (has(name, "norm")) return {Law::kUniform, 1, 0.3};
  if (has(name, "_base")) return {Law::kMixBase, 0, 0.5};
  if (has(name, "_scale")) return {Law::kUniform, 0.6, 0.2};
  if (has(name, "attn_sink")) return {Law::kUniform, 0.5, 1.5};
  if (has(name, "gate.bias")) return {Law::kUniform, 0, 0.2};
  if (has(name, "image_")) return {Law::kBell, 0, 1};
  return {Law::kUniform, 0, 0.1};  // biases of the vision tower and the aligner
}

// Distribution of the values that a tensor stands for.
Recipe recipe_of(const TensorSpec& spec) {
  const std::string_view name = spec.name;
  if (spec.logical_shape.rank == 1) return vector_recipe(name);
  if (ends_with(name, "embed.weight") || ends_with(name, "engram.embed.scale")) return {Law::kBell, 0, 1};
  if (ends_with(name, "k_weight") || ends_with(name, "q_weight")) return {Law::kSigned, 1, 0.5};
  const int64_t inputs = is_scale(spec.form) ? spec.shape[1] * kBlock : spec.logical_shape[1];
  return {Law::kBell, 0, gain_of(name) / std::sqrt(static_cast<double>(inputs))};
}

// Sum of four uniform 16-bit numbers, scaled to variance 1: a bell without any library function.
float bell(uint64_t bits) noexcept {
  const auto sum = static_cast<int32_t>((bits & 0xFFFF) + (bits >> 16 & 0xFFFF) + (bits >> 32 & 0xFFFF) + (bits >> 48));
  constexpr float kUnit = 1.7320508f / 65536.0f;
  return static_cast<float>(sum - 131070) * kUnit;
}

// mHC: the incoming mix near a quarter per stream, the outgoing near 1, the streams mostly kept apart (model.md 2.9).
double mix_center(int64_t index, int64_t streams) noexcept {
  if (index < streams) return -1.1;
  if (index < 2 * streams) return 0;
  const int64_t cell = index - 2 * streams;
  return cell / streams == cell % streams ? 1.5 : 0;
}

// Element `index` of a BF16 or F32 tensor.
void store(float value, DType dtype, int64_t index, std::byte* out) noexcept {
  const bf16 rounded = to_bf16(value);
  if (dtype == DType::kF32) std::memcpy(out + index * 4, &value, sizeof value);
  else std::memcpy(out + index * 2, &rounded, sizeof rounded);
}

uint64_t hash_name(std::string_view name) noexcept {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3ull;
  return hash;
}

uint64_t scramble(uint64_t value) noexcept {
  value += 0x9e3779b97f4a7c15ull;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
  return value ^ (value >> 31);
}

// round(log2(value)) from the bits: the halfway point is the square root of two.
int rounded_log2(double value) noexcept {
  int exponent = 0;
  const double mantissa = std::frexp(value, &exponent);  // in [0.5, 1)
  return mantissa < 0.70710678118654752 ? exponent - 1 : exponent;
}

// Rows and columns in values of the matrix that a weight or a scale belongs to; a vector is one row.
struct Extent {
  int64_t rows;
  int64_t columns;
};

Extent extent_of(const TensorSpec& spec) noexcept {
  if (spec.logical_shape.rank < 2) return {1, spec.logical_shape.elements()};
  if (spec.form == Form::kBlockScale) return {spec.shape[0] * kBlock, spec.shape[1] * kBlock};
  if (is_scale(spec.form)) return {spec.shape[0], spec.shape[1] * kBlock};
  return {spec.logical_shape[0], spec.logical_shape[1]};
}

int64_t rows_per_piece(const Extent& extent) noexcept {
  return std::max(kBlock, kPieceValues / extent.columns / kBlock * kBlock);
}

// Weights that share one scale, in rows.
int64_t scale_rows(Form form) noexcept { return form == Form::kBlockWeight || form == Form::kBlockScale ? kBlock : 1; }

}  // namespace

struct SyntheticWeights::Piece {
  int64_t index = 0;
  int64_t rows = 0;  // in values
  int64_t columns = 0;
  int64_t scale_rows = 1;

  Piece(const TensorSpec& spec, int64_t piece) : index(piece), scale_rows(checkpoint::scale_rows(spec.form)) {
    const Extent extent = extent_of(spec);
    const int64_t step = rows_per_piece(extent);
    rows = std::min(step, extent.rows - piece * step);
    columns = extent.columns;
  }
  [[nodiscard]] int64_t values() const noexcept { return rows * columns; }
  [[nodiscard]] int64_t scales() const noexcept { return rows / scale_rows * (columns / kBlock); }
};

SyntheticWeights::SyntheticWeights(const Config& config, Storage storage, uint64_t seed)
    : config_(config), storage_(storage), seed_(seed) {
  Pcg64 random(0);
  size_t next = 0;
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7F) != 0x7F) e4m3_[next++] = static_cast<uint8_t>(code);
  }
  while (next < e4m3_.size()) e4m3_[next++] = float_to_e4m3(100.0f * bell(random.next64()));
  double squares = 0;
  for (const uint8_t code : e4m3_) squares += double{e4m3_to_float(code)} * e4m3_to_float(code);
  e4m3_deviation_ = std::sqrt(squares / static_cast<double>(e4m3_.size()));
}

int64_t SyntheticWeights::num_pieces(const TensorSpec& spec) noexcept {
  const Extent extent = extent_of(spec);
  const int64_t step = rows_per_piece(extent);
  return (extent.rows + step - 1) / step;
}

int64_t SyntheticWeights::piece_bytes(const TensorSpec& spec) noexcept {
  const Extent extent = extent_of(spec);
  return std::min(extent.rows, rows_per_piece(extent)) * extent.columns * dtype_bytes(spec.dtype);
}

int64_t SyntheticWeights::fill(const TensorSpec& spec, int64_t index, std::byte* out) const {
  const Piece piece(spec, index);
  if (is_scale(spec.form)) {
    fill_scales(spec.name, piece, scale_code(spec), reinterpret_cast<uint8_t*>(out));
    return piece.scales();
  }
  if (!is_quantized_weight(spec.form)) {
    fill_plain(spec, piece, out);
    return piece.values() * dtype_bytes(spec.dtype);
  }
  if (storage_ != Storage::kOfficial) {
    fill_decoded(spec, piece, out);
    return piece.values() * dtype_bytes(spec.dtype);
  }
  fill_codes(spec, piece, reinterpret_cast<uint8_t*>(out));
  return spec.form == Form::kFp4Weight ? piece.values() / 2 : piece.values();
}

Pcg64 SyntheticWeights::generator(std::string_view name, int64_t piece) const noexcept {
  return Pcg64(scramble(scramble(seed_) ^ hash_name(name)) + static_cast<uint64_t>(piece));
}

// The middle of the block scales that give the values the spread of their recipe.
int SyntheticWeights::scale_code(const TensorSpec& spec) const noexcept {
  const bool is_fp4 = spec.form == Form::kFp4Weight || spec.form == Form::kFp4Scale;
  const double codes = is_fp4 ? kE2m1Deviation : e4m3_deviation_;
  return 127 + rounded_log2(recipe_of(spec).spread / (codes * kScaleSpread));
}

void SyntheticWeights::fill_scales(std::string_view name, const Piece& piece, int code, uint8_t* out) const {
  constexpr int kSteps[4] = {-1, 0, 0, 1};
  Pcg64 random = generator(name, piece.index);
  uint64_t bits = 0;
  for (int64_t i = 0; i < piece.scales(); ++i) {
    bits = i % 32 == 0 ? random.next64() : bits >> 2;
    out[i] = static_cast<uint8_t>(code + kSteps[bits & 3]);
  }
}

void SyntheticWeights::fill_codes(const TensorSpec& spec, const Piece& piece, uint8_t* out) const {
  Pcg64 random = generator(spec.name, piece.index);
  if (spec.form == Form::kFp4Weight) {
    for (int64_t i = 0; i < piece.values() / 2; i += 8) {  // columns are multiples of 32
      const uint64_t bits = random.next64();
      for (int64_t byte = 0; byte < 8; ++byte) out[i + byte] = static_cast<uint8_t>(bits >> (8 * byte));
    }
    return;
  }
  constexpr int kPerDraw = 64 / kCodeBits;
  uint64_t bits = 0;
  int left = 0;
  for (int64_t i = 0; i < piece.values(); ++i) {
    if (left-- == 0) {
      bits = random.next64();
      left = kPerDraw - 1;
    }
    out[i] = e4m3_[bits & ((1u << kCodeBits) - 1)];
    bits >>= kCodeBits;
  }
}

void SyntheticWeights::fill_decoded(const TensorSpec& spec, const Piece& piece, std::byte* out) const {
  const bool is_fp4 = spec.form == Form::kFp4Weight;
  std::vector<uint8_t> codes(static_cast<size_t>(piece.values()));
  std::vector<uint8_t> scales(static_cast<size_t>(piece.scales()));
  fill_codes(spec, piece, codes.data());
  const std::string scale_name = spec.name.substr(0, spec.name.size() - std::strlen("weight")) + "scale";
  fill_scales(scale_name, piece, scale_code(spec), scales.data());
  const int64_t scale_columns = piece.columns / kBlock;
  for (int64_t row = 0; row < piece.rows; ++row) {
    for (int64_t column = 0; column < piece.columns; ++column) {
      const int64_t i = row * piece.columns + column;
      const uint8_t exponent = scales[static_cast<size_t>(row / piece.scale_rows * scale_columns + column / kBlock)];
      const float code =
          is_fp4 ? e2m1_to_float(fp4_nibble(codes.data(), i)) : e4m3_to_float(codes[static_cast<size_t>(i)]);
      const float value = code * e8m0_to_float(exponent);  // exact, in BF16 too
      store(value, spec.dtype, i, out);
    }
  }
}

void SyntheticWeights::fill_plain(const TensorSpec& spec, const Piece& piece, std::byte* out) const {
  PS_CHECK(spec.dtype == DType::kF32 || spec.dtype == DType::kBF16, spec.name);
  const Recipe recipe = recipe_of(spec);
  const auto center = static_cast<float>(recipe.center);
  const auto spread = static_cast<float>(recipe.spread);
  Pcg64 random = generator(spec.name, piece.index);
  for (int64_t i = 0; i < piece.values(); ++i) {
    float value = 0;
    if (recipe.law == Law::kBell) {
      value = spread * bell(random.next64());
    } else {
      const double unit = random.uniform();
      value = center + spread * static_cast<float>(2 * unit - 1);
      if (recipe.law == Law::kMixBase) value += static_cast<float>(mix_center(i, config_.text_config.hc_mult));
      if (recipe.law == Law::kSigned && (random.next64() >> 63) != 0) value = -value;
    }
    store(value, spec.dtype, i, out);
  }
}

}  // namespace ps::checkpoint
