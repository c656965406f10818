// Sparse attention with a sink over a window and selected compressed rows, and the window ring's writer.
// model.md 2.5; runtime.md 4.2, 5.
#pragma once

#include "base/status.h"
#include "ops/batch.h"
#include "ops/cache_views.h"
#include "ops/exec.h"
#include "ops/views.h"

namespace ps::ops {

// Keys and values are one vector. The keys of a query at position t, in this order:
//   window positions [max(t - window + 1, window_start, 0), t], oldest first: with f the request's first position in
//   this forward, a query at or above cached_until reads those below max(f, cached_until) from the ring and the others
//   from kv; a query below cached_until is a recomputed one, whose older rows the ring may have lost: it sees nothing
//   below f, and reads kv alone;
//   then the selected rows of the main plane, ascending.
// In blocks of 64 keys: s = dot(q, k) * scale (canonical dot), m' = max(m, max s), a = exp(m - m'), p = exp(s - m'),
//   den = den * a + lane16_sum(p over the block padded to 64), P = p rounded to the compute dtype,
//   acc = acc * a, then for each 32 keys of the block that holds a key: acc = acc + (e + o), the even and odd fma
//   chains of P * v, padded with zeros.
// m starts at -1e30. At the end den += exp(sink - m) and o = acc / den. A query without a key gives 0, and so does a
// padding query.
struct SparseAttentionArgs {
  ConstActivations q;                   // [R, H * dim]
  ConstActivations kv;                  // [T, dim] this forward's window rows, on the MXFP8 grid
  const Batch* batch = nullptr;         // of kv's rows
  const int32_t* query_rows = nullptr;  // [R] row of the batch of each query, -1 = padding; null: R == T, all rows
  WindowRing ring;
  MainPlane plane;                    // base nullptr for a WINDOW layer
  const int32_t* selected = nullptr;  // [T, top_k] rows of the plane, ascending, -1 tail; null for a WINDOW layer
  int32_t top_k = 0;
  Vector sink;      // [H]
  float scale = 0;  // dim^-0.5
  int32_t heads = 0;
  int32_t window = 0;
  Activations o;  // [R, H * dim]
};
[[nodiscard]] Status check(const SparseAttentionArgs& args);

// Stores the last min(rows, ring_slots) rows of each request at position mod ring_slots, except positions below
// cached_until.
// REQUIRES: runs after the attention that still reads the old rows.
struct WindowWriteArgs {
  ConstActivations kv;  // [T, dim], on the MXFP8 grid
  const Batch* batch = nullptr;
  WindowRing ring;
};
[[nodiscard]] Status check(const WindowWriteArgs& args);

namespace ref {
void sparse_attention(const SparseAttentionArgs& args, Exec& exec);
void window_write(const WindowWriteArgs& args, Exec& exec);
}  // namespace ref

}  // namespace ps::ops
