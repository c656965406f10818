// The row-wise ops: rows are cut over threads, and the few rows of a decode step, where one has much to read
// (hc_mix), over K.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/macros.h"
#include "cpu/drivers.h"
#include "cpu/row_views.h"
#include "ops/cache_rows.h"
#include "ops/hyper_connection_finish.h"
#include "ops/numerics.h"
#include "ops/ref_scratch.h"
#include "ops/rope_rotation.h"

namespace ps::cpu {
namespace {

using ops::ref::taken_bytes;

constexpr int64_t kPairValues = 64;  // values that take as long as the sine and cosine of a pair
constexpr int64_t kSplitRows = 16;   // up to here hc_mix is cut over K

// y[0, size) = x, rounded to y's dtype.
void copy_row(const Kernels& kernels, RowView x, MutableRow y, int64_t size) {
  if (x.is_f32 == y.is_f32) std::memcpy(y.data, x.data, static_cast<size_t>(size * (x.is_f32 ? 4 : 2)));
  else kernels.rows.scale({x, y, size, 1.0f});
}

float row_rms(const Kernels& kernels, const ops::HcMixArgs& args, int64_t t) {
  return kernels.rows.inverse_rms(row_of(args.h, t), args.h.columns, args.norm_eps);
}

// Coefficients of row t from its sums.
void finish_row(const ops::HcMixArgs& args, int64_t t, const float* sums, float rho) {
  std::array<float, ops::kMixes> z;
  for (size_t n = 0; n < z.size(); ++n) z[n] = sums[n] * rho;
  ops::finish_mixes(args, t, z.data());
}

MixArgs mix_args(const ops::HcMixArgs& args, int64_t first, int64_t count) {
  MixArgs mix;
  mix.fn = args.fn;
  mix.h = row_of(args.h, first);
  mix.stride = args.h.stride;
  mix.count = count;
  mix.end = (args.fn.columns + kBlock - 1) / kBlock;
  return mix;
}

// Few rows: the blocks of K are cut over threads and added up in their order by the caller. The mean squares of the
// rows are pieces of the same fork.
void mix_few(const Kernels& kernels, const ops::HcMixArgs& args, ops::Exec& exec) {
  const int64_t rows = args.h.rows;
  MixArgs whole = mix_args(args, 0, rows);
  const int64_t blocks = whole.end;
  const int64_t tile = rows * kPanel;
  whole.apart = true;
  whole.sums = exec.scratch.take<float>(blocks * tile);
  float* rho = exec.scratch.take<float>(rows);
  const int64_t size = std::max<int64_t>(8, blocks / (int64_t{exec.pool.threads()} * 4));
  exec.pool.parallel_for(rows + (blocks + size - 1) / size, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t at = begin; at < end; ++at) {
      if (at < rows) {
        rho[at] = row_rms(kernels, args, at);
        continue;
      }
      MixArgs part = whole;
      part.begin = (at - rows) * size;
      part.end = std::min(part.begin + size, blocks);
      kernels.rows.mix(part);
    }
  });
  const FlushSubnormals flush;
  for (int64_t t = 0; t < rows; ++t) {
    std::array<float, ops::kMixes> sums{};
    for (int64_t block = 0; block < blocks; ++block) {
      const float* part = whole.sums + block * tile + t * kPanel;
      for (size_t n = 0; n < sums.size(); ++n) sums[n] += part[n];
    }
    finish_row(args, t, sums.data(), rho[t]);
  }
}

