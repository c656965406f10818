// What a product of many rows can get from BF16 tiles on this machine, apart from any product: loops of four tile
// products, as fractions of the peak that is sampled around them. From rung to rung up to `all` there is one more thing
// that a product of FP8 weights has to do; the last three are other ways to cut a product. A rung's loop does nothing
// else: no packing, no results. `all` bounds ops_bench's products of 512 rows and more.
#include <benchmark/benchmark.h>
#include <immintrin.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "apps/machine_peak.h"
#include "base/buffer.h"
#include "bench/arguments.h"
#include "cpu/table.h"

namespace {

using namespace ps;  // NOLINT(google-build-using-namespace): a program

// What a loop does besides four products and the loads of two tiles of weights, from the first cache where they fit.
struct Rung {
  const char* name;
  int64_t steps = 8;           // blocks of K of a chunk: how long sums stay in tiles
  bool takes_rows = false;     // two tiles of rows from the second cache; else from the first one
  bool keeps_sums = false;     // every chunk four tiles of sums leave and four others come, from the second cache
  bool brings_rows = false;    // rows come from the third cache: a panel group's share, 4 lines for each step
  bool decodes = false;        // 2 lines of decoded weights stored for each step, by as many operations as FP8 takes
  bool reads_weights = false;  // the line of codes that is decoded comes from memory, asked for 64 steps before
};
// Of the last three, sums move half as often, or not at all, but weights take more room.
constexpr Rung kRungs[] = {
    {.name = "first_cache"},
    {.name = "rows", .takes_rows = true},
    {.name = "rows_sums", .takes_rows = true, .keeps_sums = true},
    {.name = "rows_sums_third_cache", .takes_rows = true, .keeps_sums = true, .brings_rows = true},
    {.name = "rows_sums_decode", .takes_rows = true, .keeps_sums = true, .decodes = true},
    {.name = "rows_sums_third_cache_decode",
     .takes_rows = true,
     .keeps_sums = true,
     .brings_rows = true,
     .decodes = true},
    {.name = "all",
     .takes_rows = true,
     .keeps_sums = true,
     .brings_rows = true,
     .decodes = true,
     .reads_weights = true},
    {.name = "rows_sums_16_blocks", .steps = 16, .takes_rows = true, .keeps_sums = true},
    {.name = "all_16_blocks",
     .steps = 16,
     .takes_rows = true,
     .keeps_sums = true,
     .brings_rows = true,
     .decodes = true,
     .reads_weights = true},
    {.name = "rows_32_blocks_no_sums", .steps = 32, .takes_rows = true}};

constexpr int64_t kTile = 1024;
constexpr int64_t kMostSteps = 32;
constexpr int64_t kPairs = 16;  // of groups of 16 rows
constexpr int64_t kPanels = 8;
constexpr int64_t kBlocks = 160;                     // of K: 5 MB of rows of x, more than a second cache
constexpr int64_t kBlockBytes = kPairs * 2 * kTile;  // of rows of x
constexpr int64_t kSumBytes = kPanels * kPairs * 4 * kTile;
constexpr int64_t kRunCodes = kBlocks * kPanels * kPairs * 64;  // bytes that a run decodes
constexpr int64_t kCodeRuns = 320;                              // of all threads: more than a third cache holds

// One thread's memory: rows of x, sums, two buffers of decoded weights, tables; and the codes of its next run.
struct Room {
  static constexpr int64_t kWeights = kMostSteps * 2 * kTile;
  static constexpr int64_t kBytes = (kBlocks + kMostSteps) * kBlockBytes + kSumBytes + 3 * kWeights;
  Room(std::byte* data, const std::byte* codes_of_run)
      : rows(data), sums(rows + (kBlocks + kMostSteps) * kBlockBytes), weights(sums + kSumBytes), codes(codes_of_run) {}
  std::byte* rows;
  std::byte* sums;
  std::byte* weights;  // [2], then tables
  [[nodiscard]] const std::byte* tables() const { return weights + 2 * kWeights; }
  const std::byte* codes;
};

#define PS_LOAD(tile, from) __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(from), "r"(int64_t{64}))
#define PS_PASS(tile, from) __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm" #tile ::"r"(from), "r"(int64_t{64}))
#define PS_STORE(tile, to) \
  __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(to), "r"(int64_t{64}) : "memory")
