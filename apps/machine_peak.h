// The ceilings that a benchmark reports its ratios to, measured on all threads of a pool. A machine that others use too
// changes from one second to the next, its caches and matrix units included: around() samples right before and after a
// short run, which counts against the higher of the two samples; runs under a RunClock (run_clock.h) pause for samples.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <ctime>

#include "base/buffer.h"
#include "base/thread_pool.h"
#include "cpu/table.h"

namespace ps::apps {

inline constexpr int kRuns = 3;

// What time is: the wall clock's or, on a machine that others use too, the processor time of this process over its
// threads.
struct Stopwatch {
  bool is_processor_time = false;
  int threads = 1;
  [[nodiscard]] double now() const {
    timespec time{};
    clock_gettime(is_processor_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
    const double seconds = static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    return is_processor_time ? seconds / threads : seconds;
  }
};

// Fastest of kRuns runs of `work` on every thread at once, in seconds.
template <typename Work>
double fastest(const Stopwatch& watch, ThreadPool& pool, const Work& work) {
  double best = 1e9;
  for (int run = 0; run < kRuns; ++run) {
    const double start = watch.now();
    pool.parallel_for(pool.threads(), 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t part = begin; part < end; ++part) work(part);
    });
    best = std::min(best, watch.now() - start);
  }
  return best;
}

__attribute__((target("avx2"))) inline uint64_t sum_words(const std::byte* data, int64_t size) {
  __m256i sum[4] = {};
  for (int64_t at = 0; at < size; at += 128) {
    for (int i = 0; i < 4; ++i) {
      _mm_prefetch(reinterpret_cast<const char*>(data + at + 2048 + 32 * i), _MM_HINT_T0);
      sum[i] = _mm256_add_epi64(sum[i], _mm256_load_si256(reinterpret_cast<const __m256i*>(data + at) + i));
    }
  }
  const __m256i total = _mm256_add_epi64(_mm256_add_epi64(sum[0], sum[1]), _mm256_add_epi64(sum[2], sum[3]));
  return static_cast<uint64_t>(_mm256_extract_epi64(total, 0) ^ _mm256_extract_epi64(total, 3));
}

// Reading a whole buffer, far larger than the second caches, every thread its part from end to end.
inline double read_gigabytes_per_second(const Stopwatch& watch, ThreadPool& pool, const HostBuffer& buffer) {
  const int64_t part = (buffer.size_bytes() - 4096) / pool.threads() / 128 * 128;
  volatile uint64_t kept = 0;
  const double seconds = fastest(watch, pool, [&](int64_t i) { kept = sum_words(buffer.data() + i * part, part); });
  return static_cast<double>(part * pool.threads()) * 1e-9 / seconds;
}

