#include "checkpoint/topology.h"

#include <algorithm>
#include <string>

#include "base/macros.h"

namespace ps::checkpoint {
namespace {

bool contains(const std::vector<int>& list, int value) { return std::binary_search(list.begin(), list.end(), value); }

int ordinal(const std::vector<int>& list, int value) {
  const auto found = std::lower_bound(list.begin(), list.end(), value);
  return found != list.end() && *found == value ? static_cast<int>(found - list.begin()) : -1;
}

class Deriver {
 public:
  Deriver(const TextConfig& text, std::vector<Problem>& problems) : text_(text), problems_(problems) {}

  LayerTopology run() {
    const size_t before = problems_.size();
    check_lists();
    // Roles are derived from sorted lists of legal layers only.
    if (problems_.size() != before) return {};
    for (int layer = 0; layer < num_layers_; ++layer) add_layer(layer);
    for (int stage = 0; stage < num_drafts_; ++stage) {
      LayerInfo info;
      info.layer = stage;
      info.is_draft = true;
      topology_.drafts.push_back(info);
    }
    return std::move(topology_);
  }

 private:
  void report(const char* field, std::string message) {
    problems_.push_back({"text_config." + std::string(field), std::move(message)});
  }
  [[nodiscard]] int ratio(int layer) const { return text_.compress_ratios[static_cast<size_t>(layer)]; }

  void check_sorted(const char* field, const std::vector<int>& ids) {
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0 || ids[i] >= num_layers_) {
        report(field,
               "has layer " + std::to_string(ids[i]) + ": legal layers are 0 to " + std::to_string(num_layers_ - 1));
      }
      if (i > 0 && ids[i] <= ids[i - 1]) {
        report(field, "must be ascending without repeats: " + std::to_string(ids[i]) + " follows " +
                          std::to_string(ids[i - 1]));
      }
    }
  }

  void check_lists() {
    const int expected = num_layers_ + num_drafts_;
    if (static_cast<int>(text_.compress_ratios.size()) != expected) {
      report("compress_ratios",
             "has " + std::to_string(text_.compress_ratios.size()) +
                 " entries: num_hidden_layers + num_nextn_predict_layers = " + std::to_string(expected));
    }
    for (size_t i = 0; i < text_.compress_ratios.size(); ++i) {
      const int value = text_.compress_ratios[i];
      if (value < 0 || value > 2) report("compress_ratios", entry(i, value) + "legal: 0, 1, 2");
      else if (static_cast<int>(i) >= num_layers_ && value != 0) {
        report("compress_ratios", entry(i, value) + "a draft stage has ratio 0");
      }
    }
    check_sorted("kv_source_layer_ids", text_.kv_source_layer_ids);
    check_sorted("index_source_layer_ids", text_.index_source_layer_ids);
    check_sorted("engram_layer_ids", text_.engram_layer_ids);
    if (num_drafts_ > 0) check_sorted("dspark_target_layer_ids", text_.dspark_target_layer_ids);
    const int candidates = text_.candidate_source_layer_id;
    if (candidates < -1 || candidates >= num_layers_) {
      report("candidate_source_layer_id", "= " + std::to_string(candidates) + ": legal values are -1 (none) and 0 to " +
                                              std::to_string(num_layers_ - 1));
    } else if (candidates >= 0 && !is_listed(text_.index_source_layer_ids, candidates)) {
      report("candidate_source_layer_id", "= " + std::to_string(candidates) + ": must be an index source");
    }
  }
  static std::string entry(size_t index, int value) {
    return "[" + std::to_string(index) + "] = " + std::to_string(value) + ": ";
  }
  // For lists that may be unsorted.
  static bool is_listed(const std::vector<int>& list, int value) {
    return std::find(list.begin(), list.end(), value) != list.end();
  }

  void add_layer(int layer) {
    LayerInfo info;
    info.layer = layer;
    info.ratio = ratio(layer);
    info.engram = ordinal(text_.engram_layer_ids, layer);
    info.draft_tap = num_drafts_ > 0 ? ordinal(text_.dspark_target_layer_ids, layer) : -1;
    const bool is_owner = contains(text_.kv_source_layer_ids, layer);
    const bool is_source = contains(text_.index_source_layer_ids, layer);
    if (info.ratio == 0) {
      if (is_owner)
        report("kv_source_layer_ids", "has layer " + std::to_string(layer) + ", which has ratio 0: nothing to own");
      if (is_source)
        report("index_source_layer_ids",
               "has layer " + std::to_string(layer) + ", which has ratio 0: nothing to select");
      group_owner_ = -1;  // a window layer ends an index group
    } else {
      add_compressed(info, is_owner, is_source);
    }
    topology_.layers.push_back(info);
  }

