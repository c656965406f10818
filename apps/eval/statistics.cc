#include "apps/eval/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ps::apps::eval {
namespace {
constexpr double kNormalQuantile = 1.959963984540054;  // 97.5 %
}  // namespace

Interval wilson(int64_t hits, int64_t of) noexcept {
  if (of == 0) return {0, 0, 1};
  const auto n = static_cast<double>(of);
  const double share = static_cast<double>(hits) / n;
  const double z2 = kNormalQuantile * kNormalQuantile;
  const double center = (share + z2 / (2 * n)) / (1 + z2 / n);
  const double half = kNormalQuantile * std::sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n);
  // The exact bounds at the ends: rounding must not leave a share outside its interval.
  return {share, hits == 0 ? 0 : std::max(0.0, center - half), hits == of ? 1 : std::min(1.0, center + half)};
}

Interval paired_difference(const PairedCounts& counts) noexcept {
  if (counts.cases == 0) return {0, -1, 1};
  const auto n = static_cast<double>(counts.cases);
  const double value = static_cast<double>(counts.only_second - counts.only_first) / n;
  const double first = (static_cast<double>(counts.only_first) + 1) / (n + 2);
  const double second = (static_cast<double>(counts.only_second) + 1) / (n + 2);
  const double center = second - first;
  const double half = kNormalQuantile * std::sqrt((first + second - center * center) / (n + 2));
  return {value, std::max(-1.0, std::min(value, center - half)), std::min(1.0, std::max(value, center + half))};
}

Interval clustered_mean(std::span<const Cluster> clusters) noexcept {
  double count = 0;
  double sum = 0;
  for (const Cluster& cluster : clusters) {
    count += cluster.count;
    sum += cluster.sum;
  }
  const double mean = sum / count;
  if (clusters.size() < 2) {
    return {mean, -std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
  }
  double squares = 0;
  for (const Cluster& cluster : clusters) {
    const double residual = cluster.sum - mean * cluster.count;
    squares += residual * residual;
  }
  const auto n = static_cast<double>(clusters.size());
  const double half = kNormalQuantile * std::sqrt(n / (n - 1) * squares) / count;
  return {mean, mean - half, mean + half};
}

}  // namespace ps::apps::eval
