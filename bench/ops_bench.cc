// The products of the CPU backend at the shapes of the published model, on every instruction set of the machine:
// achieved GB/s of weight bytes and GFLOP/s, and their ratio to what the same program measures meanwhile: the read
// bandwidth of memory and the peak of the unit that the instruction set multiplies on. All are medians of kSamples
// samples. Weights rotate through more memory than the caches hold.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/pcg64.h"
#include "apps/run_clock.h"
#include "bench/arguments.h"
#include "cpu/table.h"

namespace {

using namespace ps;  // NOLINT(google-build-using-namespace): a program

constexpr int kSamples = 5;
constexpr double kSampleSeconds = 0.06;             // of one sample, at least
constexpr double kSecondsBetweenSamples = 0.02;     // of the ceilings, at least
constexpr int64_t kRotation = int64_t{1280} << 20;  // bytes of weights that one benchmark walks through

// Memory that every benchmark takes its weights from: bytes that are legal codes and moderate scales.
class WeightPool {
 public:
  WeightPool()
      : codes_(HostBuffer::allocate(kRotation).value()), scales_(HostBuffer::allocate(kRotation / 16).value()) {
    Pcg64 random(1);
    auto words = codes_.as<uint64_t>();
    // The top two exponent bits of every byte are never both set: no NaN code, and BF16 pairs of moderate size.
    for (uint64_t& word : words) word = random.next64() & 0xBFBFBFBFBFBFBFBFull;
    for (uint8_t& scale : scales_.as<uint8_t>()) scale = static_cast<uint8_t>(117 + random.integer(0, 6));
  }
  // Copy `index` of a weight, round the pool.
  [[nodiscard]] ops::Weight weight(ops::WeightFormat format, int64_t rows, int64_t columns, int64_t index) {
    ops::Weight w{format, rows, columns, nullptr, nullptr};
    const int64_t size = bytes(w);
    const int64_t copies = std::max<int64_t>(1, kRotation / size);
    w.data = codes_.data() + index % copies * size;
    if (ops::is_quantized(format)) w.scale = scales_.as<uint8_t>().data() + index % copies * (scale_bytes(w) + 64);
    return w;
  }
  static int64_t bytes(const ops::Weight& w) {
    switch (w.format) {
      case ops::WeightFormat::kF32: return w.rows * w.columns * 4;
      case ops::WeightFormat::kBF16: return w.rows * w.columns * 2;
      case ops::WeightFormat::kFp8Block32: return w.rows * w.columns;
      case ops::WeightFormat::kFp4Block32: return w.rows * w.columns / 2;
    }
    return 0;
  }
  static int64_t scale_bytes(const ops::Weight& w) {
    if (w.format == ops::WeightFormat::kFp8Block32) return w.rows / 32 * (w.columns / 32);
    return w.format == ops::WeightFormat::kFp4Block32 ? w.rows * (w.columns / 32) : 0;
  }

 private:
  HostBuffer codes_;
  HostBuffer scales_;
};

struct Machine {
  explicit Machine(apps::Stopwatch clock) : watch(clock), pool(clock.threads), meter(clock, pool) {}
  apps::Stopwatch watch;
  ThreadPool pool;
  apps::CeilingMeter meter;
  Arena scratch{HostBuffer::allocate(int64_t{512} << 20).value()};
  WeightPool weights;
};

// Normally distributed activations, on the MXFP8 grid where a quantized weight takes them.
struct Rows {
  Rows(int64_t rows, int64_t columns) : data(static_cast<size_t>(rows * columns)), rows_(rows), columns_(columns) {}
  void fill() {
    Pcg64 random(2);
    for (bf16& value : data) {
      double sum = -6;
      for (int i = 0; i < 12; ++i) sum += random.uniform();
      value = to_bf16(static_cast<float>(sum));
    }
  }
  ops::Activations view(ops::Grid grid = ops::Grid::kNone) {
    return {data.data(), DType::kBF16, grid, rows_, columns_, columns_};
  }
  ops::Activations quantized(ops::Exec& exec) {
    cpu::table().quantize_mxfp8({view(), view(ops::Grid::kMxfp8)}, exec);
    return view(ops::Grid::kMxfp8);
  }
  std::vector<bf16> data;
  int64_t rows_;
  int64_t columns_;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + kSamples / 2, values.end());
  return values[kSamples / 2];
}

