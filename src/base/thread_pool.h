// A fixed set of workers, one per physical core by default, and fork/join over an index range.
//
// Every worker begins with its own share of the range, in ascending order, and who runs out of it helps the others, its
// neighbours first. So what follows a piece is mostly the same thread's, whose prefetches reach its own cache, and with
// workers ordered by NUMA node rows of weights that lie on a node are read there (node_shares() of topology.h).
// Every body runs, on workers and on the caller alike, with subnormals flushed to zero on input and output (FTZ and
// DAZ): the matrix units do this in any case (reductions.md), so all code that computes does it. Ops compute only
// inside parallel_for, hence one rule for all of them.
// How a range is cut over threads never changes a result: each index writes only its own outputs.
// Threading: one fork/join at a time; parallel_for is called from one thread and is not re-entrant.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/topology.h"

namespace ps {

// Sets FTZ and DAZ for its lifetime on the current thread.
class FlushSubnormals {
 public:
  FlushSubnormals() noexcept;
  ~FlushSubnormals();
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
  unsigned saved_;
};

// Non-owning reference to a callable void(int64_t begin, int64_t end, int worker): no allocation per call.
class RangeBody {
 public:
  template <typename Body>
  RangeBody(const Body& body)  // NOLINT(google-explicit-constructor)
      : object_(&body), call_([](const void* object, int64_t begin, int64_t end, int worker) {
          (*static_cast<const Body*>(object))(begin, end, worker);
        }) {}
  void operator()(int64_t begin, int64_t end, int worker) const { call_(object_, begin, end, worker); }

 private:
  const void* object_;
  void (*call_)(const void*, int64_t, int64_t, int);
};

// kCores binds each thread to a physical core of the process's CPU set, as place_workers() says: the workers at once,
// a calling thread at its first parallel_for. NOTE: threads that it starts after that inherit its core.
enum class Pinning : uint8_t { kNone, kCores };

class ThreadPool {
 public:
  // threads >= 1 counts the caller.
  explicit ThreadPool(int threads, Pinning pinning = Pinning::kNone);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int threads() const noexcept { return static_cast<int>(workers_.size()) + 1; }

  // Runs body over [0, count) in pieces of at most `grain` (at least 1), each share's taken in ascending order by its
  // worker and whoever helps. `worker` is in [0, threads()) and selects private scratch. Returns when all is done.
  // An idle worker spins for some tens of microseconds before it sleeps, so forks in close succession cost no wake-up;
  // a worker that wakes late misses the fork and holds nobody up.
  void parallel_for(int64_t count, int64_t grain, RangeBody body);

 private:
  // places[i] is where worker i lies, 0 the caller; a CPU below 0 leaves it unpinned. REQUIRES: not empty.
  explicit ThreadPool(const std::vector<CpuPlace>& places);

  // One worker's part of the current range; `next` is the first index that nobody took.
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };

  void cut_shares() noexcept;
  void work(int worker);
  void run_pieces(int worker);
  [[nodiscard]] bool join(uint64_t& seen) noexcept;
  void leave() noexcept;
  void sleep_until_fork(uint64_t seen);

  std::vector<std::thread> workers_;
  std::thread::id pinned_caller_;
  int caller_cpu_ = -1;              // to be pinned to at the first fork
  std::unique_ptr<Share[]> shares_;  // by worker
  // The current fork: generation << 32 | kOpen | workers inside it. body_, count_, grain_ and the shares are written
  // while it is closed and nobody is inside.
  std::atomic<uint64_t> fork_{0};
  const RangeBody* body_ = nullptr;
  int64_t count_ = 0;
  int64_t grain_ = 1;
  alignas(64) std::atomic<bool> stop_{false};
  // Workers that sleep, or are about to.
  std::atomic<int> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
};

}  // namespace ps
