#include "apps/run_clock.h"

#include <gtest/gtest.h>

#include <vector>

namespace ps::apps {
namespace {

// A machine whose time passes by hand and whose ceilings are those of a list, one after the other. A sample takes long.
struct Machine {
  double time = 0;
  std::vector<Ceilings> ceilings;
  size_t samples = 0;

  [[nodiscard]] Machine& watch() { return *this; }
  [[nodiscard]] double now() const { return time; }
  Ceilings sample(cpu::Isa) {
    time += 100;
    return ceilings.at(samples++);
  }
};

TEST(RunClock, LeavesSamplesOutAndWeighsCeilingsByTime) {
  Machine machine{.ceilings = {{10, 100}, {10, 300}, {20, 300}}};
  RunClock clock(machine, cpu::Isa::kAvx2, 2);
  clock.start();
  machine.time += 1;
  clock.may_pause();  // too early
  EXPECT_EQ(machine.samples, 1);
  EXPECT_EQ(clock.running(), 1);
  machine.time += 2;
  clock.may_pause();
  EXPECT_EQ(machine.samples, 2);
  machine.time += 1;
  clock.stop();
  EXPECT_EQ(clock.seconds(), 4);
  EXPECT_EQ(clock.ceilings().read_gbs, (3 * 10 + 1 * 15) / 4.0);
  EXPECT_EQ(clock.ceilings().peak_gflops, (3 * 200 + 1 * 300) / 4.0);
}

TEST(RunClock, StartsAnew) {
  Machine machine{.ceilings = {{1, 1}, {1, 1}, {5, 6}, {7, 6}}};
  RunClock clock(machine, cpu::Isa::kAvx2, 1);
  for (int run = 0; run < 2; ++run) {
    clock.start();
    machine.time += 0.5;
    clock.stop();
  }
  EXPECT_EQ(clock.seconds(), 0.5);
  EXPECT_EQ(clock.ceilings().read_gbs, 6);
  EXPECT_EQ(clock.ceilings().peak_gflops, 6);
}

}  // namespace
}  // namespace ps::apps
