// Helpers for unit tests: a model of small dims, and its geometry. Test programs only.
#pragma once

#include <gtest/gtest.h>

#include <utility>

#include "cache/geometry.h"
#include "checkpoint/config.h"
#include "checkpoint/topology.h"

namespace ps::cache::test {

// Two owners, of ratio 2 and 1; five rings of 20 rows, seven with drafts; three Engram ids.
inline checkpoint::TextConfig small_config() {
  checkpoint::TextConfig text;
  text.head_dim = 64;
  text.index_head_dim = 32;
  text.index_n_heads = 2;
  text.index_topk = 16;
  text.num_hidden_layers = 5;
  text.num_nextn_predict_layers = 2;
  text.compress_ratios = {0, 2, 2, 1, 1, 0, 0};
  text.kv_source_layer_ids = {1, 3};
  text.index_source_layer_ids = {1, 3};
  text.engram_layer_ids = {1};
  text.engram_num_embeddings = {660};
  text.engram_max_ngram_size = 4;
  text.dspark_block_size = 3;
  text.dspark_target_layer_ids = {3, 4};
  text.sliding_window = 20;
  return text;
}

inline CacheGeometry small_geometry(const CacheOptions& options) {
  const checkpoint::TextConfig text = small_config();
  Result<CacheGeometry> geometry = CacheGeometry::create(text, checkpoint::layer_topology(text), options);
  EXPECT_TRUE(geometry.ok()) << geometry.status().to_string();
  return std::move(geometry).value();
}

}  // namespace ps::cache::test
