// Confidence intervals of what an evaluation measures. All are 95 % and two-sided. Threading: pure functions.
#pragma once

#include <cstdint>
#include <span>

namespace ps::apps::eval {

struct Interval {
  double value = 0;
  double low = 0;
  double high = 0;
};

// Share of hits with Wilson's score interval; of = 0 gives the interval [0, 1] around 0.
[[nodiscard]] Interval wilson(int64_t hits, int64_t of) noexcept;

// Outcomes of two runs on the same cases.
struct PairedCounts {
  int64_t cases = 0;
  int64_t only_first = 0;   // right in the first run alone
  int64_t only_second = 0;  // right in the second run alone
};
// Share of the second less share of the first. The interval is Bonett and Price's, which holds for small counts too:
// one more discordant case is counted on either side. cases = 0 gives [-1, 1] around 0.
[[nodiscard]] Interval paired_difference(const PairedCounts& counts) noexcept;

// One cluster of observations, e.g. the tokens of a text: their number and the sum of what was observed.
struct Cluster {
  double count = 0;
  double sum = 0;
};
// Sum over count of all clusters; the interval takes clusters as the independent units (linearized ratio). One cluster
// has no spread: low = -infinity, high = infinity. REQUIRES: at least one cluster, all counts positive.
[[nodiscard]] Interval clustered_mean(std::span<const Cluster> clusters) noexcept;

}  // namespace ps::apps::eval
