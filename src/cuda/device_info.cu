#include "cuda/device_info.h"

#include <cuda_runtime_api.h>

namespace ps::cuda {
namespace {

Status failure(const char* action, cudaError_t error) {
  return Status::unavailable(std::string("CUDA: ") + action + ": " + cudaGetErrorString(error));
}

}  // namespace

Result<std::vector<DeviceInfo>> visible_devices() {
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  // No driver (which also gives cudaErrorInsufficientDriver), or one without a device: an empty machine.
  if (counted == cudaErrorNoDevice || counted == cudaErrorInsufficientDriver) return std::vector<DeviceInfo>();
  if (counted != cudaSuccess) return failure("cannot count devices", counted);
  std::vector<DeviceInfo> devices;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    cudaDeviceProp properties{};
    if (const cudaError_t error = cudaGetDeviceProperties(&properties, ordinal); error != cudaSuccess) {
      return failure("cannot read device properties", error);
    }
    DeviceInfo info;
    info.ordinal = ordinal;
    info.name = properties.name;
    info.compute_major = properties.major;
    info.compute_minor = properties.minor;
    info.multiprocessors = properties.multiProcessorCount;
    info.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
    info.l2_cache_bytes = properties.l2CacheSize;
    info.is_supported = properties.major == 9 && properties.minor == 0;
    devices.push_back(std::move(info));
  }
  return devices;
}

}  // namespace ps::cuda