  void add_compressed(LayerInfo& info, bool is_owner, bool is_source) {
    const std::string name = "layer " + std::to_string(info.layer);
    if (is_owner && !is_source)
      report("kv_source_layer_ids", "has " + name + ", which is not in index_source_layer_ids");
    info.role = is_owner ? LayerRole::kFull : is_source ? LayerRole::kReindex : LayerRole::kReuse;
    if (is_owner) {
      owner_of_ratio_[info.ratio] = info.layer;
      topology_.owners.push_back(info.layer);
    }
    if (is_source) {
      last_source_ = info.layer;
      topology_.index_sources.push_back(info.layer);
    }
    info.owner = owner_of_ratio_[info.ratio];
    info.index_source = last_source_;
    if (info.owner < 0) {
      return report("kv_source_layer_ids",
                    "has no owner of ratio " + std::to_string(info.ratio) + " at or before " + name);
    }
    const int source_owner = info.index_source == info.layer ? info.owner : owner_at(info.index_source);
    if (info.index_source < 0 || source_owner != info.owner) {
      return report("index_source_layer_ids", "has no source of owner " + std::to_string(info.owner) + " for " + name +
                                                  ": the nearest is " + std::to_string(info.index_source) +
                                                  ", which selects rows of owner " + std::to_string(source_owner));
    }
    mark_candidates(info);
    if (info.owner != group_owner_ || info.index_source != group_source_) {
      group_owner_ = info.owner;
      group_source_ = info.index_source;
      ++topology_.num_index_groups;
    }
    info.index_group = topology_.num_index_groups - 1;
  }

  [[nodiscard]] int owner_at(int layer) const {
    return layer < 0 ? -1 : topology_.layers[static_cast<size_t>(layer)].owner;
  }

  void mark_candidates(LayerInfo& info) {
    const int candidates = text_.candidate_source_layer_id;
    if (candidates < 0) return;
    info.is_candidate_source = info.layer == candidates;
    if (info.is_candidate_source) topology_.candidate_source = candidates;
    info.uses_candidates = info.is_index_source() && info.layer > candidates;
    if (info.uses_candidates && info.owner != owner_at(candidates)) {
      report("candidate_source_layer_id", "= " + std::to_string(candidates) + ": layer " + std::to_string(info.layer) +
                                              " would use its candidates, but reads rows of owner " +
                                              std::to_string(info.owner) + ", not " +
                                              std::to_string(owner_at(candidates)));
    }
  }

  const TextConfig& text_;
  std::vector<Problem>& problems_;
  const int num_layers_ = static_cast<int>(text_.num_hidden_layers);
  const int num_drafts_ = static_cast<int>(text_.num_nextn_predict_layers);
  LayerTopology topology_;
  int owner_of_ratio_[3] = {-1, -1, -1};
  int last_source_ = -1;
  int group_owner_ = -1;
  int group_source_ = -1;
};

}  // namespace

std::string_view layer_role_name(LayerRole role) noexcept {
  switch (role) {
    case LayerRole::kWindow: return "WINDOW";
    case LayerRole::kFull: return "FULL";
    case LayerRole::kReindex: return "REINDEX";
    case LayerRole::kReuse: return "REUSE";
  }
  return "?";
}

int LayerTopology::count(LayerRole role) const noexcept {
  return static_cast<int>(
      std::count_if(layers.begin(), layers.end(), [role](const LayerInfo& l) { return l.role == role; }));
}

int LayerTopology::owner_ordinal(int layer) const noexcept {
  const int index = ordinal(owners, layer);
  PS_DCHECK(index >= 0, layer);
  return index;
}

LayerTopology derive_topology(const TextConfig& text, std::vector<Problem>& problems) {
  return Deriver(text, problems).run();
}

LayerTopology layer_topology(const TextConfig& text) {
  std::vector<Problem> problems;
  LayerTopology topology = derive_topology(text, problems);
  PS_CHECK(problems.empty(), join_problems(problems).to_string());
  return topology;
}

}  // namespace ps::checkpoint
