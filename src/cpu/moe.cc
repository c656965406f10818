// The experts: the (row, expert) pairs are sorted by expert and taken in segments, several experts together, so that a
// step costs two fork/joins for each kGroupRows pairs whatever the number of experts. The first one cuts experts x
// panels of W1 and W3 and leaves t packed for W2; the second one cuts panels of W2, and a thread adds a panel's experts
// in ascending order.
#include <algorithm>

#include "base/macros.h"
#include "cpu/drivers.h"
#include "ops/expert_rows.h"
#include "ops/ref_scratch.h"

namespace ps::cpu {
namespace {

using ops::ref::taken_bytes;

constexpr int64_t kGroupRows = 1024;   // pairs that are packed at a time
constexpr int64_t kSegmentRows = 512;  // of one expert, at most: their sums and a chunk of them fit the second cache

// Rows of one expert in the current group.
struct Segment {
  const ops::Expert* expert = nullptr;
  const Multiplier* up = nullptr;    // of W1 and W3
  const Multiplier* down = nullptr;  // of W2
  const ops::ConstActivations* x = nullptr;
  const int32_t* rows = nullptr;   // of x and of y
  const float* weights = nullptr;  // nullptr: 1
  int64_t count = 0;
  std::byte* packed_x = nullptr;
  std::byte* packed_t = nullptr;
  int64_t first_step = 0;  // of W1, counted over the group
};

// Room for one group.
struct Group {
  Segment* segments;
  int64_t count;
  int64_t rows;
  std::byte* packed;    // x and t of all segments
  float* tiles;         // [threads], tile_values each
  int64_t tile_values;  // two tiles of a step
  float* total;         // [T][D]
  int64_t panels = 1;   // of a step
};

// One thread's room.
struct Room {
  float* gate;
  float* up;
};
Room room_of(const Group& group, int worker) noexcept {
  float* tile = group.tiles + worker * group.tile_values;
  return {tile, tile + group.tile_values / 2};
}

int64_t panels_of(const ops::Weight& w) noexcept { return (w.rows + kPanel - 1) / kPanel; }

// Packs x of every segment and lays out the room for t. Returns the steps over W1.
int64_t prepare(const Kernels& kernels, const ops::MoeArgs& args, Group& group, ops::Exec& exec) {
  std::byte* room = group.packed;
  int64_t steps = 0;
  const auto take = [&room](int64_t size) {
    std::byte* taken = room;
    room += taken_bytes<std::byte>(size);
    return taken;
  };
  for (int64_t s = 0; s < group.count; ++s) {
    Segment& segment = group.segments[s];
    const ops::Expert& expert = *segment.expert;
    segment.up = &multiplier_for(kernels, args.x.dtype, segment.x->grid, expert.w1, segment.count);
    // W1 and W3 share packed rows, so they share a layout.
    if (segment.up != &multiplier_for(kernels, args.x.dtype, segment.x->grid, expert.w3, segment.count))
      segment.up = &kernels.exact;
    segment.down = &multiplier_for(kernels, args.y.dtype, ops::Grid::kMxfp8, expert.w2, segment.count);
    segment.packed_x = take(segment.up->packed_bytes(segment.count, expert.w1.columns));
    segment.packed_t = take(segment.down->packed_bytes(segment.count, expert.w2.columns));
    segment.first_step = steps;
    steps += (panels_of(expert.w1) + group.panels - 1) / group.panels;
  }
  exec.pool.parallel_for(group.count, group.rows < 32 ? group.count : 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t s = begin; s < end; ++s) {
      const Segment& segment = group.segments[s];
      PackArgs pack;
      pack.x = segment.x->data;
      pack.is_f32 = segment.x->dtype == DType::kF32;
      pack.stride = segment.x->stride;
      pack.columns = segment.expert->w1.columns;
      pack.rows = segment.rows;
      pack.count = pack.end = segment.count;
      pack.packed = segment.packed_x;
      segment.up->pack(pack);
    }
  });
  return steps;
}

// Some panels of W1 and W3 of a segment, and t as blocks `first` .. of W2's input.
void gate_and_up(const Kernels& kernels, const ops::MoeArgs& args, const Segment& segment, int64_t first,
                 int64_t panels, const Room& room) {
  const ops::Expert& expert = *segment.expert;
  MultiplyArgs multiply{expert.w1, first * kPanel, segment.packed_x, segment.count, room.gate, panels};
  segment.up->multiply(multiply);
  multiply.w = expert.w3;
  multiply.tile = room.up;
  segment.up->multiply(multiply);
  for (int64_t p = 0; p < panels; ++p) {
    const int64_t tile = p * segment.count * kPanel;
    ActivateArgs activate;
    activate.gate = room.gate + tile;
    activate.up = room.up + tile;
    activate.weight = segment.weights;
    activate.count = segment.count;
    activate.outputs = std::min(kPanel, expert.w1.rows - (first + p) * kPanel);
    activate.limit = args.limit;
    activate.round = args.y.dtype != DType::kF32;
    activate.quantize = ops::is_quantized(expert.w2.format);
    kernels.activate(activate);
    segment.down->pack_tile(room.gate + tile, segment.count, expert.w2.columns, first + p, segment.packed_t);
  }
}

// Adds some panels of outputs of every segment.
void down(const Kernels& kernels, const ops::MoeArgs& args, const Group& group, int64_t first, int64_t panels,
          const Room& room) {
  for (int64_t s = 0; s < group.count; ++s) {
    const Segment& segment = group.segments[s];
    segment.down->multiply({segment.expert->w2, first * kPanel, segment.packed_t, segment.count, room.gate, panels});
    for (int64_t p = 0; p < panels; ++p) {
      const int64_t n = (first + p) * kPanel;
      AddArgs add;
      add.tile = room.gate + p * segment.count * kPanel;
      add.count = segment.count;
      add.outputs = std::min(kPanel, args.y.columns - n);
      add.total = group.total + n;
      add.stride = args.y.columns;
      add.rows = segment.rows;
      add.round = args.y.dtype != DType::kF32;
      kernels.add(add);
    }
  }
}

