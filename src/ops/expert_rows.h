// The rows that each expert of a moe call computes, sorted by expert: for every backend that runs on the host.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/buffer.h"
#include "base/macros.h"
#include "ops/moe.h"

namespace ps::ops {

// The rows of expert e, ascending, are [start[e], start[e + 1]) of row and weight. Behind them, as the rows of expert
// E, every row once, for the shared expert, without weights.
struct ExpertRows {
  int64_t* start;  // [E + 2]
  int32_t* row;    // [T * (top_k + 1)]
  float* weight;   // [T * top_k]
};

[[nodiscard]] inline ExpertRows sort_by_expert(const MoeArgs& args, Arena& scratch) {
  const int64_t experts = args.expert_count;
  const int64_t tokens = args.x.rows;
  const int64_t pairs = tokens * args.top_k;
  const ExpertRows sorted{scratch.take<int64_t>(experts + 2), scratch.take<int32_t>(pairs + tokens),
                          scratch.take<float>(pairs)};
  int64_t* next = scratch.take<int64_t>(experts);
  std::fill(sorted.start, sorted.start + experts + 2, 0);
  for (int64_t pair = 0; pair < pairs; ++pair) {
    PS_DCHECK(args.ids[pair] >= 0 && args.ids[pair] < experts, args.ids[pair], experts);
    ++sorted.start[args.ids[pair] + 1];
  }
  for (int64_t e = 0; e < experts; ++e) {
    sorted.start[e + 1] += sorted.start[e];
    next[e] = sorted.start[e];
  }
  for (int64_t pair = 0; pair < pairs; ++pair) {
    const int64_t at = next[args.ids[pair]]++;
    sorted.row[at] = static_cast<int32_t>(pair / args.top_k);
    sorted.weight[at] = args.weights[pair];
  }
  for (int64_t t = 0; t < tokens; ++t) sorted.row[pairs + t] = static_cast<int32_t>(t);
  sorted.start[experts + 1] = pairs + tokens;
  return sorted;
}

// Bytes that sort_by_expert takes.
[[nodiscard]] constexpr int64_t expert_rows_bytes(int64_t tokens, int64_t experts, int64_t top_k) noexcept {
  constexpr int64_t kSlack = 4 * Arena::kAlignment;
  return (2 * experts + 2) * int64_t{sizeof(int64_t)} + tokens * (top_k + 1) * int64_t{sizeof(int32_t)} +
         tokens * top_k * int64_t{sizeof(float)} + kSlack;
}

}  // namespace ps::ops