void mix_many(const Kernels& kernels, const ops::HcMixArgs& args, ops::Exec& exec) {
  const int64_t threads = exec.pool.threads();
  float* tiles = exec.scratch.take<float>(threads * kMixRows * kPanel);
  const int64_t pieces = (args.h.rows + threads * kMixRows - 1) / (threads * kMixRows) * threads;
  const int64_t rows = (args.h.rows + pieces - 1) / pieces;
  exec.pool.parallel_for(args.h.rows, rows, [&](int64_t begin, int64_t end, int worker) {
    MixArgs mix = mix_args(args, begin, end - begin);
    mix.sums = tiles + worker * kMixRows * kPanel;
    kernels.rows.mix(mix);
    for (int64_t t = begin; t < end; ++t) {
      finish_row(args, t, mix.sums + (t - begin) * kPanel, row_rms(kernels, args, t));
    }
  });
}

// sigmoid(copysign(sqrt(max(|dot|, 1e-6)), dot)); the sign of a zero counts.
float gate(float dot) noexcept { return ops::sigmoid(std::copysign(std::sqrt(std::max(std::fabs(dot), 1e-6f)), dot)); }

void mix_stream(const Kernels& kernels, const ops::EngramMixArgs& args, int64_t t, int64_t stream) {
  const int64_t dim = args.q_weight.columns;
  const MutableRow h = row_of(args.h, t, stream * dim);
  const GateSums sums = kernels.rows.gate_sums({{h.data, h.is_f32},
                                                row_of(args.u, t, stream * dim),
                                                row_of(args.q_weight, stream),
                                                row_of(args.k_weight, stream),
                                                dim});
  const auto size = static_cast<float>(dim);
  const float rho = (1.0f / std::sqrt(sums.h / size + args.eps)) * (1.0f / std::sqrt(sums.key / size + args.eps));
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)));
  const float gamma = gate(sums.dot * rho * scale);
  kernels.rows.add_scaled({h, row_of(args.u, t, ops::kStreams * dim), gamma, dim});
}

}  // namespace

int64_t rows_scratch_bytes(const ops::ScratchBounds& bounds) noexcept {
  const int64_t blocks = (ops::kStreams * bounds.columns + kBlock - 1) / kBlock;
  const int64_t few = taken_bytes<float>(blocks * std::min(bounds.tokens, kSplitRows) * kPanel);
  return std::max(few + taken_bytes<float>(kSplitRows), taken_bytes<float>(bounds.threads * kMixRows * kPanel)) +
         taken_bytes<float>(bounds.threads * 4 * bounds.columns);
}

void embed(const Kernels& kernels, const ops::EmbedArgs& args, ops::Exec& exec) {
  const int64_t dim = args.w.columns;
  exec.pool.parallel_for(args.h.rows, row_grain(args.h.columns), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      PS_DCHECK(args.ids[t] >= 0 && args.ids[t] < args.w.rows, args.ids[t], args.w.rows);
      for (int64_t stream = 0; stream < args.streams; ++stream) {
        copy_row(kernels, row_of(args.w, args.ids[t]), row_of(args.h, t, stream * dim), dim);
      }
    }
  });
}

void rms_norm(const Kernels& kernels, const ops::RmsNormArgs& args, ops::Exec& exec) {
  exec.pool.parallel_for(args.x.rows, row_grain(args.x.columns), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      kernels.rows.norm({row_of(args.x, t), row_of(args.w), row_of(args.y, t), args.x.columns, args.eps});
    }
  });
}

void rope(const Kernels& kernels, const ops::RopeArgs& args, ops::Exec& exec) {
  if (args.pairs == 0) return;
  const ops::ScratchScope scope(exec.scratch);
  const int64_t head_dim = args.x.columns / args.heads;
  const int64_t channels = 2 * int64_t{args.pairs};
  float* tables = exec.scratch.take<float>(exec.pool.threads() * 2 * channels);
  const int64_t work = args.heads * channels + args.pairs * kPairValues;
  exec.pool.parallel_for(args.x.rows, row_grain(work), [&](int64_t begin, int64_t end, int worker) {
    float* first = tables + worker * 2 * channels;
    float* second = first + channels;
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t pair = 0; pair < args.pairs; ++pair) {
        const auto [cosine, sine] = ops::rotation(args.positions[t], args.inverse_frequency[pair], args.inverse);
        first[2 * pair] = cosine;
        first[2 * pair + 1] = sine;
        second[2 * pair] = -sine;
        second[2 * pair + 1] = cosine;
      }
      kernels.rows.rotate({row_of(args.x, t, head_dim - channels), args.heads, head_dim, channels, first, second});
    }
  });
}

