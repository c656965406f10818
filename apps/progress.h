// A one-line progress bar on standard error: only on a terminal, at most ten times a second, erased when done.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace ps::apps {

class ProgressBar {
 public:
  // `unit_scale` divides the counts for display, e.g. 1e9 for "GB".
  ProgressBar(std::string label, std::string unit, double unit_scale);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(int64_t done, int64_t total);

 private:
  using Clock = std::chrono::steady_clock;
  std::string label_;
  std::string unit_;
  double unit_scale_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point drawn_{};
  bool is_terminal_;
  bool is_visible_ = false;
};

}  // namespace ps::apps
