// The ops of the CPU backend other than products and attention, at the shapes of the published model, on every
// instruction set of the machine: time of a call on rows that lie in the caches, and GB/s of what the op must read and
// write.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "apps/machine_peak.h"
#include "bench/arguments.h"
#include "base/buffer.h"
#include "base/pcg64.h"
#include "cpu/table.h"

namespace {

using namespace ps;  // NOLINT(google-build-using-namespace): a program

constexpr int64_t kHidden = 5120;
constexpr int64_t kHeads = 64;
constexpr int64_t kHeadDim = 512;
constexpr int64_t kExperts = 384;
constexpr int32_t kTopK = 6;
constexpr int64_t kIndexHeads = 32;
constexpr int32_t kIndexDim = 128;
constexpr int32_t kPageRows = 256;

struct Machine {
  explicit Machine(apps::Stopwatch clock) : watch(clock), pool(clock.threads) {}
  apps::Stopwatch watch;
  ThreadPool pool;
  Arena scratch{HostBuffer::allocate(int64_t{512} << 20).value()};
};

// [rows, columns] of standard size.
struct Matrix {
  Matrix(int64_t rows, int64_t columns, DType type) : dtype(type), row_count(rows), column_count(columns) {
    bytes.resize(static_cast<size_t>(rows * columns * dtype_bytes(type)));
    Pcg64 random(7);
    for (int64_t i = 0; i < rows * columns; ++i) {
      ops::store(view(), 0, i, static_cast<float>(4.0 * random.uniform() - 2.0));
    }
  }
  ops::Activations view(ops::Grid grid = ops::Grid::kNone) {
    return {bytes.data(), dtype, grid, row_count, column_count, column_count};
  }
  ops::Vector vector() { return {bytes.data(), dtype, row_count * column_count}; }
  float* floats() { return reinterpret_cast<float*>(bytes.data()); }

  std::vector<std::byte> bytes;
  DType dtype;
  int64_t row_count;
  int64_t column_count;
};

// Up to 16 rows are one token of as many sequences, more are a prompt's; each sequence has `context` tokens before them
// and a PAGE table and a STATE slot of its own.
struct Rows {
  Rows(int64_t count, int32_t context) {
    const auto requests = static_cast<int32_t>(count <= 16 ? count : 1);
    const auto each = static_cast<int32_t>(count / requests);
    const int32_t pages = (context + each + kPageRows - 1) / kPageRows;
    for (int32_t s = 0; s < requests; ++s) {
      starts.push_back(s * each);
      slots.push_back(s);
      for (int32_t i = 0; i < pages; ++i) tables.push_back(s * pages + i);
      for (int32_t i = 0; i < each; ++i) {
        const auto row = static_cast<int32_t>(positions.size());
        groups.push_back({row, s, context + i, i == 0 ? 1 : 0});
        ring_rows.push_back({row, s, context + i});
        positions.push_back(context + i);
        owners.push_back(s);
      }
    }
    starts.push_back(requests * each);
    zeros.assign(static_cast<size_t>(requests), 0);
    page_count = requests * pages;
    batch.tokens = static_cast<int32_t>(count);
    batch.requests = requests;
    batch.positions = positions.data();
    batch.request_of_row = owners.data();
    batch.row_start = starts.data();
    batch.slots = slots.data();
    batch.block_tables = tables.data();
    batch.block_table_stride = pages;
    batch.window_start = batch.cached_until = batch.write_from = zeros.data();
  }
  [[nodiscard]] int32_t group_count() const { return static_cast<int32_t>(groups.size()); }

