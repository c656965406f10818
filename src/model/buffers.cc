#include "model/buffers.h"

#include <numeric>

#include "ops/hyper_connection.h"

namespace ps::model {

std::byte* Placer::piece(int64_t size_bytes) {
  total_ += (size_bytes + Arena::kAlignment - 1) / Arena::kAlignment * Arena::kAlignment;
  return arena_ != nullptr ? arena_->take_bytes(size_bytes) : nullptr;
}

ops::Activations Placer::matrix(DType dtype, int64_t rows, int64_t columns) {
  return {piece(rows * columns * dtype_bytes(dtype)), dtype, ops::Grid::kNone, rows, columns, columns};
}

Buffers lay_out(Placer& placer, const Dimensions& d, DType act, int64_t tokens, int64_t logit_rows) {
  const auto matrix = [&](int64_t columns, DType dtype) { return placer.matrix(dtype, tokens, columns); };
  Buffers b;
  b.h = matrix(ops::kStreams * d.hidden, act);
  b.x = matrix(d.hidden, act);
  b.x_mx = matrix(d.hidden, act);
  b.y = matrix(d.hidden, act);
  b.pre[0] = placer.array<float>(tokens * ops::kStreams);
  b.pre[1] = placer.array<float>(tokens * ops::kStreams);
  b.post = placer.array<float>(tokens * ops::kStreams);
  b.combine = placer.array<float>(tokens * ops::kStreams * ops::kStreams);
  b.is_image = placer.array<uint8_t>(tokens);

  b.qr = matrix(d.q_rank, act);
  b.qr_mx = matrix(d.q_rank, act);
  b.kv = matrix(d.head_dim, act);
  b.all_rows = placer.array<int32_t>(tokens);
  if (b.all_rows != nullptr) std::iota(b.all_rows, b.all_rows + tokens, 0);

  b.selected = placer.array<int32_t>(tokens * d.top_k);
  b.candidates = placer.array<int32_t>(tokens * d.candidate_blocks);

  b.router_logits = matrix(d.experts, DType::kF32);
  b.expert_ids = placer.array<int32_t>(tokens * d.experts_per_token);
  b.expert_weights = placer.array<float>(tokens * d.experts_per_token);

  const int64_t rows = std::min(tokens, kBlockRows);
  const auto attention = [&] {
    b.q = placer.matrix(act, rows, d.heads * d.head_dim);
    b.o = placer.matrix(act, rows, d.heads * d.head_dim);
    b.o_low = placer.matrix(act, rows, d.o_groups * d.o_rank);
    b.o_low_mx = placer.matrix(act, rows, d.o_groups * d.o_rank);
  };
  const auto engram = [&] {
    b.engram_e = placer.matrix(act, rows, d.engram_columns * d.engram_dim);
    b.engram_e_mx = placer.matrix(act, rows, d.engram_columns * d.engram_dim);
    b.engram_u = placer.matrix(act, rows, d.engram_columns > 0 ? (ops::kStreams + 1) * d.hidden : 0);
  };
  const auto compressor = [&] {
    b.pool_kv = matrix(d.head_dim, DType::kF32);
    b.pool_score = matrix(d.head_dim, DType::kF32);
    b.latent = matrix(d.head_dim, act);
    b.index_key = matrix(d.index_dim, act);
  };
  const auto selection = [&] {
    b.index_q = matrix(d.index_heads * d.index_dim, act);
    b.index_w = matrix(d.index_heads, act);
  };
  placer.share(attention, engram, compressor, selection, [&] { b.last = placer.matrix(act, logit_rows, d.hidden); });
  return b;
}

}  // namespace ps::model
