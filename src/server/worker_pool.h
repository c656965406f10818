// Threads for work that would hold up a stream: parsing bodies, tokenizing prompts, writing large replies.
// Work starts in the order of posting. Threading: post() from any thread; the destructor finishes what has started,
// drops the rest, and joins.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "server/executor.h"

namespace ps::server {

class WorkerPool final : public Executor {
 public:
  // REQUIRES: threads >= 1.
  explicit WorkerPool(int threads);
  ~WorkerPool() override;
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // An exception that leaves `work` is logged and ends that work only.
  void post(std::function<void()> work) override;

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_;
  bool stops_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace ps::server
