// The report of `pagestate inspect` for the terminal: sections of aligned tables, equal layers joined to one row.
#include <fmt/format.h>

#include "apps/inspect_report.h"
#include "apps/text_table.h"
#include "apps/units.h"

namespace ps::apps {
namespace {

using checkpoint::LayerInfo;
using Align = TextTable::Align;

std::string number_or_dash(int value) { return value < 0 ? "-" : std::to_string(value); }

// Whether two neighbours may share a row of the layer table.
bool look_alike(const LayerInfo& a, const LayerInfo& b) {
  return a.is_draft == b.is_draft && a.role == b.role && a.ratio == b.ratio && a.owner == b.owner &&
         a.index_source == b.index_source && a.is_candidate_source == b.is_candidate_source &&
         a.uses_candidates == b.uses_candidates && (a.engram < 0) == (b.engram < 0) &&
         (a.draft_tap < 0) == (b.draft_tap < 0);
}

std::string notes_of(const LayerInfo& layer) {
  std::string notes;
  const auto add = [&notes](std::string_view note) { notes += (notes.empty() ? "" : ", ") + std::string(note); };
  if (layer.engram >= 0) add("Engram");
  if (layer.is_candidate_source) add("publishes candidates");
  if (layer.uses_candidates) add("within candidates");
  if (layer.draft_tap >= 0) add("tapped for drafts");
  return notes;
}

void add_layers(TextTable& table, const std::vector<LayerInfo>& layers) {
  for (size_t first = 0; first < layers.size();) {
    size_t last = first;
    while (last + 1 < layers.size() && look_alike(layers[first], layers[last + 1])) ++last;
    const LayerInfo& layer = layers[first];
    std::string name = std::to_string(layer.layer);
    if (last > first) name += "-" + std::to_string(layers[last].layer);
    table.add_row({layer.is_draft ? "draft " + name : name, std::string(checkpoint::layer_role_name(layer.role)),
                   layer.ratio == 0 ? "-" : std::to_string(layer.ratio), number_or_dash(layer.owner),
                   number_or_dash(layer.index_source), notes_of(layer)});
    first = last + 1;
  }
}

std::string layer_section(const InspectReport& report) {
  using checkpoint::LayerRole;
  const checkpoint::LayerTopology& topology = report.topology;
  TextTable table(
      {{"layer", Align::kLeft}, {"role", Align::kLeft}, {"ratio"}, {"owner"}, {"index from"}, {"", Align::kLeft}});
  add_layers(table, topology.layers);
  add_layers(table, topology.drafts);
  return fmt::format("Layers: {} WINDOW, {} FULL, {} REINDEX, {} REUSE, {} draft WINDOW\n{}\n",
                     topology.count(LayerRole::kWindow), topology.count(LayerRole::kFull),
                     topology.count(LayerRole::kReindex), topology.count(LayerRole::kReuse), topology.drafts.size(),
                     table.to_string());
}

std::string title_of(std::string key) {
  for (char& letter : key) {
    if (letter == '_') letter = ' ';
  }
  return key;
}

std::string weight_section(const InspectReport& report) {
  const checkpoint::CheckpointTotals& totals = report.totals;
  TextTable components({{"weights", Align::kLeft}, {"parameters"}, {"per token"}, {"tensors"}, {"bytes"}, {""}});
  for (const Component& part : report.components) {
    const bool is_counted = part.group == checkpoint::Group::kBackbone;
    components.add_row({title_of(part.key), grouped(part.parameters),
                        is_counted ? grouped(part.parameters_per_token) : "-", grouped(part.tensors),
                        grouped(part.bytes), human_bytes(part.bytes)});
  }
  components.add_row({"total", grouped(totals.parameters), grouped(totals.parameters_per_token),
                      grouped(totals.tensors), grouped(totals.bytes), human_bytes(totals.bytes)});
  TextTable groups({{"group", Align::kLeft}, {"kept in", Align::kLeft}, {"tensors"}, {"bytes"}, {""}});
  for (int ordinal = 0; ordinal < checkpoint::kNumGroups; ++ordinal) {
    const auto group = static_cast<checkpoint::Group>(ordinal);
    if (totals.group_tensors[ordinal] == 0) continue;
    groups.add_row({std::string(checkpoint::group_name(group)), std::string(tier_name(tier_of(group))),
                    grouped(totals.group_tensors[ordinal]), grouped(totals.bytes_of(group)),
                    human_bytes(totals.bytes_of(group))});
  }
  return fmt::format(
      "Weights: {} parameters, {} used per token (packed FP4 counts two per byte, scales count nothing)\n{}\n{}\n",
      human_count(totals.parameters), human_count(totals.parameters_per_token), components.to_string(),
      groups.to_string());
}

std::string shard_line(const InspectReport& report) {
  if (!report.shards.has_value()) {
    return "Shards: none here; the counts above are what config.json implies\n\n";
  }
  if (!report.shards->status.ok()) return "Shards: " + report.shards->status.to_string() + "\n\n";
  return fmt::format("Shards: {} tensors, {} bytes; each agrees with the schema, and there is no other\n\n",
                     grouped(report.shards->tensors), grouped(report.shards->bytes));
}

std::string cache_section(const InspectReport& report) {
  const int64_t memory = report.request.memory_bytes;
  TextTable table({{"kv", Align::kLeft},
                   {"index", Align::kLeft},
                   {"drafts", Align::kLeft},
                   {"PAGE bytes"},
                   {"bytes/token"},
                   {"STATE bytes"},
                   {"PAGEs"},
                   {"tokens in " + human_bytes(memory)}});
  for (const CacheVariant& variant : report.variants) {
    const cache::CacheGeometry& geometry = variant.geometry;
    table.add_row({std::string(cache::main_format_name(geometry.options.format.main)),
                   std::string(cache::index_format_name(geometry.options.format.index)),
                   variant.has_draft() ? std::to_string(geometry.options.spec_tokens) : "-",
                   grouped(geometry.paged_bytes()), fmt::format("{:.6g}", variant.bytes_per_token()),
                   grouped(geometry.state_bytes), grouped(variant.pages), grouped(variant.tokens())});
  }
  return fmt::format(
      "Cache: PAGEs of {} tokens, one STATE slot per request\n{}"
      "  PAGEs = (memory - 1 STATE) / PAGE bytes, whole ones, all planes aligned; weights are not part of that "
      "memory\n\n",
      grouped(report.request.page_tokens), table.to_string());
}

std::string page_section(const InspectReport& report) {
  const cache::CacheGeometry& geometry = report.requested().geometry;
  TextTable table({{"owner", Align::kLeft}, {"ratio"}, {"rows"}, {"main offset"}, {"main bytes"}, {"index bytes"}});
  for (const cache::OwnerGeometry& owner : geometry.owners) {
    table.add_row({fmt::format("layer {}", owner.layer), std::to_string(owner.ratio), grouped(owner.rows_per_page),
                   grouped(owner.main_offset_bytes), grouped(owner.rows_per_page * geometry.main_row_bytes),
                   grouped(owner.index_bytes())});
  }
  return fmt::format("PAGE with {} kv and {} index: main {} + index {} bytes\n{}  layout {}\n\n",
                     cache::main_format_name(geometry.options.format.main),
                     cache::index_format_name(geometry.options.format.index), grouped(geometry.page_bytes),
                     grouped(geometry.index_page_bytes), table.to_string(), geometry.layout_id);
}

// One line of numbers per n-gram size.
std::string rows_of(std::string_view title, const std::vector<int64_t>& values, int heads) {
  std::string text;
  for (size_t i = 0; i < values.size(); ++i) {
    const bool starts_line = i % static_cast<size_t>(heads) == 0;
    if (starts_line) text += fmt::format("{}    {:<12}", i == 0 ? "" : "\n", i == 0 ? title : "");
    text += fmt::format(" {}", values[i]);
  }
  return text + "\n";
}

std::string engram_section(const InspectReport& report) {
  const checkpoint::TextConfig& text = report.config.text_config;
  if (report.engram.empty()) return "Engram: none\n";
  std::string section = fmt::format("Engram: {} layers, {} columns of {} values per token\n", report.engram.size(),
                                    text.engram_columns(), text.engram_head_dim);
  for (const checkpoint::EngramLayer& layer : report.engram) {
    section += fmt::format("  layer {}: {} rows\n", layer.layer, grouped(layer.total_rows));
    section += rows_of("multipliers", layer.multipliers, layer.max_ngram);
    section += rows_of("primes", layer.primes, layer.heads);
    section += rows_of("offsets", layer.offsets, layer.heads);
  }
  if (!report.token_map.has_value()) {
    return section +
           fmt::format("  token classes: {} by config.json; no tokenizer at hand, so the map was not checked\n",
                       grouped(text.engram_compressed_vocab_size));
  }
  const TokenMapReport& map = *report.token_map;
  const bool agrees = map.classes == text.engram_compressed_vocab_size;
  return section + fmt::format("  token classes: {} of {} tokens, {} config.json; map SHA-256 {}\n",
                               grouped(map.classes), grouped(map.tokens), agrees ? "as in" : "CONTRADICTS", map.sha256);
}

}  // namespace

std::string to_text(const InspectReport& report) {
  const checkpoint::TextConfig& text = report.config.text_config;
  std::string head = fmt::format("{}: {} layers", report.config_path.string(), text.num_hidden_layers);
  if (text.has_draft()) head += fmt::format(", {} draft stages", text.num_nextn_predict_layers);
  if (report.config.has_vision()) head += ", a vision tower";
  head += fmt::format(", up to {} tokens\n\n", grouped(text.max_position_embeddings));
  return head + layer_section(report) + weight_section(report) + shard_line(report) + cache_section(report) +
         page_section(report) + engram_section(report);
}

}  // namespace ps::apps