void run_group(const Kernels& kernels, const ops::MoeArgs& args, Group& group, ops::Exec& exec) {
  if (group.count == 0) return;
  const int threads = exec.pool.threads();
  int64_t most_rows = 0;
  int64_t panels = 0;
  for (int64_t s = 0; s < group.count; ++s) {
    most_rows = std::max(most_rows, group.segments[s].count);
    panels += panels_of(group.segments[s].expert->w1);
  }
  group.panels = panels_together(panels, most_rows, threads);
  const int64_t steps = prepare(kernels, args, group, exec);
  exec.pool.parallel_for(steps, 1, [&](int64_t begin, int64_t end, int worker) {
    const Room room = room_of(group, worker);
    int64_t s = 0;
    for (int64_t at = begin; at < end; ++at) {
      while (s + 1 < group.count && group.segments[s + 1].first_step <= at) ++s;
      const Segment& segment = group.segments[s];
      const int64_t first = (at - segment.first_step) * group.panels;
      gate_and_up(kernels, args, segment, first, std::min(group.panels, panels_of(segment.expert->w1) - first), room);
    }
  });
  const int64_t outputs = (args.y.columns + kPanel - 1) / kPanel;
  const int64_t together = panels_together(outputs, most_rows, threads);
  exec.pool.parallel_for((outputs + together - 1) / together, 1, [&](int64_t begin, int64_t end, int worker) {
    const Room room = room_of(group, worker);
    for (int64_t step = begin; step < end; ++step) {
      const int64_t first = step * together;
      down(kernels, args, group, first, std::min(together, outputs - first), room);
    }
  });
  group.count = 0;
  group.rows = 0;
}

// Rows of the next segment of an expert with `rows` of them: equal parts, in whole pairs of tiles.
int64_t segment_rows(int64_t rows) noexcept {
  constexpr int64_t kUnit = 2 * kPackUnit;
  const int64_t parts = (rows + kSegmentRows - 1) / kSegmentRows;
  return std::min(rows, ((rows + parts - 1) / parts + kUnit - 1) / kUnit * kUnit);
}

// Pairs of one group, and its segments, at most.
int64_t group_rows(int64_t pairs) noexcept { return std::min(pairs, kGroupRows); }

// Two tiles of a step over at most `rows` rows.
int64_t tile_values(int64_t rows) noexcept { return 2 * most_tile_values(rows); }

// Packed x and t of any `rows` rows of `segments` segments, each rounded up.
int64_t group_bytes(int64_t rows, int64_t segments, int64_t columns, int64_t intermediate) noexcept {
  return packed_bound(rows, columns) + packed_bound(rows, intermediate) + segments * 2 * Arena::kAlignment;
}

}  // namespace

int64_t moe_scratch_bytes(const ops::ScratchBounds& bounds) noexcept {
  const int64_t pairs = bounds.tokens * (bounds.experts_per_token + 1);
  const int64_t rows = group_rows(pairs);
  return ops::expert_rows_bytes(bounds.tokens, bounds.experts, bounds.experts_per_token) + taken_bytes<Segment>(rows) +
         taken_bytes<std::byte>(group_bytes(rows, rows, bounds.hidden, bounds.intermediate)) +
         taken_bytes<float>(bounds.threads * tile_values(rows)) + taken_bytes<float>(bounds.tokens * bounds.hidden);
}

void moe(const Kernels& kernels, const ops::MoeArgs& args, ops::Exec& exec) {
  const ops::ScratchScope scope(exec.scratch);
  const int64_t tokens = args.y.rows;
  const int64_t dim = args.y.columns;
  if (tokens == 0) return;
  const ops::ExpertRows assignment = ops::sort_by_expert(args, exec.scratch);
  const int64_t experts = args.expert_count;
  int64_t inner = args.shared.w1.rows;
  for (int64_t e = 0; e < experts; ++e) inner = std::max(inner, args.experts[e].w1.rows);
  const int64_t room = group_rows(tokens * (args.top_k + 1));
  Group group{exec.scratch.take<Segment>(room),
              0,
              0,
              exec.scratch.take_bytes(group_bytes(room, room, dim, inner)),
              exec.scratch.take<float>(exec.pool.threads() * tile_values(room)),
              tile_values(room),
              exec.scratch.take<float>(tokens * dim)};
  std::fill(group.total, group.total + tokens * dim, 0.0f);
  for (int64_t e = 0; e <= experts; ++e) {
    const bool is_shared = e == experts;
    int64_t first = assignment.start[e];
    while (first < assignment.start[e + 1]) {
      const int64_t count = segment_rows(assignment.start[e + 1] - first);
      if (group.rows + count > room) run_group(kernels, args, group, exec);
      Segment& segment = group.segments[group.count++];
      segment = {};
      segment.expert = is_shared ? &args.shared : &args.experts[e];
      segment.x = is_shared ? &args.x_shared : &args.x;
      segment.rows = assignment.row + first;
      segment.weights = is_shared ? nullptr : assignment.weight + first;
      segment.count = count;
      group.rows += count;
      first += count;
    }
  }
  run_group(kernels, args, group, exec);
  exec.pool.parallel_for(tokens, 16, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t n = 0; n < dim; ++n) ops::store(args.y, t, n, group.total[t * dim + n]);
    }
  });
}

}  // namespace ps::cpu
