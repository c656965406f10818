#include "base/cpu_info.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

namespace ps {
namespace {

TEST(CpuInfo, AgreesWithTheCompilersDetection) {
  const CpuInfo info = cpu_info();
  EXPECT_EQ(info.has_avx2, __builtin_cpu_supports("avx2") != 0);
  EXPECT_EQ(info.has_fma, __builtin_cpu_supports("fma") != 0);
  EXPECT_EQ(info.has_avx512, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                                 __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"));
  EXPECT_EQ(info.has_avx512_vnni, info.has_avx512 && __builtin_cpu_supports("avx512vnni"));
  EXPECT_EQ(info.has_avx512_bf16, info.has_avx512 && __builtin_cpu_supports("avx512bf16"));
}

TEST(CpuInfo, CountsAreConsistent) {
  const CpuInfo info = cpu_info();
  EXPECT_FALSE(info.name.empty());
  EXPECT_GE(info.physical_cores, 1);
  EXPECT_LE(info.physical_cores, info.logical_cores);
  EXPECT_GE(info.numa_nodes, 1);
  EXPECT_LE(info.numa_nodes, info.logical_cores);
  EXPECT_GT(info.available_memory_bytes, 0);
  EXPECT_LE(info.available_memory_bytes, info.memory_bytes);
}

TEST(CpuInfo, FollowsTheProcessorSetOfTheThread) {
  std::thread([] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    const CpuInfo info = cpu_info();
    EXPECT_EQ(info.logical_cores, 1);
    EXPECT_EQ(info.physical_cores, 1);
    EXPECT_EQ(info.numa_nodes, 1);
  }).join();
}

}  // namespace
}  // namespace ps