#define PS_MULTIPLY(sums, w, x) __asm__ volatile("tdpbf16ps %%tmm" #x ", %%tmm" #w ", %%tmm" #sums ::)
#define PS_EXCHANGE(tile)                                                         \
  if (exchanges && held != nullptr) PS_STORE(tile, held + int64_t{tile} * kTile); \
  if (exchanges) PS_LOAD(tile, sums + int64_t{tile} * kTile)

// Two lines of decoded weights from one of codes: two look-ups among 128 bytes, two interleavings, two stores.
__attribute__((target("avx512f,avx512bw,avx512vbmi"), always_inline)) inline void decode(const std::byte* line,
                                                                                         const std::byte* tables,
                                                                                         std::byte* to) {
  const __m512i codes = _mm512_loadu_si512(line);
  const __m512i low = _mm512_permutex2var_epi8(_mm512_loadu_si512(tables), codes, _mm512_loadu_si512(tables + 64));
  const __m512i high =
      _mm512_permutex2var_epi8(_mm512_loadu_si512(tables + 128), codes, _mm512_loadu_si512(tables + 192));
  // BF16 values of one to two, whatever the codes are: a core multiplies numbers slower than zeros.
  const __m512i mantissa = _mm512_and_si512(_mm512_unpacklo_epi8(low, high), _mm512_set1_epi16(0x7F));
  const __m512i other = _mm512_and_si512(_mm512_unpackhi_epi8(low, high), _mm512_set1_epi16(0x7F));
  _mm512_store_si512(to, _mm512_or_si512(mantissa, _mm512_set1_epi16(0x3F80)));
  _mm512_store_si512(to + 64, _mm512_or_si512(other, _mm512_set1_epi16(0x3F80)));
}

// Every panel of every chunk once; returns the steps.
template <int kRung>
__attribute__((target("avx512f,avx512bw,avx512vbmi"))) int64_t run(const Room& room) {
  constexpr Rung kDoes = kRungs[kRung];
  constexpr int64_t kSteps = kDoes.steps;
  constexpr int64_t kChunks = kBlocks / kSteps;
  constexpr int64_t kRowBytes = kSteps * kBlockBytes;
  constexpr int64_t kWeightBytes = kSteps * 2 * kTile;
  std::byte* held = nullptr;  // whose sums tiles 0-3 hold
  const std::byte* codes = room.codes;
  for (int64_t chunk = 0; chunk < kChunks; ++chunk) {
    const std::byte* rows = room.rows + (kDoes.brings_rows ? chunk : 0) * kRowBytes;
    const std::byte* next_rows = room.rows + (chunk + 1) % kChunks * kRowBytes;
    for (int64_t panel = 0; panel < kPanels; ++panel) {
      const std::byte* weights = room.weights + panel % 2 * kWeightBytes;
      std::byte* decoded = room.weights + (panel + 1) % 2 * kWeightBytes;
      for (int64_t pair = 0; pair < kPairs; ++pair) {
        const std::byte* a = rows + (kDoes.takes_rows ? pair * kSteps * 2 * kTile : 0);
        const std::byte* b = a + kSteps * kTile;
        std::byte* sums = room.sums + (panel * kPairs + pair) * 4 * kTile;
        const std::byte* coming = next_rows + (panel * kPairs + pair) * kSteps * 4 * 64;
#pragma GCC unroll 32
        for (int64_t step = 0; step < kSteps; ++step) {
          const bool exchanges = kDoes.keeps_sums && step == 0;
          PS_LOAD(4, weights + step * 2 * kTile);
          PS_PASS(6, a + step * kTile);
          PS_PASS(7, b + step * kTile);
          PS_LOAD(5, weights + (step * 2 + 1) * kTile);
          PS_EXCHANGE(0);
          PS_MULTIPLY(0, 4, 6);
          PS_EXCHANGE(1);
          PS_MULTIPLY(1, 4, 7);
          PS_EXCHANGE(2);
          PS_MULTIPLY(2, 5, 6);
          PS_EXCHANGE(3);
          PS_MULTIPLY(3, 5, 7);
          if (kDoes.keeps_sums) {
            for (int64_t line = 0; line < 64 / kSteps; ++line)
              _mm_prefetch(sums + 4 * kTile + (step * 64 / kSteps + line) * 64, _MM_HINT_T0);
          }
          if (kDoes.brings_rows) {
            for (int64_t line = 0; line < 4; ++line) _mm_prefetch(coming + (step * 4 + line) * 64, _MM_HINT_T1);
          }
          if (kDoes.decodes) {
            const std::byte* line = kDoes.reads_weights ? codes + step * 64 : room.tables() + step * 64;
            if (kDoes.reads_weights) _mm_prefetch(line + 64 * 64, _MM_HINT_T0);
            decode(line, room.tables(), decoded + (pair * kSteps + step) * 128);
          }
        }
        held = sums;
        codes += kSteps * 64;
      }
    }
  }
  return kBlocks * kPanels * kPairs;
}

