#include "base/thread_pool.h"

#include <sched.h>
#include <xmmintrin.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <utility>

#include "base/macros.h"

namespace ps {
namespace {
constexpr unsigned kFlushToZero = 1u << 15;
constexpr unsigned kDenormalsAreZero = 1u << 6;
}  // namespace

FlushSubnormals::FlushSubnormals() noexcept : saved_(_mm_getcsr()) {
  _mm_setcsr(saved_ | kFlushToZero | kDenormalsAreZero);
}
FlushSubnormals::~FlushSubnormals() { _mm_setcsr(saved_); }

ThreadPool::ThreadPool(int threads) {
  PS_CHECK(threads >= 1, threads);
  workers_.reserve(static_cast<size_t>(threads) - 1);
  for (int worker = 1; worker < threads; ++worker) workers_.emplace_back([this, worker] { work(worker); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::parallel_for(int64_t count, int64_t grain, RangeBody body) {
  if (count <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  if (workers_.empty() || count <= grain) {
    const FlushSubnormals flush;
    for (int64_t begin = 0; begin < count; begin += grain) body(begin, std::min(begin + grain, count), 0);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    PS_CHECK(body_ == nullptr, "parallel_for is not re-entrant");
    body_ = &body;
    count_ = count;
    grain_ = grain;
    next_.store(0, std::memory_order_relaxed);
    busy_ = static_cast<int>(workers_.size());
    ++generation_;
  }
  wake_.notify_all();
  run_pieces(0);
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return busy_ == 0; });
  body_ = nullptr;
}

void ThreadPool::run_pieces(int worker) {
  const FlushSubnormals flush;
  while (true) {
    const int64_t begin = next_.fetch_add(grain_, std::memory_order_relaxed);
    if (begin >= count_) return;
    (*body_)(begin, std::min(begin + grain_, count_), worker);
  }
}

void ThreadPool::work(int worker) {
  uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return stop_ || generation_ != seen; });
    if (stop_) return;
    seen = generation_;
    lock.unlock();
    run_pieces(worker);
    lock.lock();
    if (--busy_ == 0) done_.notify_one();
  }
}

int physical_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) {
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  }
  std::set<std::pair<std::string, std::string>> cores;
  int logical = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &set)) continue;
    ++logical;
    const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    std::string package;
    std::string core;
    std::ifstream(folder + "physical_package_id") >> package;
    std::ifstream(folder + "core_id") >> core;
    cores.emplace(package, core.empty() ? "cpu" + std::to_string(cpu) : core);
  }
  return std::max(1, std::min(logical, static_cast<int>(cores.size())));
}

}  // namespace ps
