// What an engine of the published model takes beside weights and cache, from its config alone.
#include <gtest/gtest.h>

#include "base/mapped_file.h"
#include "checkpoint/config.h"
#include "checkpoint/topology.h"
#include "cpu/table.h"
#include "engine/planner.h"

namespace ps::engine {
namespace {

// 512 MB for everything but the mapped model and the cache. Other parts of a process (tokenizer, request queue) need
// some of it; `event=memory` of a server tells how much.
constexpr int64_t kMostScratch = 430'000'000;
constexpr int64_t kMoreForAThread = 2'600'000;

TEST(Memory, AStepOf2048RowsOfThePublishedModelFitsBesideCacheAndWeights) {
  const std::string text = read_file(std::string(PAGESTATE_TEST_DATA) + "/data/config.json", 1 << 20).value();
  const checkpoint::Config config = checkpoint::parse_config(text).value();
  const checkpoint::LayerTopology topology = checkpoint::layer_topology(config.text_config);
  EngineOptions options;
  options.max_context = 32768;
  options.token_budget = 2048;
  options.pages = 128;
  for (const cpu::Isa isa : cpu::kIsas) {
    if (!cpu::supported(isa).ok()) continue;
    for (const int threads : {2, 16}) {
      options.threads = threads;
      const MemoryPlan plan = plan_memory(config, topology, *cpu::table_for(isa).value(), options).value();
      EXPECT_LE(plan.scratch_bytes + plan.logit_bytes, kMostScratch + threads * kMoreForAThread)
          << cpu::isa_name(isa) << ' ' << threads;
      EXPECT_GT(plan.scratch_bytes, kMostScratch / 4) << "the test looks at the wrong number";
    }
  }
}

TEST(Memory, CopiedWeightsCountAsMemoryOfTheMachine) {
  const std::string text = read_file(std::string(PAGESTATE_TEST_DATA) + "/data/config.json", 1 << 20).value();
  const checkpoint::Config config = checkpoint::parse_config(text).value();
  const checkpoint::LayerTopology topology = checkpoint::layer_topology(config.text_config);
  EngineOptions options;
  options.max_context = 1024;
  options.pages = 8;
  options.token_budget = 648;
  EXPECT_TRUE(plan_memory(config, topology, ops::reference_table(), options).ok());
  options.copied_weight_bytes = int64_t{1} << 50;
  const Status refused = plan_memory(config, topology, ops::reference_table(), options).status();
  EXPECT_EQ(refused.code(), Code::kExhausted);
  EXPECT_NE(refused.message().find("copied weights 1125899906842624"), std::string::npos) << refused.message();
}

}  // namespace
}  // namespace ps::engine
