#include "base/topology.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <string>
#include <thread>

namespace ps {
namespace {

// Two packages with two nodes each, four cores per node, two hyper-threads per core, numbered as Linux does it: first
// all cores, then all their siblings.
std::vector<CpuPlace> server_cpus() {
  std::vector<CpuPlace> cpus;
  for (int cpu = 0; cpu < 32; ++cpu) {
    const int core = cpu % 16;
    cpus.push_back({cpu, core / 8, core % 8, core / 4});
  }
  return cpus;
}

std::string cpu_list(const std::vector<CpuPlace>& places) {
  std::string text;
  for (const CpuPlace& place : places) text += (text.empty() ? "" : " ") + std::to_string(place.cpu);
  return text;
}

// pitfalls G7: threads for every hyper-thread made another engine ten times slower.
TEST(PitfallG7, HyperThreadsOfACoreCountOnce) {
  EXPECT_EQ(cpu_list(one_per_core(server_cpus())), "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15");
  // A CPU set that holds only the siblings of some cores still has these cores.
  std::vector<CpuPlace> some = server_cpus();
  std::erase_if(some, [](const CpuPlace& place) { return place.cpu < 14 || (place.cpu > 19 && place.cpu < 30); });
  EXPECT_EQ(cpu_list(one_per_core(some)), "16 17 18 19 14 15");
  // Neighbouring numbers for siblings, as other systems do it.
  std::vector<CpuPlace> pairs;
  for (int cpu = 0; cpu < 8; ++cpu) pairs.push_back({cpu, 0, cpu / 2, 0});
  EXPECT_EQ(cpu_list(one_per_core(pairs)), "0 2 4 6");
}

TEST(PitfallG7, ThisProcessGetsOneThreadPerPhysicalCoreOfItsSet) {
  const std::vector<CpuPlace> cores = physical_core_places();
  ASSERT_FALSE(cores.empty());
  EXPECT_EQ(physical_cores(), static_cast<int>(cores.size()));
  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  EXPECT_LE(physical_cores(), CPU_COUNT(&set));
  for (const CpuPlace& core : cores) EXPECT_TRUE(CPU_ISSET(static_cast<size_t>(core.cpu), &set)) << core.cpu;
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(cores.back().cpu), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(cpu_list(physical_core_places()), std::to_string(cores.back().cpu));
    EXPECT_EQ(physical_cores(), 1);
  }).join();
}

TEST(PlaceWorkers, UsesEveryNodeAndKeepsItsWorkersTogether) {
  const std::vector<CpuPlace> cores = one_per_core(server_cpus());
  EXPECT_EQ(cpu_list(place_workers(cores, 16)), cpu_list(cores));
  EXPECT_EQ(cpu_list(place_workers(cores, 8)), "0 1 4 5 8 9 12 13");
  EXPECT_EQ(cpu_list(place_workers(cores, 4)), "0 4 8 12");
  EXPECT_EQ(cpu_list(place_workers(cores, 1)), "0");
  EXPECT_EQ(cpu_list(place_workers({cores[0], cores[1]}, 5)), "0 1 0 1 0");
  for (int threads = 1; threads < 70; ++threads) {
    EXPECT_EQ(static_cast<int>(place_workers(cores, threads).size()), threads);
  }
}

TEST(NodeShares, CoverTheWholeInTheOrderOfWorkers) {
  const std::vector<NodeShare> shares = node_shares(place_workers(one_per_core(server_cpus()), 8));
  ASSERT_EQ(shares.size(), 4);
  for (size_t i = 0; i < shares.size(); ++i) {
    EXPECT_EQ(shares[i].node, static_cast<int>(i));
    EXPECT_DOUBLE_EQ(shares[i].begin, 0.25 * static_cast<double>(i));
    EXPECT_DOUBLE_EQ(shares[i].end, 0.25 * static_cast<double>(i + 1));
  }
  const std::vector<NodeShare> uneven = node_shares({{0, 0, 0, 2}, {1, 0, 1, 5}, {2, 0, 2, 5}, {3, 0, 3, 5}});
  ASSERT_EQ(uneven.size(), 2);
  EXPECT_EQ(uneven[1].node, 5);
  EXPECT_DOUBLE_EQ(uneven[0].end, 0.25);
  EXPECT_DOUBLE_EQ(uneven[1].end, 1.0);
}

}  // namespace
}  // namespace ps
