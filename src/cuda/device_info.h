// The CUDA devices that this process sees. A machine without a device or without a driver has none, which is no error.
// Host code only; asks the runtime on each call and creates no context. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace ps::cuda {

struct DeviceInfo {
  int32_t ordinal = 0;  // as CUDA_VISIBLE_DEVICES numbers them
  std::string name;
  int32_t compute_major = 0;
  int32_t compute_minor = 0;
  int32_t multiprocessors = 0;
  int64_t memory_bytes = 0;
  int64_t l2_cache_bytes = 0;
  bool is_supported = false;  // kernels of this build run on it (compute capability 9.0)
};

// unavailable, with the runtime's words, when a driver is there but does not answer as it should.
[[nodiscard]] Result<std::vector<DeviceInfo>> visible_devices();

}  // namespace ps::cuda
