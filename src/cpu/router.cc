// The router. Kernels bound the rank of every expert; only those whose upper bound reaches the top_k-th lower bound can
// be picked, mostly no more than top_k, and only they are scored exactly.
#include <algorithm>

#include "cpu/drivers.h"
#include "cpu/row_views.h"
#include "ops/expert_scores.h"
#include "ops/ref_scratch.h"

namespace ps::cpu {
namespace {

using ops::ref::taken_bytes;

struct Contender {
  int32_t id;
  float score;
  float rank;
  bool is_picked;
};

// One thread's room.
struct Workspace {
  float* lower;           // [E]
  float* upper;           // [E]
  float* largest;         // [top_k]
  Contender* contenders;  // [E]
};

// The count-th largest of `size` values. REQUIRES: no NaN, 1 <= count <= size.
float nth_largest(const float* values, int64_t size, float* largest, int64_t count) noexcept {
  int64_t kept = 0;
  for (int64_t i = 0; i < size; ++i) {
    if (kept == count && !(values[i] > largest[count - 1])) continue;
    int64_t at = kept < count ? kept++ : count - 1;
    for (; at > 0 && largest[at - 1] < values[i]; --at) largest[at] = largest[at - 1];
    largest[at] = values[i];
  }
  return largest[count - 1];
}

// The exact scores of the experts that may be picked, ascending; how many.
int64_t find_contenders(const Kernels& kernels, const ops::RouterArgs& args, int64_t t,
                        const Workspace& work) noexcept {
  const int64_t experts = args.logits.columns;
  const bool is_image = args.is_image != nullptr && args.is_image[t] != 0;
  const ops::Vector& bias = is_image ? args.bias_image : args.bias;
  kernels.rows.bound_experts({row_of(args.logits, t), row_of(bias), experts, work.lower, work.upper});
  const float least = nth_largest(work.lower, experts, work.largest, args.top_k);
  int64_t count = 0;
  for (int64_t e = 0; e < experts; ++e) {
    if (work.upper[e] < least) continue;
    const float score = ops::expert_score(load(args.logits, t, e));
    work.contenders[count++] = {static_cast<int32_t>(e), score, ops::expert_rank(score, load(bias, e)), false};
  }
  return count;
}

void route(const Kernels& kernels, const ops::RouterArgs& args, int64_t t, const Workspace& work) noexcept {
  const int64_t count = find_contenders(kernels, args, t, work);
  Contender* const begin = work.contenders;
  Contender* const end = begin + count;
  for (int32_t pick = 0; pick < args.top_k; ++pick) {
    Contender* best = nullptr;
    for (Contender* c = begin; c != end; ++c) {
      if (!c->is_picked && (best == nullptr || c->rank > best->rank)) best = c;
    }
    best->is_picked = true;
  }
  float total = 0.0f;
  for (const Contender* c = begin; c != end; ++c) {
    if (c->is_picked) total += c->score;
  }
  int64_t at = t * args.top_k;
  for (const Contender* c = begin; c != end; ++c) {
    if (!c->is_picked) continue;
    args.ids[at] = c->id;
    args.weights[at] = ops::expert_weight(c->score, total, args.scaling);
    ++at;
  }
}

}  // namespace

int64_t router_scratch_bytes(const ops::ScratchBounds& bounds) noexcept {
  const int64_t values = int64_t{bounds.threads} * bounds.experts;
  return taken_bytes<float>(values) * 2 + taken_bytes<float>(bounds.threads * bounds.experts_per_token) +
         taken_bytes<Contender>(values);
}

void router(const Kernels& kernels, const ops::RouterArgs& args, ops::Exec& exec) {
  const ops::ScratchScope scope(exec.scratch);
  const int64_t experts = args.logits.columns;
  const int64_t values = exec.pool.threads() * experts;
  const Workspace all{exec.scratch.take<float>(values), exec.scratch.take<float>(values),
                      exec.scratch.take<float>(exec.pool.threads() * int64_t{args.top_k}),
                      exec.scratch.take<Contender>(values)};
  exec.pool.parallel_for(args.logits.rows, row_grain(4 * experts), [&](int64_t begin, int64_t end, int worker) {
    const Workspace work{all.lower + worker * experts, all.upper + worker * experts,
                         all.largest + worker * int64_t{args.top_k}, all.contenders + worker * experts};
    for (int64_t t = begin; t < end; ++t) route(kernels, args, t, work);
  });
}

}  // namespace ps::cpu
