// What memory gives to few rows of x, apart from any product: loops that read weights as the kernels do and spend some
// cycles on every line, as fractions of the read bandwidth that is sampled around them. Neighbours are 32 rows after
// each other, two lines of each in turn, the next 32 asked for meanwhile, as FP8 panels; streams are 16 lanes of two
// rows, asked for a kilobyte ahead, as those of other formats (cpu/panel_rows-inl.h). A line of FP8 takes 8 cycles from
// the caches, one of FP4 6, one of BF16 4.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>
#include <vector>

#include "apps/machine_peak.h"
#include "base/buffer.h"
#include "bench/arguments.h"
#include "cpu/table.h"

namespace {

using namespace ps;  // NOLINT(google-build-using-namespace): a program

constexpr int64_t kLine = 64;
constexpr int64_t kTaken = 2 * kLine;  // of a row at a time
constexpr int64_t kPanel = 32;
constexpr int64_t kLanes = 16;
constexpr int64_t kAhead = 1024;
constexpr int64_t kThreadBytes = int64_t{128} << 20;

struct Machine {
  explicit Machine(apps::Stopwatch clock)
      : watch(clock),
        pool(clock.threads),
        meter(clock, pool),
        memory(HostBuffer::allocate((watch.threads + 1) * kThreadBytes).value()) {
    for (uint64_t& word : memory.as<uint64_t>()) word = 1;
  }
  apps::Stopwatch watch;
  ThreadPool pool;
  apps::CeilingMeter meter;
  HostBuffer memory;
};

// Two lines, each with a chain of kCycles additions that the next line's waits for.
template <int kCycles>
inline void take(const std::byte* row, uint64_t& chain) {
  for (int64_t line = 0; line < kTaken; line += kLine) {
    uint64_t word = 0;
    __builtin_memcpy(&word, row + line, sizeof(word));
    if (kCycles == 0) __asm__ volatile("" ::"r"(word));
#pragma GCC unroll 16
    for (int i = 0; i < kCycles; ++i) __asm__ volatile("add %1, %0" : "+r"(chain) : "r"(word));
  }
}
inline void ask(const std::byte* at) {
  __builtin_prefetch(at, 0, 2);
  __builtin_prefetch(at + kLine, 0, 2);
}

template <int kCycles>
uint64_t read_neighbours(const std::byte* data, int64_t row_bytes) {
  uint64_t chain = 0;
  for (int64_t panel = 0; panel + kPanel * row_bytes <= kThreadBytes; panel += kPanel * row_bytes) {
    for (int64_t at = 0; at < row_bytes; at += kTaken) {
      for (int64_t n = 0; n < kPanel; ++n) {
        const std::byte* row = data + panel + n * row_bytes + at;
        ask(row + kPanel * row_bytes);
        take<kCycles>(row, chain);
      }
    }
  }
  return chain;
}

template <int kCycles>
uint64_t read_streams(const std::byte* data, int64_t row_bytes) {
  uint64_t chain = 0;
  // An odd number of panels, as the kernels take.
  const int64_t panels = (kThreadBytes / (kPanel * row_bytes) - 1) | 1;
  const int64_t lane_bytes = 2 * panels * row_bytes;
  for (int64_t panel = 0; panel < panels; ++panel) {
    for (int64_t at = 0; at < row_bytes; at += kTaken) {
      const int64_t ahead = at + kAhead < row_bytes ? kAhead : kAhead + row_bytes;
      for (int64_t n = 0; n < kPanel; ++n) {
        const std::byte* row = data + n % kLanes * lane_bytes + (2 * panel + n / kLanes) * row_bytes + at;
        ask(row + ahead);
        take<kCycles>(row, chain);
      }
    }
  }
  return chain;
}

using Reader = uint64_t (*)(const std::byte* data, int64_t row_bytes);

void sample(benchmark::State& state, Machine& machine, Reader reader) {
  const int64_t row_bytes = state.range(0);
  const int64_t bytes = kThreadBytes / (kPanel * row_bytes) * kPanel * row_bytes;
  std::vector<double> ratios;
  for (auto _ : state) {
    double seconds = 0;
    const apps::Ceilings ceilings = machine.meter.around(cpu::Isa::kAvx2, [&] {
      seconds = apps::fastest(machine.watch, machine.pool, [&](int64_t thread) {
        benchmark::DoNotOptimize(reader(machine.memory.data() + thread * kThreadBytes, row_bytes));
      });
    });
    state.SetIterationTime(seconds);
    ratios.push_back(static_cast<double>(bytes * machine.watch.threads) * 1e-9 / seconds / ceilings.read_gbs);
  }
  std::nth_element(ratios.begin(), ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2), ratios.end());
  state.counters["of_read"] = ratios[ratios.size() / 2];
}

void declare(Machine& machine, const std::string& name, Reader reader) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [&machine, reader](benchmark::State& state) { sample(state, machine, reader); })
      ->Arg(1280)
      ->Arg(2560)
      ->Arg(8192)
      ->UseManualTime()
      ->Iterations(5)
      ->Unit(benchmark::kMillisecond);
}

}  // namespace

int main(int argc, char** argv) {
  Machine machine(ps::bench::take_arguments(argc, argv));
  declare(machine, "read/neighbours/0_cycles", read_neighbours<0>);
  declare(machine, "read/neighbours/4_cycles", read_neighbours<4>);
  declare(machine, "read/neighbours/8_cycles", read_neighbours<8>);
  declare(machine, "read/streams/0_cycles", read_streams<0>);
  declare(machine, "read/streams/4_cycles", read_streams<4>);
  declare(machine, "read/streams/6_cycles", read_streams<6>);
  declare(machine, "read/streams/8_cycles", read_streams<8>);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
