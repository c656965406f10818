#include "cuda/device_info.h"

#include <gtest/gtest.h>

namespace ps::cuda {
namespace {

TEST(DeviceInfo, ListsWhatIsThereAndAnEmptyMachineIsNoError) {
  const auto devices = visible_devices();
  ASSERT_TRUE(devices.ok()) << devices.status().to_string();
  for (size_t i = 0; i < devices.value().size(); ++i) {
    const DeviceInfo& device = devices.value()[i];
    EXPECT_EQ(device.ordinal, static_cast<int32_t>(i));
    EXPECT_FALSE(device.name.empty());
    EXPECT_GE(device.compute_major, 5);
    EXPECT_GT(device.memory_bytes, int64_t{1} << 28);
    EXPECT_GT(device.multiprocessors, 0);
    EXPECT_EQ(device.is_supported, device.compute_major == 9 && device.compute_minor == 0);
  }
}

}  // namespace
}  // namespace ps::cuda
