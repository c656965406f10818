// The rotation of one pair of channels at one position, for every backend that runs on the host (elementwise.h).
#pragma once

#include <cmath>
#include <cstdint>

namespace ps::ops {

struct Rotation {
  float cosine = 1;
  float sine = 0;
};

[[nodiscard]] inline Rotation rotation(int32_t position, float inverse_frequency, bool inverse) noexcept {
  const double angle = static_cast<float>(position) * inverse_frequency;
  const double sine = std::sin(angle);
  return {static_cast<float>(std::cos(angle)), static_cast<float>(inverse ? -sine : sine)};
}

}  // namespace ps::ops
