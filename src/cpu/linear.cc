#include <algorithm>

#include "cpu/drivers.h"
#include "ops/ref_scratch.h"

namespace ps::cpu {
namespace {

constexpr int64_t kChunkRows = 1024;  // rows of x that are packed at a time

// y[t, first_output + n] = dot(columns [first_input, first_input + K) of x[t], W[n]).
void multiply_into(const Kernels& kernels, const ops::ConstActivations& x, int64_t first_input, const ops::Weight& w,
                   const ops::Activations& y, int64_t first_output, ops::Exec& exec) {
  const ops::ScratchScope scope(exec.scratch);
  const Multiplier& multiplier = multiplier_for(kernels, x.dtype, w.format);
  const int64_t chunk = std::min(x.rows, kChunkRows);
  std::byte* packed = exec.scratch.take_bytes(multiplier.packed_bytes(chunk, w.columns));
  float* tiles = exec.scratch.take<float>(exec.pool.threads() * chunk * kPanel);
  const int64_t panels = (w.rows + kPanel - 1) / kPanel;
  for (int64_t first = 0; first < x.rows; first += kChunkRows) {
    const int64_t count = std::min(kChunkRows, x.rows - first);
    PackArgs pack;
    pack.x = static_cast<const std::byte*>(x.data) + (first * x.stride + first_input) * dtype_bytes(x.dtype);
    pack.is_f32 = x.dtype == DType::kF32;
    pack.stride = x.stride;
    pack.columns = w.columns;
    pack.count = count;
    pack.packed = packed;
    exec.pool.parallel_for((count + kPackUnit - 1) / kPackUnit, 2, [&](int64_t begin, int64_t end, int) {
      PackArgs part = pack;
      part.begin = begin * kPackUnit;
      part.end = std::min(end * kPackUnit, count);
      multiplier.pack(part);
    });
    exec.pool.parallel_for(
        panels, panel_grain(panels, exec.pool.threads()), [&](int64_t begin, int64_t end, int worker) {
          float* tile = tiles + worker * chunk * kPanel;
          for (int64_t panel = begin; panel < end; ++panel) {
            const int64_t n = panel * kPanel;
            multiplier.multiply({w, n, packed, count, tile});
            StoreArgs store;
            store.tile = tile;
            store.count = count;
            store.outputs = std::min(kPanel, w.rows - n);
            store.y = static_cast<std::byte*>(y.data) + (first * y.stride + first_output + n) * dtype_bytes(y.dtype);
            store.is_f32 = y.dtype == DType::kF32;
            store.stride = y.stride;
            kernels.store(store);
          }
        });
  }
}

}  // namespace

int64_t linear_scratch_bytes(const ops::ScratchBounds& bounds) noexcept {
  const int64_t chunk = std::min(bounds.tokens, kChunkRows);
  return ops::ref::taken_bytes<std::byte>(packed_bound(chunk, bounds.columns)) +
         ops::ref::taken_bytes<float>(bounds.threads * chunk * kPanel);
}

void linear(const Kernels& kernels, const ops::LinearArgs& args, ops::Exec& exec) {
  multiply_into(kernels, args.x, 0, args.w, args.y, 0, exec);
}

void grouped_linear(const Kernels& kernels, const ops::GroupedLinearArgs& args, ops::Exec& exec) {
  const int64_t outputs = args.w.rows / args.groups;
  for (int64_t group = 0; group < args.groups; ++group) {
    multiply_into(kernels, args.x, group * args.w.columns, ops::weight_rows(args.w, group * outputs, outputs), args.y,
                  group * outputs, exec);
  }
}

void quantize_mxfp8(const Kernels& kernels, const ops::QuantizeMxfp8Args& args, ops::Exec& exec) {
  const int64_t grain = std::max<int64_t>(1, 65536 / std::max<int64_t>(1, args.x.columns));
  exec.pool.parallel_for(args.x.rows, grain, [&](int64_t begin, int64_t end, int) {
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