// 12 independent chains of fused products and sums; all values stay zero.
__attribute__((target("avx2,fma"))) inline float fma_avx2(int64_t loops) {
  __asm__ volatile("vzeroall" ::
                       : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
                         "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
#define PS_FMA(v) "vfmadd231ps %%" v "12, %%" v "12, %%" v
#define PS_FMA_12(v)                                                                                            \
  PS_FMA(v)                                                                                                     \
  "0\n" PS_FMA(v) "1\n" PS_FMA(v) "2\n" PS_FMA(v) "3\n" PS_FMA(v) "4\n" PS_FMA(v) "5\n" PS_FMA(v) "6\n" PS_FMA( \
      v) "7\n" PS_FMA(v) "8\n" PS_FMA(v) "9\n" PS_FMA(v) "10\n" PS_FMA(v) "11\n"
  for (int64_t i = 0; i < loops; ++i) {
    __asm__ volatile(PS_FMA_12("ymm")::
                         : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
                           "xmm11", "xmm12");
  }
  return 0;
}

__attribute__((target("avx512f"))) inline float fma_avx512(int64_t loops) {
  fma_avx2(0);
  for (int64_t i = 0; i < loops; ++i) {
    __asm__ volatile(PS_FMA_12("zmm")::
                         : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
                           "xmm11", "xmm12");
  }
  __asm__ volatile("vzeroupper");
  return 0;
}
#undef PS_FMA_12
#undef PS_FMA

// BF16 values between 1 and 2, all mantissas. A core multiplies zeros a fifth faster than numbers: it clocks higher.
struct alignas(64) TileOperands {
  static constexpr int64_t kBytes = 16384;
  uint16_t values[kBytes / 2];
  constexpr TileOperands() : values() {
    for (int64_t i = 0; i < kBytes / 2; ++i) values[i] = static_cast<uint16_t>(0x3F80 | (i * 37 & 0x7F));
  }
};

// All eight tiles of 16 rows of 64 bytes.
inline void configure_whole_tiles() {
  struct alignas(64) {
    uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } config;
  __asm__ volatile("ldtilecfg %0" ::"m"(config));
}

// 4 products on whole tiles per loop, fed by 4 tile loads from a part of memory that the first cache holds, as products
// of matrices are. Where nobody else uses the caches that takes no longer than products alone.
inline float products_amx(int64_t loops) {
  constexpr int64_t kLoopBytes = 4096;
  static constexpr TileOperands kOperands;
  const auto* operands = reinterpret_cast<const std::byte*>(kOperands.values);
  configure_whole_tiles();
  __asm__ volatile("tilezero %tmm0\n tilezero %tmm1\n tilezero %tmm2\n tilezero %tmm3");
  for (int64_t i = 0; i < loops; ++i) {
    __asm__ volatile(
        "tileloadd (%0,%1,1), %%tmm4\n tileloadd 1024(%0,%1,1), %%tmm6\n tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n"
        "tileloadd 2048(%0,%1,1), %%tmm7\n tdpbf16ps %%tmm7, %%tmm4, %%tmm1\n"
        "tileloadd 3072(%0,%1,1), %%tmm5\n tdpbf16ps %%tmm6, %%tmm5, %%tmm2\n tdpbf16ps %%tmm7, %%tmm5, %%tmm3" ::"r"(
            operands + i * kLoopBytes % TileOperands::kBytes),
        "r"(int64_t{64}));
  }
  __asm__ volatile("tilerelease");
  return 0;
}

// Of the unit that the set multiplies on: FMA on 256 or 512 bits, or BF16 tiles. REQUIRES: the machine has it.
inline double peak_gigaflops(const Stopwatch& watch, cpu::Isa isa, ThreadPool& pool) {
  constexpr int64_t kLoops = 40'000;
  volatile float kept = 0;
  double flops = 0;
  double seconds = 0;
  switch (isa) {
    case cpu::Isa::kAvx2:
      flops = 12 * 8 * 2;
      seconds = fastest(watch, pool, [&](int64_t) { kept = fma_avx2(kLoops); });
      break;
    case cpu::Isa::kAvx512:
      flops = 12 * 16 * 2;
      seconds = fastest(watch, pool, [&](int64_t) { kept = fma_avx512(kLoops); });
      break;
    case cpu::Isa::kAmx:
      flops = 4 * 16 * 16 * 32 * 2;
      seconds = fastest(watch, pool, [&](int64_t) { kept = products_amx(kLoops); });
      break;
  }
  return flops * static_cast<double>(kLoops) * pool.threads() * 1e-9 / seconds;
}

struct Ceilings {
  double read_gbs = 0;     // GB/s
  double peak_gflops = 0;  // GFLOP/s
};

// Samples the ceilings around runs. Threading: one caller, outside the pool.
class CeilingMeter {
 public:
  CeilingMeter(Stopwatch watch, ThreadPool& pool)
      : watch_(watch), pool_(pool), buffer_(HostBuffer::allocate(kBytes).value()) {
    for (uint64_t& word : buffer_.as<uint64_t>()) word = 1;
  }
  [[nodiscard]] const Stopwatch& watch() const { return watch_; }
  [[nodiscard]] Ceilings sample(cpu::Isa isa) {
    return {read_gigabytes_per_second(watch_, pool_, buffer_), peak_gigaflops(watch_, isa, pool_)};
  }
  // `run` between two samples: the higher one of each ceiling.
  template <typename Run>
  [[nodiscard]] Ceilings around(cpu::Isa isa, const Run& run) {
    const Ceilings before = sample(isa);
    run();
    const Ceilings after = sample(isa);
    return {std::max(before.read_gbs, after.read_gbs), std::max(before.peak_gflops, after.peak_gflops)};
  }

 private:
  static constexpr int64_t kBytes = int64_t{256} << 20;
  Stopwatch watch_;
  ThreadPool& pool_;
  HostBuffer buffer_;
};

}  // namespace ps::apps
