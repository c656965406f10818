#include "server/worker_pool.h"

#include <exception>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/process.h"

namespace ps::server {

WorkerPool::WorkerPool(int threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
}

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::post(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    if (stops_) return;
    queue_.push_back(std::move(work));
  }
  wake_.notify_one();
}

void WorkerPool::run() {
  name_thread("pagestate-work");
  while (true) {
    std::function<void()> work;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stops_ || !queue_.empty(); });
      if (stops_) return;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    try {
      work();
    } catch (const std::exception& error) {
      log_error(std::string("event=worker_exception what=\"") + error.what() + "\"");
    }
  }
}

}  // namespace ps::server
