#include "apps/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace ps::apps {
namespace {
constexpr std::chrono::milliseconds kRedraw{100};
constexpr std::chrono::milliseconds kPatience{300};  // short work shows no bar
constexpr int kWidth = 30;
}  // namespace

ProgressBar::ProgressBar(std::string label, std::string unit, double unit_scale)
    : label_(std::move(label)), unit_(std::move(unit)), unit_scale_(unit_scale), is_terminal_(isatty(2) != 0) {}

ProgressBar::~ProgressBar() {
  if (is_visible_) fmt::print(stderr, "\r\x1b[K");
}

void ProgressBar::update(int64_t done, int64_t total) {
  const Clock::time_point now = Clock::now();
  if (!is_terminal_ || total <= 0 || now - start_ < kPatience || now - drawn_ < kRedraw) return;
  drawn_ = now;
  is_visible_ = true;
  const double share = std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
  const int filled = static_cast<int>(share * kWidth);
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double left = share > 0 ? seconds * (1 - share) / share : 0;
  fmt::print(stderr, "\r\x1b[K{} [{:#<{}}{:.<{}}] {:.1f}/{:.1f} {}, {:.0f} s left", label_, "", filled, "",
             kWidth - filled, static_cast<double>(done) / unit_scale_, static_cast<double>(total) / unit_scale_, unit_,
             left);
  std::fflush(stderr);
}

}  // namespace ps::apps