struct Machine {
  explicit Machine(apps::Stopwatch clock)
      : watch(clock),
        pool(clock.threads),
        meter(clock, pool),
        memory(HostBuffer::allocate(threads_bytes()).value()),
        codes(HostBuffer::allocate(kCodeRuns * kRunCodes + 4096).value()),
        runs(static_cast<size_t>(clock.threads)) {
    for (const auto words : {memory.as<uint16_t>(), codes.as<uint16_t>()}) {
      for (size_t i = 0; i < words.size(); ++i) words[i] = static_cast<uint16_t>(0x3F80 | (i * 37 & 0x7F));
    }
  }
  [[nodiscard]] int64_t threads_bytes() const { return watch.threads * (Room::kBytes + kBlockBytes); }
  [[nodiscard]] Room room(int64_t thread) {
    const int64_t run = runs[static_cast<size_t>(thread)]++ * watch.threads + thread;
    return {memory.data() + thread * (Room::kBytes + kBlockBytes), codes.data() + run % kCodeRuns * kRunCodes};
  }
  apps::Stopwatch watch;
  ThreadPool pool;
  apps::CeilingMeter meter;
  HostBuffer memory;
  HostBuffer codes;
  std::vector<int64_t> runs;  // of each thread so far
};

template <int kRung>
void sample(benchmark::State& state, Machine& machine) {
  std::vector<double> ratios;
  for (auto _ : state) {
    double seconds = 0;
    const apps::Ceilings ceilings = machine.meter.around(cpu::Isa::kAmx, [&] {
      seconds = apps::fastest(machine.watch, machine.pool, [&](int64_t thread) {
        apps::configure_whole_tiles();
        benchmark::DoNotOptimize(run<kRung>(machine.room(thread)));
      });
    });
    state.SetIterationTime(seconds);
    const double steps = static_cast<double>(kBlocks * kPanels * kPairs * machine.watch.threads);
    ratios.push_back(steps * 4 * 16 * 16 * 32 * 2 * 1e-9 / seconds / ceilings.peak_gflops);
  }
  std::nth_element(ratios.begin(), ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2), ratios.end());
  state.counters["of_peak"] = ratios[ratios.size() / 2];
}

template <int kRung = 0>
void declare(Machine& machine) {
  if constexpr (kRung < static_cast<int>(std::size(kRungs))) {
    benchmark::RegisterBenchmark((std::string("tiles/") + kRungs[kRung].name).c_str(),
                                 [&machine](benchmark::State& state) { sample<kRung>(state, machine); })
        ->UseManualTime()
        ->Iterations(5)
        ->Unit(benchmark::kMillisecond);
    declare<kRung + 1>(machine);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Machine machine(ps::bench::take_arguments(argc, argv));
  if (cpu::supported(cpu::Isa::kAmx).ok()) declare(machine);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
