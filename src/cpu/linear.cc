#include <algorithm>

#include "cpu/drivers.h"
#include "cpu/row_views.h"
#include "ops/ref_scratch.h"

namespace ps::cpu {
namespace {

constexpr int64_t kChunkRows = 512;  // rows of x that are packed at a time
constexpr int64_t kFewRows = 32;     // up to here all groups of a grouped op share a fork

// Blocks [first_group, first_group + groups) of a block-diagonal product: columns [g * K, (g + 1) * K) of x times rows
// [g * outputs, (g + 1) * outputs) of w give columns [g * outputs, (g + 1) * outputs) of y.
struct Product {
  const ops::ConstActivations& x;
  const ops::Weight& w;
  const ops::Activations& y;
  int64_t outputs = 0;
  int64_t first_group = 0;
  int64_t groups = 1;
};

PackArgs pack_args(const Product& product, int64_t group, int64_t first_row, int64_t rows) {
  const ops::ConstActivations& x = product.x;
  const int64_t at = first_row * x.stride + (product.first_group + group) * product.w.columns;
  PackArgs pack;
  pack.x = static_cast<const std::byte*>(x.data) + at * dtype_bytes(x.dtype);
  pack.is_f32 = x.dtype == DType::kF32;
  pack.stride = x.stride;
  pack.columns = product.w.columns;
  pack.count = rows;
  return pack;
}

StoreArgs store_args(const Product& product, const MultiplyArgs& multiply, int64_t group, int64_t first_row) {
  const ops::Activations& y = product.y;
  const int64_t n = multiply.first;
  const int64_t at = first_row * y.stride + (product.first_group + group) * product.outputs + n;
  StoreArgs store;
  store.tile = multiply.tile;
  store.count = multiply.count;
  store.outputs = std::min(multiply.panels * kPanel, product.outputs - n);
  store.y = static_cast<std::byte*>(y.data) + at * dtype_bytes(y.dtype);
  store.is_f32 = y.dtype == DType::kF32;
  store.stride = y.stride;
  return store;
}

// Rows [first_row, first_row + rows).
void multiply_rows(const Kernels& kernels, const Product& product, int64_t first_row, int64_t rows, ops::Exec& exec) {
  const ops::ScratchScope scope(exec.scratch);
  const Multiplier& multiplier = multiplier_for(kernels, product.x.dtype, product.x.grid, product.w, rows);
  const int64_t threads = exec.pool.threads();
  const int64_t panels = (product.outputs + kPanel - 1) / kPanel;
  const int64_t together = panels_together(panels * product.groups, rows, exec.pool.threads());
  const int64_t tile_values = together * rows * kPanel;
  const int64_t packed_bytes = multiplier.packed_bytes(rows, product.w.columns);
  std::byte* packed = exec.scratch.take_bytes(packed_bytes * product.groups);
  float* tiles = exec.scratch.take<float>(threads * tile_values);
  const int64_t units = (rows + kPackUnit - 1) / kPackUnit;
  exec.pool.parallel_for(units * product.groups, product.groups * 2, [&](int64_t begin, int64_t end, int) {
    for (int64_t at = begin; at < end; ++at) {
      PackArgs pack = pack_args(product, at / units, first_row, rows);
      pack.packed = packed + at / units * packed_bytes;
      pack.begin = at % units * kPackUnit;
      pack.end = std::min(pack.begin + kPackUnit, rows);
      multiplier.pack(pack);
    }
  });
  const int64_t steps = (panels + together - 1) / together;
  exec.pool.parallel_for(steps * product.groups, 1, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t at = begin; at < end; ++at) {
      const int64_t group = at / steps;
      const int64_t panel = at % steps * together;
      MultiplyArgs multiply;
      multiply.w = ops::weight_rows(product.w, (product.first_group + group) * product.outputs, product.outputs);
      multiply.first = panel * kPanel;
      multiply.packed = packed + group * packed_bytes;
      multiply.count = rows;
      multiply.tile = tiles + worker * tile_values;
      multiply.panels = std::min(together, panels - panel);
      multiply_and_store(kernels, multiplier, multiply, store_args(product, multiply, group, first_row));
    }
  });
}

}  // namespace

int64_t linear_scratch_bytes(const ops::ScratchBounds& bounds) noexcept {
  using ops::ref::taken_bytes;
  const int64_t chunk = std::min(bounds.tokens, kChunkRows);
  const int64_t groups = packed_bound(std::min(bounds.tokens, kFewRows), bounds.grouped_columns);
  return taken_bytes<std::byte>(std::max(packed_bound(chunk, bounds.columns), groups)) +
         taken_bytes<float>(bounds.threads * most_tile_values(chunk));
}

void linear(const Kernels& kernels, const ops::LinearArgs& args, ops::Exec& exec) {
  const Product product{args.x, args.w, args.y, args.w.rows};
  for (int64_t first = 0; first < args.x.rows; first += kChunkRows) {
    multiply_rows(kernels, product, first, std::min(kChunkRows, args.x.rows - first), exec);
  }
}

// A few rows take all groups at once; packed, many rows of one group are as much as a cache holds.
void grouped_linear(const Kernels& kernels, const ops::GroupedLinearArgs& args, ops::Exec& exec) {
  const bool are_whole_blocks = args.w.columns % kBlock == 0;  // else packed groups need more room than the row
  const int64_t together = args.x.rows <= kFewRows && are_whole_blocks ? args.groups : 1;
  for (int64_t group = 0; group < args.groups; group += together) {
    const Product product{args.x, args.w, args.y, args.w.rows / args.groups, group, together};
    for (int64_t first = 0; first < args.x.rows; first += kChunkRows) {
      multiply_rows(kernels, product, first, std::min(kChunkRows, args.x.rows - first), exec);
    }
  }
}

void quantize_mxfp8(const Kernels& kernels, const ops::QuantizeMxfp8Args& args, ops::Exec& exec) {
  exec.pool.parallel_for(args.x.rows, row_grain(args.x.columns), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      QuantizeArgs row;
      row.x = static_cast<const std::byte*>(args.x.data) + t * args.x.stride * dtype_bytes(args.x.dtype);
      row.y = static_cast<std::byte*>(args.y.data) + t * args.y.stride * dtype_bytes(args.y.dtype);
      row.columns = args.x.columns;
      row.x_is_f32 = args.x.dtype == DType::kF32;
      row.y_is_f32 = args.y.dtype == DType::kF32;
      kernels.quantize(row);
    }
  });
}

}  // namespace ps::cpu