void scale(const Kernels& kernels, const ops::ScaleArgs& args, ops::Exec& exec) {
  exec.pool.parallel_for(args.x.rows, row_grain(args.x.columns), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      kernels.rows.scale({row_of(args.x, t), row_of(args.y, t), args.x.columns, args.factor});
    }
  });
}

void hc_mix(const Kernels& kernels, const ops::HcMixArgs& args, ops::Exec& exec) {
  const ops::ScratchScope scope(exec.scratch);
  if (args.h.rows <= kSplitRows) mix_few(kernels, args, exec);
  else mix_many(kernels, args, exec);
}

void hc_collapse(const Kernels& kernels, const ops::HcCollapseArgs& args, ops::Exec& exec) {
  exec.pool.parallel_for(args.x.rows, row_grain(args.h.columns), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t t = args.rows != nullptr ? args.rows[r] : r;
      kernels.rows.collapse({row_of(args.h, t), args.pre + t * ops::kStreams, row_of(args.x, r), args.x.columns});
    }
  });
}

void hc_expand(const Kernels& kernels, const ops::HcExpandArgs& args, ops::Exec& exec) {
  exec.pool.parallel_for(args.y.rows, row_grain(args.h.columns), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      kernels.rows.expand({row_of(args.y, t), args.post + t * ops::kStreams,
                           args.combine + t * ops::kStreams * ops::kStreams, row_of(args.h, t), args.y.columns});
    }
  });
}

void engram_gather(const Kernels& kernels, const ops::EngramGatherArgs& args, ops::Exec& exec) {
  const ops::EngramTable& table = args.table;
  const int64_t dim = table.dim;
  // Table rows lie anywhere on disk: every one is a piece, so that many page faults go on at once.
  exec.pool.parallel_for(args.e.rows * args.columns, 4, [&](int64_t begin, int64_t end, int) {
    for (int64_t at = begin; at < end; ++at) {
      const int64_t id = args.row_ids[at];
      PS_DCHECK(id >= 0 && id < table.rows, id, table.rows);
      const MutableRow e = row_of(args.e, at / args.columns, at % args.columns * dim);
      if (table.dtype == DType::kF8E4M3) {
        kernels.rows.decode_row({table.data + id * dim, table.scale + id * (dim / kBlock), dim, e});
      } else {
        const bool is_f32 = table.dtype == DType::kF32;
        copy_row(kernels, {table.data + id * dim * (is_f32 ? 4 : 2), is_f32}, e, dim);
      }
    }
  });
}

void engram_mix(const Kernels& kernels, const ops::EngramMixArgs& args, ops::Exec& exec) {
  exec.pool.parallel_for(args.h.rows * ops::kStreams, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t at = begin; at < end; ++at) {
      const int64_t t = at / ops::kStreams;
      if (args.alive == nullptr || args.alive[t] != 0) mix_stream(kernels, args, t, at % ops::kStreams);
    }
  });
}

void index_query_quantize(const Kernels& kernels, const ops::IndexQueryQuantizeArgs& args, ops::Exec& exec) {
  const int64_t dim = args.q.columns / args.heads;
  exec.pool.parallel_for(args.q.rows, row_grain(args.q.columns), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      if (args.format == ops::IndexFormat::kFp4) {
        kernels.rows.quantize_mxfp4({row_of(args.q, t), args.q.columns});
        continue;
      }
      for (int64_t h = 0; h < args.heads; ++h) kernels.rows.quantize_fp8_key({row_of(args.q, t, h * dim), dim});
    }
  });
}

}  // namespace ps::cpu
