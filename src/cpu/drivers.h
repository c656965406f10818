// The ops of the CPU backend, over one instruction set's kernels: how rows, panels and experts are cut over threads,
// and what scratch they take. Contracts are those of ops/; results are the reference's, bit for bit. Internal to the
// backend.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/kernels.h"
#include "ops/table.h"

namespace ps::cpu {

void linear(const Kernels& kernels, const ops::LinearArgs& args, ops::Exec& exec);
void grouped_linear(const Kernels& kernels, const ops::GroupedLinearArgs& args, ops::Exec& exec);
void quantize_mxfp8(const Kernels& kernels, const ops::QuantizeMxfp8Args& args, ops::Exec& exec);
void moe(const Kernels& kernels, const ops::MoeArgs& args, ops::Exec& exec);
void index_select(const Kernels& kernels, const ops::IndexSelectArgs& args, ops::Exec& exec);
void sparse_attention(const Kernels& kernels, const ops::SparseAttentionArgs& args, ops::Exec& exec);

// rows.cc
void embed(const Kernels& kernels, const ops::EmbedArgs& args, ops::Exec& exec);
void rms_norm(const Kernels& kernels, const ops::RmsNormArgs& args, ops::Exec& exec);
void rope(const Kernels& kernels, const ops::RopeArgs& args, ops::Exec& exec);
void scale(const Kernels& kernels, const ops::ScaleArgs& args, ops::Exec& exec);
void hc_mix(const Kernels& kernels, const ops::HcMixArgs& args, ops::Exec& exec);
void hc_collapse(const Kernels& kernels, const ops::HcCollapseArgs& args, ops::Exec& exec);
void hc_expand(const Kernels& kernels, const ops::HcExpandArgs& args, ops::Exec& exec);
void engram_gather(const Kernels& kernels, const ops::EngramGatherArgs& args, ops::Exec& exec);
void engram_mix(const Kernels& kernels, const ops::EngramMixArgs& args, ops::Exec& exec);
void index_query_quantize(const Kernels& kernels, const ops::IndexQueryQuantizeArgs& args, ops::Exec& exec);

// cache_writes.cc
void window_write(const Kernels& kernels, const ops::WindowWriteArgs& args, ops::Exec& exec);
void compressor_pool(const Kernels& kernels, const ops::CompressorPoolArgs& args, ops::Exec& exec);
void compressor_ring_write(const Kernels& kernels, const ops::CompressorRingWriteArgs& args, ops::Exec& exec);
void compressed_store(const Kernels& kernels, const ops::CompressedStoreArgs& args, ops::Exec& exec);
void index_key_store(const Kernels& kernels, const ops::IndexKeyStoreArgs& args, ops::Exec& exec);

void router(const Kernels& kernels, const ops::RouterArgs& args, ops::Exec& exec);

// What each takes from Exec::scratch, at most.
[[nodiscard]] int64_t linear_scratch_bytes(const ops::ScratchBounds& bounds) noexcept;
[[nodiscard]] int64_t moe_scratch_bytes(const ops::ScratchBounds& bounds) noexcept;
[[nodiscard]] int64_t index_select_scratch_bytes(const ops::ScratchBounds& bounds) noexcept;
[[nodiscard]] int64_t rows_scratch_bytes(const ops::ScratchBounds& bounds) noexcept;
[[nodiscard]] int64_t router_scratch_bytes(const ops::ScratchBounds& bounds) noexcept;
[[nodiscard]] int64_t attention_scratch_bytes(const Kernels& kernels, const ops::ScratchBounds& bounds) noexcept;

// Bytes of packed rows in any layout: floats, BF16 in whole groups of 16 rows where there are more, or digits.
[[nodiscard]] constexpr int64_t packed_bound(int64_t rows, int64_t columns) noexcept {
  return rows * ((columns + kBlock - 1) / kBlock * kBlock) * 4 + 64;
}
// The multiplier for any number of rows of `dtype` and a weight of `format`.
[[nodiscard]] inline const Multiplier& multiplier_for(const Kernels& kernels, DType dtype,
                                                      ops::WeightFormat format) noexcept {
  const bool fits = kernels.matrix.multiply != nullptr && dtype == DType::kBF16 && format != ops::WeightFormat::kF32;
  return fits ? kernels.matrix : kernels.exact;
}
// The same for `rows` rows on `grid` and a weight like w.
[[nodiscard]] inline const Multiplier& multiplier_for(const Kernels& kernels, DType dtype, ops::Grid grid,
                                                      const ops::Weight& w, int64_t rows) noexcept {
  const bool fits_integer = grid == ops::Grid::kMxfp8 && w.format == ops::WeightFormat::kFp4Block32 &&
                            w.columns % kIntegerColumns == 0 && rows <= kernels.integer_rows;
  return fits_integer ? kernels.integer : multiplier_for(kernels, dtype, w.format);
}
// Sums of a pass into rows of y; multiply.tile is room.
inline void multiply_and_store(const Kernels& kernels, const Multiplier& multiplier, const MultiplyArgs& multiply,
                               const StoreArgs& out) {
  if (multiplier.multiply_store != nullptr) return multiplier.multiply_store(multiply, out);
  multiplier.multiply(multiply);
  kernels.store(out);
}
// Room for the sums of a pass over at most `rows` packed rows.
[[nodiscard]] constexpr int64_t most_tile_values(int64_t rows) noexcept {
  return std::max(rows, std::min(rows * kFewPanels, kTileRows)) * kPanel;
}
inline constexpr int64_t kFewSteps = 12;  // of a thread where there are few rows: enough to balance, of long streams
// Panels that share a pass over `rows` packed rows. Few rows are bound by memory, which long streams read fastest
// (panel_rows-inl.h). Many rows take as many panels as fit, but so that all threads end together; a pass costs about as
// much as a panel more.
[[nodiscard]] constexpr int64_t panels_together(int64_t panels, int64_t rows, int threads) noexcept {
  if (rows <= kPackUnit) return std::min((panels / (int64_t{threads} * kFewSteps)) | 1, kFewPanels);
  const int64_t most = std::clamp<int64_t>(kTileRows / rows, 1, kPanelGroup);
  const auto cost = [&](int64_t together) {
    const int64_t steps = (panels + together - 1) / together;
    return (steps + threads - 1) / threads * (together + 1);
  };
  int64_t best = most;
  for (int64_t together = most - 1; together > 0; --together) {
    if (cost(together) < cost(best)) best = together;
  }
  return best;
}

}  // namespace ps::cpu
