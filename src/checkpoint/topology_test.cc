// Layer roles of the published model, of small ones, and every topology that is refused (runtime.md 0.3).
#include "checkpoint/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "checkpoint/test_data.h"

namespace ps::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Topology, CountsOfThePublishedModel) {
  const LayerTopology topology = layer_topology(test::config_of_file().text_config);
  EXPECT_EQ(topology.count(LayerRole::kWindow), 2);
  EXPECT_EQ(topology.count(LayerRole::kFull), 4);
  EXPECT_EQ(topology.count(LayerRole::kReindex), 4);
  EXPECT_EQ(topology.count(LayerRole::kReuse), 30);
  ASSERT_EQ(topology.drafts.size(), 3u);
  for (const LayerInfo& stage : topology.drafts) EXPECT_EQ(stage.role, LayerRole::kWindow);
  EXPECT_THAT(topology.owners, ElementsAre(2, 8, 14, 20));
  EXPECT_THAT(topology.index_sources, ElementsAre(2, 8, 14, 20, 24, 28, 32, 36));
  EXPECT_EQ(topology.candidate_source, 20);
  EXPECT_EQ(topology.num_index_groups, 8);
  EXPECT_EQ(topology.owner_ordinal(14), 2);
}

TEST(Topology, LayersOfThePublishedModel) {
  const LayerTopology topology = layer_topology(test::config_of_file().text_config);
  std::set<int> candidate_users;
  for (const LayerInfo& layer : topology.layers) {
    if (layer.uses_candidates) candidate_users.insert(layer.layer);
    EXPECT_EQ(layer.is_candidate_source, layer.layer == 20);
    EXPECT_EQ(layer.engram, layer.layer == 1 ? 0 : layer.layer == 14 ? 1 : -1);
    EXPECT_EQ(layer.draft_tap, layer.layer >= 37 ? layer.layer - 37 : -1);
  }
  EXPECT_THAT(candidate_users, ElementsAre(24, 28, 32, 36));
  const auto expect = [&](int id, LayerRole role, int ratio, int owner, int source, int group) {
    const LayerInfo& layer = topology.layers[static_cast<size_t>(id)];
    EXPECT_EQ(layer.role, role) << id;
    EXPECT_EQ(layer.ratio, ratio) << id;
    EXPECT_EQ(layer.owner, owner) << id;
    EXPECT_EQ(layer.index_source, source) << id;
    EXPECT_EQ(layer.index_group, group) << id;
  };
  expect(0, LayerRole::kWindow, 0, -1, -1, -1);
  expect(2, LayerRole::kFull, 2, 2, 2, 0);
  expect(7, LayerRole::kReuse, 2, 2, 2, 0);
  expect(14, LayerRole::kFull, 2, 14, 14, 2);
  expect(19, LayerRole::kReuse, 2, 14, 14, 2);
  expect(20, LayerRole::kFull, 1, 20, 20, 3);
  expect(23, LayerRole::kReuse, 1, 20, 20, 3);
  expect(24, LayerRole::kReindex, 1, 20, 24, 4);
  expect(39, LayerRole::kReuse, 1, 20, 36, 7);
}

// A small legal text config with the given lists.
TextConfig small(std::vector<int> ratios, std::vector<int> owners, std::vector<int> sources, int candidates = -1) {
  TextConfig text;
  text.num_hidden_layers = static_cast<int64_t>(ratios.size());
  text.compress_ratios = std::move(ratios);
  text.kv_source_layer_ids = std::move(owners);
  text.index_source_layer_ids = std::move(sources);
  text.candidate_source_layer_id = candidates;
  return text;
}

std::string problems_of(const TextConfig& text) {
  std::vector<Problem> problems;
  static_cast<void>(derive_topology(text, problems));
  return problems.empty() ? "none" : std::string(join_problems(problems).message());
}

// A window layer ends an index group though owner and source stay.
TEST(Topology, WindowLayersMayInterrupt) {
  const TextConfig text = small({1, 0, 1, 2, 2}, {0, 3}, {0, 3});
  ASSERT_EQ(problems_of(text), "none");
  const LayerTopology topology = layer_topology(text);
  EXPECT_EQ(topology.layers[2].owner, 0);
  EXPECT_EQ(topology.layers[2].index_group, 1);
  EXPECT_EQ(topology.layers[4].index_group, 2);
}