// Samples `call`, which needs `bytes` and `flops` every time.
template <typename Call>
void sample(benchmark::State& state, Machine& machine, cpu::Isa isa, double bytes, double flops, const Call& call) {
  call();  // touches the scratch
  std::vector<double> gbs;
  std::vector<double> gflops;
  std::vector<double> of_read;
  std::vector<double> of_peak;
  apps::RunClock clock(machine.meter, isa, kSecondsBetweenSamples);
  for (auto _ : state) {
    int64_t calls = 0;
    for (clock.start(); clock.running() < kSampleSeconds; ++calls) {
      clock.may_pause();
      call();
    }
    clock.stop();
    const double seconds = clock.seconds() / static_cast<double>(calls);
    const apps::Ceilings ceilings = clock.ceilings();
    state.SetIterationTime(seconds);
    gbs.push_back(bytes * 1e-9 / seconds);
    gflops.push_back(flops * 1e-9 / seconds);
    of_read.push_back(gbs.back() / ceilings.read_gbs);
    of_peak.push_back(gflops.back() / ceilings.peak_gflops);
  }
  state.counters["GB/s"] = median(gbs);
  state.counters["of_read"] = median(of_read);
  state.counters["GFLOP/s"] = median(gflops);
  state.counters["of_peak"] = median(of_peak);
}

// `groups` block-diagonal products of rows / groups by columns each; 1 is a plain one.
struct Shape {
  const char* name;
  ops::WeightFormat format;
  int64_t rows;
  int64_t columns;
  int32_t groups = 1;
};

void linear(benchmark::State& state, Machine& machine, cpu::Isa isa, const Shape& shape) {
  const ops::OpTable& table = *cpu::table_for(isa).value();
  const int64_t tokens = state.range(0);
  Rows x(tokens, shape.groups * shape.columns);
  x.fill();
  Rows y(tokens, shape.rows);
  ops::Exec exec{machine.pool, machine.scratch};
  int64_t index = 0;
  const bool is_quantized = ops::is_quantized(shape.format) && shape.groups == 1;
  const auto view = is_quantized ? x.quantized(exec) : x.view();
  const ops::Weight w = machine.weights.weight(shape.format, shape.rows, shape.columns, 0);
  sample(state, machine, isa, static_cast<double>(WeightPool::bytes(w) + WeightPool::scale_bytes(w)),
         2.0 * static_cast<double>(tokens * shape.rows * shape.columns), [&] {
           const ops::Weight next = machine.weights.weight(shape.format, shape.rows, shape.columns, index++);
           if (shape.groups == 1) table.linear({view, next, y.view()}, exec);
           else table.grouped_linear({view, next, y.view(), shape.groups}, exec);
         });
}

