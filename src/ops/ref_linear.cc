#include "ops/linear.h"

#include "base/quantize.h"
#include "ops/ref_rows.h"
#include "ops/ref_scratch.h"

namespace ps::ops::ref {
namespace {

// y[t, first_output + n] = dot(x[t], W[n]), kChunkRows rows of x at a time.
void multiply_into(const ConstActivations& x, const Weight& w, const Activations& y, int64_t first_output, Exec& exec) {
  const ScratchScope scope(exec.scratch);
  const int64_t columns = padded(x.columns);
  float* rows = exec.scratch.take<float>(std::min(x.rows, kChunkRows) * columns);
  float* panels = exec.scratch.take<float>(exec.pool.threads() * kPanelRows * columns);
  for (int64_t first = 0; first < x.rows; first += kChunkRows) {
    const int64_t count = std::min(kChunkRows, x.rows - first);
    exec.pool.parallel_for(count, 8, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) load_padded_row(x, first + t, rows + t * columns);
    });
    multiply(rows, count, w, panels, exec,
             [&](int64_t t, int64_t n, float dot) { store(y, first + t, first_output + n, dot); });
  }
}

}  // namespace

int64_t linear_scratch_bytes(const ScratchBounds& bounds) noexcept {
  const int64_t columns = padded(bounds.columns);
  return taken_bytes<float>(std::min(bounds.tokens, kChunkRows) * columns) +
         taken_bytes<float>(bounds.threads * kPanelRows * columns);
}

void linear(const LinearArgs& args, Exec& exec) { multiply_into(args.x, args.w, args.y, 0, exec); }

void grouped_linear(const GroupedLinearArgs& args, Exec& exec) {
  const int64_t outputs = args.w.rows / args.groups;
  const int64_t inputs = args.w.columns;
  for (int64_t group = 0; group < args.groups; ++group) {
    multiply_into(columns_of(args.x, group * inputs, inputs), weight_rows(args.w, group * outputs, outputs), args.y,
                  group * outputs, exec);
  }
}

void quantize_mxfp8(const QuantizeMxfp8Args& args, Exec& exec) {
  exec.pool.parallel_for(args.x.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t first = 0; first < args.x.columns; first += kMxGroup) {
        std::array<float, kMxGroup> group;
        load_values(args.x, t, first, kMxGroup, group.data());
        fake_quantize_mxfp8(group.data(), kMxGroup);
        store_values(args.y, t, first, kMxGroup, group.data());
      }
    }
  });
}

}  // namespace ps::ops::ref
