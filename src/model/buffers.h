// The activation buffers of one forward, laid out once from the arena. The same code counts and places, so the
// planner's number cannot drift from what a forward takes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/buffer.h"
#include "model/dimensions.h"
#include "ops/views.h"

namespace ps::model {

// Takes pieces of an arena, or, without one, only adds up what they would take.
class Placer {
 public:
  explicit Placer(Arena* arena) noexcept : arena_(arena) {}

  // [rows, columns] of dtype, dense.
  [[nodiscard]] ops::Activations matrix(DType dtype, int64_t rows, int64_t columns);
  template <typename T>
  [[nodiscard]] T* array(int64_t count) {
    return reinterpret_cast<T*>(piece(count * static_cast<int64_t>(sizeof(T))));
  }
  // What each of `alternatives` places begins at the same byte: of them only one is alive at a time.
  template <typename... Alternatives>
  void share(const Alternatives&... alternatives) {
    const int64_t start = total_;
    const int64_t mark = arena_ != nullptr ? arena_->mark() : 0;
    int64_t most = 0;
    (..., [&] {
      alternatives();
      most = std::max(most, total_ - start);
      total_ = start;
      if (arena_ != nullptr) arena_->release(mark);
    }());
    (void)piece(most);
  }
  [[nodiscard]] int64_t total_bytes() const noexcept { return total_; }

 private:
  std::byte* piece(int64_t size_bytes);
  Arena* arena_;
  int64_t total_ = 0;
};

// The widest buffers, queries and outputs of all heads and Engram's products, hold this many rows at most: their
// sub-layers run in blocks of rows, and an observer sees them block by block. No larger, so that a step of many rows
// stays small; no smaller, since each block decodes the weights anew.
inline constexpr int64_t kBlockRows = 1024;

// T rows of a forward, R rows with logits, B = min(T, kBlockRows) rows of a block. "act" is the compute dtype. The
// grid of an *_mx buffer is kMxfp8 while it holds what its source does, and kNone once the source is written again.
struct Buffers {
  ops::Activations h;     // [T, 4 D] act: the residual streams
  ops::Activations x;     // [T, D] act: a sub-layer's normed input
  ops::Activations x_mx;  // [T, D] act: the same on the MXFP8 grid
  ops::Activations y;     // [T, D] act: a sub-layer's output
  float* pre[2];          // [T, 4]: the mix that feeds the next sub-layer, and the one being made
  float* post;            // [T, 4]
  float* combine;         // [T, 4, 4]

  uint8_t* is_image;  // [T]

  ops::Activations qr;        // [T, q_rank] act
  ops::Activations qr_mx;     // [T, q_rank] act
  ops::Activations q;         // [B, H head_dim] act
  ops::Activations kv;        // [T, head_dim] act: window rows
  ops::Activations o;         // [B, H head_dim] act
  ops::Activations o_low;     // [B, o_groups o_rank] act
  ops::Activations o_low_mx;  // the same on the MXFP8 grid
  int32_t* all_rows;          // [T] 0, 1, 2, ...

  ops::Activations pool_kv;     // [T, head_dim] F32
  ops::Activations pool_score;  // [T, head_dim] F32
  ops::Activations latent;      // [T, head_dim] act
  ops::Activations index_key;   // [T, index_dim] act
  ops::Activations index_q;     // [T, index_heads index_dim] act
  ops::Activations index_w;     // [T, index_heads] act
  int32_t* selected;            // [T, top_k] of the latest index source
  int32_t* candidates;          // [T, candidate_blocks] of the candidate source

  ops::Activations router_logits;  // [T, E] F32
  int32_t* expert_ids;             // [T, experts_per_token]
  float* expert_weights;           // [T, experts_per_token]

  ops::Activations engram_e;     // [B, columns dim] act
  ops::Activations engram_e_mx;  // the same on the MXFP8 grid
  ops::Activations engram_u;     // [B, 5 D] act

  ops::Activations last;  // [R, D] act: collapsed rows before the head

  // The buffers with one row per running row; those of compressed groups, of blocks and of wanted logits have counts of
  // their own.
  [[nodiscard]] std::array<ops::Activations*, 12> per_row() noexcept {
    return {&h, &x, &x_mx, &y, &qr, &qr_mx, &kv, &pool_kv, &pool_score, &index_q, &index_w, &router_logits};
  }
};

// Rows [first, first + count) of `all`.
[[nodiscard]] inline ops::Activations block_of(ops::Activations all, int64_t first, int64_t count) noexcept {
  all.data = static_cast<std::byte*>(all.data) + first * all.stride * dtype_bytes(all.dtype);
  all.rows = count;
  return all;
}

[[nodiscard]] Buffers lay_out(Placer& placer, const Dimensions& dims, DType act, int64_t tokens, int64_t logit_rows);

}  // namespace ps::model
