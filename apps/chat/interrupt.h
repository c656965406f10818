// Ctrl-C as a question instead of an end: while an object lives, SIGINT sets a flag and interrupts a blocking read.
// Threading: one object at a time in the process; ask from any thread.
#pragma once

#include <csignal>

namespace ps::apps::chat {

class InterruptFlag {
 public:
  InterruptFlag();
  ~InterruptFlag();  // puts the former handler back
  InterruptFlag(const InterruptFlag&) = delete;
  InterruptFlag& operator=(const InterruptFlag&) = delete;

  [[nodiscard]] bool is_set() const noexcept;
  void clear() noexcept;

 private:
  struct sigaction former_ = {};
};

}  // namespace ps::apps::chat