  ops::Batch batch;
  std::vector<int32_t> positions, owners, starts, slots, tables, zeros;
  std::vector<ops::CompressedGroup> groups;
  std::vector<ops::CompressorRingRow> ring_rows;
  int64_t page_count = 0;
};

// Bytes of a cache, zero.
struct Bytes {
  explicit Bytes(int64_t size) : buffer(HostBuffer::allocate(size).value()) {}
  HostBuffer buffer;
};

template <typename Args>
void measure(benchmark::State& state, Machine& machine, ops::Op<Args> op, const Args& args, double bytes) {
  ops::Exec exec{machine.pool, machine.scratch};
  op(args, exec);
  for (auto _ : state) {
    const double start = machine.watch.now();
    op(args, exec);
    state.SetIterationTime(machine.watch.now() - start);
  }
  state.counters["GB/s"] =
      benchmark::Counter(bytes * static_cast<double>(state.iterations()) * 1e-9, benchmark::Counter::kIsRate);
}

using Run = std::function<void(benchmark::State&, Machine&, const ops::OpTable&, int64_t rows)>;

void router(benchmark::State& state, Machine& machine, const ops::OpTable& table, int64_t rows) {
  Matrix logits(rows, kExperts, DType::kF32);
  Matrix bias(1, kExperts, DType::kF32);
  std::vector<int32_t> ids(static_cast<size_t>(rows * kTopK));
  std::vector<float> weights(ids.size());
  const ops::RouterArgs args{logits.view(), bias.vector(), {}, nullptr, kTopK, 1.5f, ids.data(), weights.data()};
  measure(state, machine, table.router, args, static_cast<double>(rows * kExperts * 4));
}

void norm(benchmark::State& state, Machine& machine, const ops::OpTable& table, int64_t rows) {
  Matrix x(rows, kHidden, DType::kBF16);
  Matrix w(1, kHidden, DType::kBF16);
  const ops::RmsNormArgs args{x.view(), w.vector(), x.view(), 1e-6f};
  measure(state, machine, table.rms_norm, args, static_cast<double>(rows * kHidden * 4));
}

void quantize(benchmark::State& state, Machine& machine, const ops::OpTable& table, int64_t rows) {
  Matrix x(rows, kHidden, DType::kBF16);
  Matrix y(rows, kHidden, DType::kBF16);
  const ops::QuantizeMxfp8Args args{x.view(), y.view(ops::Grid::kMxfp8)};
  measure(state, machine, table.quantize_mxfp8, args, static_cast<double>(rows * kHidden * 4));
}

Run rope(int64_t heads) {
  return [heads](benchmark::State& state, Machine& machine, const ops::OpTable& table, int64_t rows) {
    constexpr int32_t kPairs = 32;
    Matrix x(rows, heads * kHeadDim, DType::kBF16);
    Matrix frequency(1, kPairs, DType::kF32);
    const Rows plan(rows, 1000);
    const ops::RopeArgs args{x.view(), plan.positions.data(), frequency.floats(), static_cast<int32_t>(heads), kPairs,
                             false};
    measure(state, machine, table.rope, args, static_cast<double>(rows * heads * kPairs * 8));
  };
}

void hc_mix(benchmark::State& state, Machine& machine, const ops::OpTable& table, int64_t rows) {
  Matrix h(rows, 4 * kHidden, DType::kBF16);
  Matrix fn(24, 4 * kHidden, DType::kF32);
  Matrix base(1, 24, DType::kF32);
  Matrix scale(1, 3, DType::kF32);
  std::vector<float> out(static_cast<size_t>(rows * 24));
  const ops::Weight w{ops::WeightFormat::kF32, 24, 4 * kHidden, fn.bytes.data(), nullptr};
  const ops::HcMixArgs args{h.view(), w,  base.vector(), scale.vector(),        1e-20f,
                            1e-6f,    20, out.data(),    out.data() + rows * 4, out.data() + rows * 8};
  measure(state, machine, table.hc_mix, args, static_cast<double>(fn.bytes.size() + h.bytes.size()));
}

void hc_collapse(benchmark::State& state, Machine& machine, const ops::OpTable& table, int64_t rows) {
  Matrix h(rows, 4 * kHidden, DType::kBF16);
  Matrix pre(rows, 4, DType::kF32);
  Matrix x(rows, kHidden, DType::kBF16);
  const ops::HcCollapseArgs args{h.view(), pre.floats(), nullptr, x.view()};
  measure(state, machine, table.hc_collapse, args, static_cast<double>(rows * kHidden * 10));
}

void hc_expand(benchmark::State& state, Machine& machine, const ops::OpTable& table, int64_t rows) {
  Matrix h(rows, 4 * kHidden, DType::kBF16);
  Matrix y(rows, kHidden, DType::kBF16);
  std::vector<float> post(static_cast<size_t>(rows * 4), 0.5f);
  std::vector<float> combine(static_cast<size_t>(rows * 16), 0.25f);
  const ops::HcExpandArgs args{y.view(), post.data(), combine.data(), h.view()};
  measure(state, machine, table.hc_expand, args, static_cast<double>(rows * kHidden * 18));
}

Run window_write(ops::RowFormat format) {
  return [format](benchmark::State& state, Machine& machine, const ops::OpTable& table, int64_t rows) {
    Matrix kv(rows, kHeadDim, DType::kBF16);
    const Rows plan(rows, 1000);
    const int64_t slot = 128 * row_bytes(format, kHeadDim);
    Bytes ring(slot * plan.batch.requests);
    const ops::WindowWriteArgs args{
        kv.view(), &plan.batch, {ring.buffer.data(), slot, 128, static_cast<int32_t>(kHeadDim), format}};
    const double written = static_cast<double>(std::min<int64_t>(rows, 128)) *
                           static_cast<double>(kHeadDim * 2 + row_bytes(format, kHeadDim));
    measure(state, machine, table.window_write, args, written);
  };
}

ops::CompressorRing compressor_ring(Bytes& bytes, int64_t field) {
  return {bytes.buffer.data(), bytes.buffer.data() + field, 2 * field, 128, static_cast<int32_t>(kHeadDim)};
}

void compressor_pool(benchmark::State& state, Machine& machine, const ops::OpTable& table, int64_t rows) {
  Matrix kv(rows, kHeadDim, DType::kF32);
  Matrix score(rows, kHeadDim, DType::kF32);
  Matrix latent(rows, kHeadDim, DType::kBF16);
  const Rows plan(rows, 1000);
  constexpr int64_t kField = 128 * kHeadDim * 4;
  Bytes ring(plan.batch.requests * 2 * kField);
  const ops::CompressorPoolArgs args{kv.view(),          score.view(),       &plan.batch,
                                     plan.groups.data(), plan.group_count(), compressor_ring(ring, kField),
                                     latent.view()};
  measure(state, machine, table.compressor_pool, args, static_cast<double>(rows * kHeadDim * 18));
}

void compressor_ring_write(benchmark::State& state, Machine& machine, const ops::OpTable& table, int64_t rows) {
  Matrix kv(rows, kHeadDim, DType::kF32);
  Matrix score(rows, kHeadDim, DType::kF32);
  const Rows plan(rows, 1000);
  constexpr int64_t kField = 128 * kHeadDim * 4;
  Bytes ring(plan.batch.requests * 2 * kField);
  const auto kept = static_cast<int32_t>(std::min<int64_t>(rows, 127));
  const ops::CompressorRingWriteArgs args{
      kv.view(), score.view(), &plan.batch, plan.ring_rows.data(), kept, compressor_ring(ring, kField)};
  measure(state, machine, table.compressor_ring_write, args, static_cast<double>(kept * kHeadDim * 16));
}

Run compressed_store(ops::RowFormat format) {
  return [format](benchmark::State& state, Machine& machine, const ops::OpTable& table, int64_t rows) {
    Matrix latent(rows, kHeadDim, DType::kBF16);
    const Rows plan(rows, 1000);
    const int64_t page = kPageRows * row_bytes(format, kHeadDim);
    Bytes cache(plan.page_count * page);
    const ops::CompressedStoreArgs args{
        latent.view(),
        &plan.batch,
        plan.groups.data(),
        plan.group_count(),
        {cache.buffer.data(), page, kPageRows, 1, static_cast<int32_t>(kHeadDim), format}};
    measure(state, machine, table.compressed_store, args,
            static_cast<double>(rows * (kHeadDim * 2 + row_bytes(format, kHeadDim))));
  };
}

// Index keys of all PAGEs of the plan.
struct Keys {
  Keys(const Rows& rows, ops::IndexFormat format)
      : values(rows.page_count * kPageRows * (format == ops::IndexFormat::kFp4 ? kIndexDim / 2 : kIndexDim + 4)),
        scales(rows.page_count * kPageRows * kIndexDim / 32) {
    const bool is_fp4 = format == ops::IndexFormat::kFp4;
    plane = {values.buffer.data(), is_fp4 ? scales.buffer.data() : nullptr, kPageRows, 1, kIndexDim, format};
    if (!is_fp4) return;
    Pcg64 random(3);
    for (uint64_t& word : values.buffer.as<uint64_t>()) word = random.next64();
    for (uint8_t& scale : scales.buffer.as<uint8_t>()) scale = static_cast<uint8_t>(120 + random.integer(0, 6));
  }
  Bytes values;
  Bytes scales;
  ops::IndexPlane plane;
};

Run index_key_store(ops::IndexFormat format) {
  return [format](benchmark::State& state, Machine& machine, const ops::OpTable& table, int64_t rows) {
    Matrix key(rows, kIndexDim, DType::kBF16);
    const Rows plan(rows, 1000);
    Keys keys(plan, format);
    const ops::IndexKeyStoreArgs args{key.view(), &plan.batch, plan.groups.data(), plan.group_count(), keys.plane};
    measure(state, machine, table.index_key_store, args,
            static_cast<double>(rows * (kIndexDim * 2 + index_row_bytes(format, kIndexDim))));
  };
}

Run index_query_quantize(ops::IndexFormat format) {
  return [format](benchmark::State& state, Machine& machine, const ops::OpTable& table, int64_t rows) {
    Matrix q(rows, kIndexHeads * kIndexDim, DType::kBF16);
    const ops::IndexQueryQuantizeArgs args{q.view(), static_cast<int32_t>(kIndexHeads), format};
    measure(state, machine, table.index_query_quantize, args, static_cast<double>(q.bytes.size() * 2));
  };
}

// 32,768 tokens of context.
Run index_select(bool makes_candidates) {
  return [makes_candidates](benchmark::State& state, Machine& machine, const ops::OpTable& table, int64_t rows) {
    constexpr int32_t kSelected = 512;
    constexpr int32_t kBlocks = 2048;
    constexpr int32_t kContext = 32768;
    Matrix q(rows, kIndexHeads * kIndexDim, DType::kBF16);
    Matrix weights(rows, kIndexHeads, DType::kBF16);
    const Rows plan(rows, kContext - 1);
    const Keys keys(plan, ops::IndexFormat::kFp4);
    std::vector<int32_t> selected(static_cast<size_t>(rows * kSelected));
    std::vector<int32_t> candidates(static_cast<size_t>(rows * kBlocks));
    ops::IndexSelectArgs args;
    args.q = q.view();
    args.weights = weights.view();
    args.batch = &plan.batch;
    args.plane = keys.plane;
    args.heads = static_cast<int32_t>(kIndexHeads);
    args.top_k = kSelected;
    args.selected = selected.data();
    args.candidate_blocks = kBlocks;
    if (makes_candidates) args.candidates_out = candidates.data();
    measure(state, machine, table.index_select, args, static_cast<double>(rows * kContext * (kIndexDim / 2 + 4)));
  };
}

void declare(Machine& machine, const ops::OpTable& table) {
  struct Entry {
    const char* name;
    Run run;
    int64_t most_rows = 1024;
  };
  const std::vector<Entry> entries = {
      {"router", router},
      {"rms_norm", norm},
      {"quantize_mxfp8", quantize},
      {"rope/64_heads", rope(kHeads)},
      {"rope/1_head", rope(1)},
      {"hc_mix", hc_mix},
      {"hc_collapse", hc_collapse},
      {"hc_expand", hc_expand},
      {"window_write/bf16", window_write(ops::RowFormat::kBF16)},
      {"window_write/mxfp8", window_write(ops::RowFormat::kMxfp8)},
      {"compressor_pool", compressor_pool},
      {"compressor_ring_write", compressor_ring_write},
      {"compressed_store/bf16", compressed_store(ops::RowFormat::kBF16)},
      {"compressed_store/fp4", compressed_store(ops::RowFormat::kCompressed)},
      {"index_key_store/fp4", index_key_store(ops::IndexFormat::kFp4)},
      {"index_key_store/fp8", index_key_store(ops::IndexFormat::kFp8)},
      {"index_query_quantize/fp4", index_query_quantize(ops::IndexFormat::kFp4)},
      {"index_query_quantize/fp8", index_query_quantize(ops::IndexFormat::kFp8)},
      {"index_select", index_select(false), 64},
      {"index_select/with_candidates", index_select(true), 64},
  };
  for (const Entry& entry : entries) {
    const std::string name = std::string(entry.name) + "/" + table.name;
    auto* bench = benchmark::RegisterBenchmark(
        name.c_str(),
        [&machine, &table, run = entry.run](benchmark::State& state) { run(state, machine, table, state.range(0)); });
    for (const int64_t rows : {1, 8, 64, 1024}) {
      if (rows <= entry.most_rows) bench->Arg(rows);
    }
    bench->UseManualTime()->Unit(benchmark::kMicrosecond);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Machine machine(bench::take_arguments(argc, argv));
  for (const cpu::Isa isa : cpu::kIsas) {
    if (cpu::supported(isa).ok()) declare(machine, *cpu::table_for(isa).value());
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
