#include "base/thread_pool.h"

#include <sched.h>
#include <xmmintrin.h>

#include <algorithm>
#include <chrono>

#include "base/macros.h"

namespace ps {
namespace {
constexpr unsigned kFlushToZero = 1u << 15;
constexpr unsigned kDenormalsAreZero = 1u << 6;

constexpr uint64_t kOpen = uint64_t{1} << 31;
constexpr uint64_t kInside = kOpen - 1;  // mask of the count
constexpr std::chrono::microseconds kSpin{40};

// Waits for `done` for at most kSpin.
template <typename Done>
bool spin_until(const Done& done) noexcept {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 16; ++i) {
      if (done()) return true;
      _mm_pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

void pin_to(int cpu) noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(cpu), &set);
  (void)sched_setaffinity(0, sizeof set, &set);  // a set that shrank meanwhile: the thread stays where it may run
}

std::vector<CpuPlace> places_of(int threads, Pinning pinning) {
  PS_CHECK(threads >= 1, threads);
  if (pinning == Pinning::kCores) {
    const std::vector<CpuPlace> cores = physical_core_places();
    if (!cores.empty()) return place_workers(cores, threads);
  }
  return std::vector<CpuPlace>(static_cast<size_t>(threads), CpuPlace{.cpu = -1});
}
}  // namespace

FlushSubnormals::FlushSubnormals() noexcept : saved_(_mm_getcsr()) {
  _mm_setcsr(saved_ | kFlushToZero | kDenormalsAreZero);
}
FlushSubnormals::~FlushSubnormals() { _mm_setcsr(saved_); }

ThreadPool::ThreadPool(int threads, Pinning pinning) : ThreadPool(places_of(threads, pinning)) {}

ThreadPool::ThreadPool(const std::vector<CpuPlace>& places) {
  PS_CHECK(!places.empty(), places.size());
  shares_ = std::make_unique<Share[]>(places.size());
  caller_cpu_ = places.front().cpu;
  workers_.reserve(places.size() - 1);
  for (size_t worker = 1; worker < places.size(); ++worker) {
    workers_.emplace_back([this, worker, cpu = places[worker].cpu] {
      if (cpu >= 0) pin_to(cpu);
      work(static_cast<int>(worker));
    });
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_.store(true);
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::parallel_for(int64_t count, int64_t grain, RangeBody body) {
  if (count <= 0) return;
  if (caller_cpu_ >= 0 && pinned_caller_ != std::this_thread::get_id()) {
    pin_to(caller_cpu_);
    pinned_caller_ = std::this_thread::get_id();
  }
  grain = std::max<int64_t>(grain, 1);
  if (workers_.empty() || count <= grain) {
    const FlushSubnormals flush;
    for (int64_t begin = 0; begin < count; begin += grain) body(begin, std::min(begin + grain, count), 0);
    return;
  }
  PS_CHECK((fork_.load() & kOpen) == 0, "parallel_for is not re-entrant");
  body_ = &body;
  count_ = count;
  grain_ = grain;
  cut_shares();
  const uint64_t generation = (fork_.load() >> 32) + 1;
  fork_.store(generation << 32 | kOpen);
  // Sequentially consistent on both sides: a worker that this misses has seen the new generation before it sleeps.
  if (sleepers_.load() > 0) {
    {
      const std::lock_guard lock(mutex_);
    }
    wake_.notify_all();
  }
  run_pieces(0);
  fork_.fetch_and(~kOpen);
  const auto is_empty = [this] { return (fork_.load() & kInside) == 0; };
  while (!spin_until(is_empty)) {
    const uint64_t now = fork_.load();
    if ((now & kInside) != 0) fork_.wait(now);
  }
}

// Cuts lie between pieces, so that a share ends where a piece does.
void ThreadPool::cut_shares() noexcept {
  const int64_t pieces = (count_ + grain_ - 1) / grain_;
  int64_t begin = 0;
  for (int worker = 0; worker < threads(); ++worker) {
    const int64_t cut = pieces * (worker + 1) / threads();
    Share& share = shares_[static_cast<size_t>(worker)];
    share.next.store(begin, std::memory_order_relaxed);
    share.end = begin = std::min(cut * grain_, count_);
  }
}

void ThreadPool::run_pieces(int worker) {
  const FlushSubnormals flush;
  for (int turn = 0; turn < threads(); ++turn) {
    Share& share = shares_[static_cast<size_t>((worker + turn) % threads())];
    while (share.next.load(std::memory_order_relaxed) < share.end) {
      const int64_t begin = share.next.fetch_add(grain_, std::memory_order_relaxed);
      if (begin >= share.end) break;
      (*body_)(begin, std::min(begin + grain_, share.end), worker);
    }
  }
}

// Enters a fork that is open and newer than `seen`.
bool ThreadPool::join(uint64_t& seen) noexcept {
  uint64_t now = fork_.load();
  while ((now & kOpen) != 0 && now >> 32 != seen) {
    if (fork_.compare_exchange_weak(now, now + 1)) {
      seen = now >> 32;
      return true;
    }
  }
  return false;
}

void ThreadPool::leave() noexcept {
  if ((fork_.fetch_sub(1) & (kInside | kOpen)) == 1) fork_.notify_one();
}

void ThreadPool::sleep_until_fork(uint64_t seen) {
  std::unique_lock lock(mutex_);
  sleepers_.fetch_add(1);
  wake_.wait(lock, [&] {
    const uint64_t now = fork_.load();
    return stop_.load() || ((now & kOpen) != 0 && now >> 32 != seen);
  });
  sleepers_.fetch_sub(1);
}

void ThreadPool::work(int worker) {
  uint64_t seen = 0;
  while (!stop_.load()) {
    bool inside = false;
    const bool awake = spin_until([&] { return (inside = join(seen)) || stop_.load(); });
    if (inside) {
      run_pieces(worker);
      leave();
    } else if (!awake) {
      sleep_until_fork(seen);
    }
  }
}

}  // namespace ps