// 64 routed FP4 experts and an FP8 shared one, 5120 -> 2304 -> 5120, six of them for a row.
void moe(benchmark::State& state, Machine& machine, cpu::Isa isa) {
  constexpr int64_t kDim = 5120;
  constexpr int64_t kInner = 2304;
  constexpr int32_t kExperts = 64;
  constexpr int32_t kTopK = 6;
  const ops::OpTable& table = *cpu::table_for(isa).value();
  const int64_t tokens = state.range(0);
  Rows x(tokens, kDim);
  x.fill();
  Rows y(tokens, kDim);
  const auto expert = [&](ops::WeightFormat format, int64_t index) {
    return ops::Expert{machine.weights.weight(format, kInner, kDim, 3 * index),
                       machine.weights.weight(format, kInner, kDim, 3 * index + 1),
                       machine.weights.weight(format, kDim, kInner, 3 * index + 2)};
  };
  std::vector<ops::Expert> experts;
  for (int64_t e = 0; e < kExperts; ++e) experts.push_back(expert(ops::WeightFormat::kFp4Block32, e));
  const ops::Expert shared = expert(ops::WeightFormat::kFp8Block32, 20);
  std::vector<int32_t> ids(static_cast<size_t>(tokens * kTopK));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i % kTopK);
  std::vector<float> weights(ids.size(), 0.25f);
  ops::Exec exec{machine.pool, machine.scratch};
  const auto view = x.quantized(exec);
  const ops::MoeArgs args{view,       view,           experts.data(), kExperts, shared,
                          ids.data(), weights.data(), kTopK,          10.0f,    y.view()};
  const auto size = [](const ops::Expert& e) {
    double bytes = 0;
    for (const ops::Weight* w : {&e.w1, &e.w3, &e.w2}) {
      bytes += static_cast<double>(WeightPool::bytes(*w) + WeightPool::scale_bytes(*w));
    }
    return bytes;
  };
  // Every step other experts, the same number of them.
  int64_t step = 0;
  const auto choose = [&] {
    std::vector<uint8_t> used(kExperts);
    for (int64_t t = 0; t < tokens; ++t) {
      const auto first = static_cast<int32_t>((step * 6 + t * 7) % kExperts);
      int32_t* row = ids.data() + t * kTopK;
      for (int32_t i = 0; i < kTopK; ++i) row[i] = (first + i) % kExperts;
      std::sort(row, row + kTopK);
      for (int32_t i = 0; i < kTopK; ++i) used[static_cast<size_t>(row[i])] = 1;
    }
    ++step;
    return static_cast<double>(std::count(used.begin(), used.end(), 1));
  };
  const double distinct = choose();
  sample(state, machine, isa, distinct * size(experts[0]) + size(shared),
         6.0 * static_cast<double>(tokens * (kTopK + 1) * kDim * kInner), [&] {
           choose();
           table.moe(args, exec);
         });
}

void declare(Machine& machine, cpu::Isa isa) {
  using enum ops::WeightFormat;
  const std::string name(cpu::isa_name(isa));
  for (const Shape& shape :
       {Shape{"wq_b_fp8", kFp8Block32, 32768, 1280}, Shape{"wo_a_fp8", kFp8Block32, 8192, 4096, 8},
        Shape{"wo_b_fp8", kFp8Block32, 5120, 8192}, Shape{"expert_w1_fp4", kFp4Block32, 2304, 5120},
        Shape{"expert_w2_fp4", kFp4Block32, 5120, 2304}, Shape{"head_bf16", kBF16, 16384, 5120}}) {
    auto* bench = benchmark::RegisterBenchmark(
        ("linear/" + std::string(shape.name) + "/" + name).c_str(),
        [&machine, isa, shape](benchmark::State& state) { linear(state, machine, isa, shape); });
    for (int64_t tokens : {1, 2, 4, 8, 64, 256, 1024, 4096}) bench->Arg(tokens);
    bench->UseManualTime()->Iterations(kSamples)->Unit(benchmark::kMillisecond);
  }
  benchmark::RegisterBenchmark(("moe/" + name).c_str(),
                               [&machine, isa](benchmark::State& state) { moe(state, machine, isa); })
      ->Arg(1)
      ->Arg(2)
      ->Arg(4)
      ->Arg(8)
      ->Arg(64)
      ->Arg(1024)
      ->UseManualTime()
      ->Iterations(kSamples)
      ->Unit(benchmark::kMillisecond);
}

}  // namespace

int main(int argc, char** argv) {
  Machine machine(bench::take_arguments(argc, argv));
  benchmark::AddCustomContext("read_GB/s", std::to_string(machine.meter.sample(cpu::Isa::kAvx2).read_gbs));
  for (const cpu::Isa isa : cpu::kIsas) {
    if (!cpu::supported(isa).ok()) continue;
    const apps::Ceilings ceilings = machine.meter.sample(isa);
    benchmark::AddCustomContext("peak_GFLOP/s_" + std::string(cpu::isa_name(isa)),
                                std::to_string(ceilings.peak_gflops));
    declare(machine, isa);
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
