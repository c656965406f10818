// Suites named *Threads* also run under the thread sanitizer.
#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <xmmintrin.h>

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <limits>
#include <numeric>
#include <thread>
#include <vector>

namespace ps {
namespace {

// Read and written through volatile, so that no arithmetic happens at compile time.
float halve_smallest_normal() {
  volatile float value = std::numeric_limits<float>::min();
  value = value * 0.5f;
  return value;
}
float smallest_subnormal_times_large() {
  volatile float value = std::numeric_limits<float>::denorm_min();
  value = value * 0x1p100f;
  return value;
}

TEST(ThreadPoolThreads, CoversEveryIndexOnceInPiecesOfAtMostTheGrain) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const int64_t count : {0, 1, 2, 7, 64, 1000}) {
      for (const int64_t grain : {int64_t{-1}, int64_t{0}, int64_t{1}, int64_t{3}, int64_t{64}, int64_t{5000}}) {
        std::vector<int> visits(static_cast<size_t>(count), 0);
        std::atomic<bool> legal{true};
        pool.parallel_for(count, grain, [&](int64_t begin, int64_t end, int worker) {
          if (begin >= end || end - begin > std::max<int64_t>(grain, 1) || worker < 0 || worker >= threads)
            legal = false;
          for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
        });
        EXPECT_TRUE(legal) << threads << " threads, " << count << " by " << grain;
        EXPECT_TRUE(std::all_of(visits.begin(), visits.end(), [](int n) { return n == 1; }))
            << threads << " threads, " << count << " by " << grain;
      }
    }
  }
}

TEST(ThreadPoolThreads, ManyForksInARowSeeEachOthersResults) {
  ThreadPool pool(4);
  std::vector<int64_t> values(257, 0);
  constexpr int kForks = 2000;
  for (int fork = 0; fork < kForks; ++fork) {
    pool.parallel_for(static_cast<int64_t>(values.size()), 1 + fork % 70, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) ++values[static_cast<size_t>(i)];
    });
    ASSERT_EQ(values[static_cast<size_t>(fork) % values.size()], fork + 1);
  }
  EXPECT_EQ(std::accumulate(values.begin(), values.end(), int64_t{0}), kForks * 257);
}

TEST(ThreadPoolThreads, AWorkerNumberIsHeldByOneThreadAtATime) {
  ThreadPool pool(4);
  std::vector<int64_t> scratch(4, 0);  // one per worker, unsynchronized
  for (int fork = 0; fork < 200; ++fork) {
    pool.parallel_for(64, 1, [&](int64_t, int64_t, int worker) { ++scratch[static_cast<size_t>(worker)]; });
  }
  EXPECT_EQ(std::accumulate(scratch.begin(), scratch.end(), int64_t{0}), 200 * 64);
}

TEST(ThreadPoolThreads, BodiesFlushSubnormalsAndTheCallerGetsItsEnvironmentBack) {
  const unsigned before = _mm_getcsr();
  ASSERT_GT(halve_smallest_normal(), 0.0f) << "the test itself must start with subnormals on";
  for (const int threads : {1, 4}) {
    ThreadPool pool(threads);
    for (const int64_t count : {1, 256}) {  // inline on the caller, and spread
      std::vector<float> flushed(static_cast<size_t>(count), -1.0f);
      std::vector<float> read_as_zero(static_cast<size_t>(count), -1.0f);
      pool.parallel_for(count, 1, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) {
          flushed[static_cast<size_t>(i)] = halve_smallest_normal();
          read_as_zero[static_cast<size_t>(i)] = smallest_subnormal_times_large();
        }
      });
      EXPECT_TRUE(std::all_of(flushed.begin(), flushed.end(), [](float x) { return x == 0.0f; }));
      EXPECT_TRUE(std::all_of(read_as_zero.begin(), read_as_zero.end(), [](float x) { return x == 0.0f; }));
      EXPECT_EQ(_mm_getcsr() & 0xFFC0u, before & 0xFFC0u) << "control bits of MXCSR";
      EXPECT_GT(halve_smallest_normal(), 0.0f);
    }
  }
}

TEST(ThreadPoolThreads, StartsAndStopsWithoutWork) {
  for (int round = 0; round < 50; ++round) const ThreadPool pool(1 + round % 5);
}

TEST(ThreadPoolThreads, WorkersThatFellAsleepComeBack) {
  ThreadPool pool(3);
  for (int round = 0; round < 20; ++round) {
    // Longer than any spin; then a fork in which every worker must take part: each piece waits for the others.
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::atomic<int> inside{0};
    pool.parallel_for(3, 1, [&](int64_t, int64_t, int) {
      inside.fetch_add(1);
      while (inside.load() < 3) std::this_thread::yield();
    });
    EXPECT_EQ(inside.load(), 3);
  }
}