// The owner is the nearest of the same ratio, also when one of another ratio is nearer.
TEST(Topology, OwnersAreFoundByRatio) {
  const TextConfig text = small({2, 1, 2}, {0, 1}, {0, 1, 2});
  ASSERT_EQ(problems_of(text), "none");
  const LayerTopology topology = layer_topology(text);
  EXPECT_EQ(topology.layers[2].owner, 0);
  EXPECT_EQ(topology.layers[2].role, LayerRole::kReindex);
}

TEST(Topology, RefusesWhatWouldReadGarbage) {
  TextConfig text = small({2, 2, 1}, {0}, {0});
  EXPECT_THAT(problems_of(text), HasSubstr("has no owner of ratio 1 at or before layer 2"));
  EXPECT_THAT(problems_of(small({2, 2}, {1}, {1})), HasSubstr("has no owner of ratio 2 at or before layer 0"));
  EXPECT_THAT(problems_of(small({2, 2}, {0}, {})), HasSubstr("has layer 0, which is not in index_source_layer_ids"));
  EXPECT_THAT(problems_of(small({0, 2}, {0, 1}, {1})), HasSubstr("kv_source_layer_ids has layer 0, which has ratio 0"));
  EXPECT_THAT(problems_of(small({0, 2}, {1}, {0, 1})),
              HasSubstr("index_source_layer_ids has layer 0, which has ratio 0"));
  EXPECT_THAT(problems_of(small({2, 2}, {1, 0}, {0, 1})), HasSubstr("must be ascending without repeats: 0 follows 1"));
  EXPECT_THAT(problems_of(small({2, 2}, {0}, {0, 0})), HasSubstr("must be ascending without repeats: 0 follows 0"));
  EXPECT_THAT(problems_of(small({2, 2}, {0, 2}, {0})), HasSubstr("has layer 2: legal layers are 0 to 1"));
  EXPECT_THAT(problems_of(small({2, 3}, {0}, {0})), HasSubstr("compress_ratios [1] = 3: legal: 0, 1, 2"));
  // A selection over the rows of another owner.
  EXPECT_THAT(problems_of(small({2, 1, 2}, {0, 1}, {0, 1})),
              HasSubstr("has no source of owner 0 for layer 2: the nearest is 1"));
}

TEST(Topology, RefusesIllegalCandidateSources) {
  EXPECT_THAT(problems_of(small({1, 1}, {0}, {0}, 1)),
              HasSubstr("candidate_source_layer_id = 1: must be an index source"));
  EXPECT_THAT(problems_of(small({1, 1}, {0}, {0}, 2)),
              HasSubstr("candidate_source_layer_id = 2: legal values are -1 (none) and 0 to 1"));
  EXPECT_THAT(problems_of(small({2, 1}, {0, 1}, {0, 1}, 0)),
              HasSubstr("layer 1 would use its candidates, but reads rows of owner 1, not 0"));
  EXPECT_EQ(problems_of(small({1, 1}, {0}, {0, 1}, 0)), "none");
  EXPECT_EQ(problems_of(small({1, 1}, {0}, {0, 1}, 1)), "none");
}

TEST(Topology, RefusesIllegalDrafts) {
  TextConfig text = small({1, 1, 0, 0}, {0}, {0});
  text.num_hidden_layers = 2;
  EXPECT_THAT(problems_of(text), HasSubstr("has 4 entries: num_hidden_layers + num_nextn_predict_layers = 2"));
  text.num_nextn_predict_layers = 2;
  text.dspark_target_layer_ids = {1};
  EXPECT_EQ(problems_of(text), "none");
  text.dspark_target_layer_ids = {2};
  EXPECT_THAT(problems_of(text), HasSubstr("dspark_target_layer_ids has layer 2: legal layers are 0 to 1"));
  text.dspark_target_layer_ids = {1};
  text.compress_ratios[3] = 1;
  EXPECT_THAT(problems_of(text), HasSubstr("compress_ratios [3] = 1: a draft stage has ratio 0"));
  text.engram_layer_ids = {1, 0};
  EXPECT_THAT(problems_of(text), HasSubstr("engram_layer_ids must be ascending"));
}

}  // namespace
}  // namespace ps::checkpoint
