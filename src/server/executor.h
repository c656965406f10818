// Where work can be sent: the I/O thread, or a pool of workers. Threading: post() may be called from any thread.
#pragma once

#include <functional>

namespace ps::server {

class Executor {
 public:
  virtual ~Executor() = default;
  // Runs `work` later, never inside this call. What is posted after the executor stopped is dropped.
  virtual void post(std::function<void()> work) = 0;
};

}  // namespace ps::server
