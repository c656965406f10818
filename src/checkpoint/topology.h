// What each layer does besides its window (runtime.md 0.3), derived from the config and never configured.
//
// Front to back: ratio 0 is WINDOW. Otherwise the owner is the nearest KV source at or before the layer that has the
// same ratio, the index source is the nearest index source at or before it; the layer is FULL if it owns, REINDEX if it
// is only an index source, REUSE if neither. Index sources behind the candidate source score only its candidate blocks.
// Threading: plain values.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "checkpoint/config.h"

namespace ps::checkpoint {

enum class LayerRole : uint8_t {
  kWindow,   // sliding window only
  kFull,     // writes compressed rows and index keys, and selects
  kReindex,  // selects with its own query over another layer's keys
  kReuse,    // uses rows and selection of earlier layers
};

// "WINDOW", "FULL", "REINDEX", "REUSE".
[[nodiscard]] std::string_view layer_role_name(LayerRole role) noexcept;

struct LayerInfo {
  int layer = 0;          // backbone layer id, or the stage number of a draft stage
  bool is_draft = false;  // mtp.<layer> instead of layers.<layer>
  int ratio = 0;          // tokens per compressed row: 0 (none), 1, 2
  LayerRole role = LayerRole::kWindow;
  int owner = -1;         // layer whose compressed rows it reads; -1 for WINDOW
  int index_source = -1;  // layer whose selection it reads; -1 for WINDOW
  int index_group = -1;   // ordinal of the maximal run with equal (ratio, owner, index source); -1 for WINDOW
  bool is_candidate_source = false;
  bool uses_candidates = false;  // its selection is restricted to the published candidate blocks
  int engram = -1;               // ordinal in engram_layer_ids, or -1
  int draft_tap = -1;            // ordinal in dspark_target_layer_ids, or -1

  [[nodiscard]] bool is_full() const noexcept { return role == LayerRole::kFull; }
  // Has an indexer query (indexer.wq_b, weights_proj): FULL or REINDEX.
  [[nodiscard]] bool is_index_source() const noexcept {
    return role == LayerRole::kFull || role == LayerRole::kReindex;
  }
};

struct LayerTopology {
  std::vector<LayerInfo> layers;   // the backbone's, in order
  std::vector<LayerInfo> drafts;   // the draft stages'; all WINDOW
  std::vector<int> owners;         // FULL layers, ascending
  std::vector<int> index_sources;  // FULL and REINDEX layers, ascending
  int candidate_source = -1;
  int num_index_groups = 0;

  // Backbone layers of that role; 2, 4, 4, 30 in the published model.
  [[nodiscard]] int count(LayerRole role) const noexcept;
  // Ordinal of an owner in `owners`.
  // REQUIRES: the layer is FULL.
  [[nodiscard]] int owner_ordinal(int layer) const noexcept;
};

// The roles, or nothing usable and the reasons in `problems` (appended).
[[nodiscard]] LayerTopology derive_topology(const TextConfig& text, std::vector<Problem>& problems);

// REQUIRES: a legal config (validate() is empty).
[[nodiscard]] LayerTopology layer_topology(const TextConfig& text);

}  // namespace ps::checkpoint