TEST(ThreadPoolThreads, PinnedThreadsStayOnOneCoreOfTheSetEach) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  // On a thread of its own, since the caller is pinned too.
  std::thread([&] {
    const std::vector<CpuPlace> cpus = place_workers(physical_core_places(), physical_cores() + 1);
    ThreadPool pool(physical_cores() + 1, Pinning::kCores);
    std::atomic<int> inside{0};
    std::vector<int> count(static_cast<size_t>(pool.threads()));
    std::vector<int> legal(static_cast<size_t>(pool.threads()));
    pool.parallel_for(pool.threads(), 1, [&](int64_t, int64_t, int worker) {
      inside.fetch_add(1);
      while (inside.load() < pool.threads()) std::this_thread::yield();
      cpu_set_t set;
      CPU_ZERO(&set);
      sched_getaffinity(0, sizeof set, &set);
      const auto at = static_cast<size_t>(worker);
      count[at] = CPU_COUNT(&set);
      legal[at] = CPU_ISSET(static_cast<size_t>(cpus[at].cpu), &set) ? 1 : 0;
    });
    EXPECT_TRUE(std::all_of(count.begin(), count.end(), [](int n) { return n == 1; }));
    EXPECT_TRUE(std::all_of(legal.begin(), legal.end(), [](int n) { return n == 1; }));
  }).join();
  cpu_set_t after;
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST(ThreadPoolThreads, EveryWorkerBeginsWithItsShareOfTheRange) {
  ThreadPool pool(4);
  for (const int64_t grain : {1, 3, 10}) {
    std::atomic<int> inside{0};
    std::vector<std::atomic<int64_t>> first(4);
    for (auto& begin : first) begin = -1;
    std::vector<int> visits(400, 0);
    pool.parallel_for(400, grain, [&](int64_t begin, int64_t end, int worker) {
      for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
      std::atomic<int64_t>& mine = first[static_cast<size_t>(worker)];
      if (mine.load() >= 0) return;
      mine = begin;
      inside.fetch_add(1);
      while (inside.load() < 4) std::this_thread::yield();  // each takes a first piece
    });
    EXPECT_TRUE(std::all_of(visits.begin(), visits.end(), [](int n) { return n == 1; })) << grain;
    EXPECT_LT(first[0].load(), 110) << grain;  // a quarter of the range, and at most a piece
    for (int64_t worker = 1; worker < 4; ++worker) {
      EXPECT_GE(first[static_cast<size_t>(worker)].load(), 100 * worker - 10) << grain << ' ' << worker;
    }
  }
}

TEST(ThreadPoolThreads, AShareWithoutAFreeWorkerIsHelped) {
  ThreadPool pool(2);
  for (const int64_t count : {1, 2, 3, 7, 64}) {
    std::atomic<int64_t> done{0};
    std::atomic<bool> is_held{false};
    // The first worker to come holds on to its piece until the other one has done all the rest.
    pool.parallel_for(count, 1, [&](int64_t, int64_t, int) {
      if (!is_held.exchange(true)) {
        while (done.load() < count - 1) std::this_thread::yield();
      }
      done.fetch_add(1);
    });
    EXPECT_EQ(done.load(), count);
  }
}

TEST(FlushSubnormals, NestsAndRestores) {
  ASSERT_GT(halve_smallest_normal(), 0.0f);
  {
    const FlushSubnormals outer;
    {
      const FlushSubnormals inner;
      EXPECT_EQ(halve_smallest_normal(), 0.0f);
    }
    EXPECT_EQ(halve_smallest_normal(), 0.0f);
  }
  EXPECT_GT(halve_smallest_normal(), 0.0f);
}

TEST(FlushSubnormals, LeavesTheRoundingModeAlone) {
  ASSERT_EQ(std::fesetround(FE_DOWNWARD), 0);
  {
    const FlushSubnormals flush;
    EXPECT_EQ(_mm_getcsr() & 0x6000u, 0x2000u);
  }
  EXPECT_EQ(std::fegetround(), FE_DOWNWARD);
  std::fesetround(FE_TONEAREST);
}

TEST(ThreadPoolDeathTest, NeedsAtLeastTheCaller) { EXPECT_DEATH(ThreadPool(0), "threads >= 1"); }

}  // namespace
}  // namespace ps
