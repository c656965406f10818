// The report of `pagestate inspect --json`: keys are stable, docs/inspect.md lists them.
#include "apps/inspect_report.h"
#include "base/json.h"

namespace ps::apps {
namespace {

std::string_view storage_name(checkpoint::Storage storage) {
  switch (storage) {
    case checkpoint::Storage::kOfficial: return "official";
    case checkpoint::Storage::kBf16: return "bf16";
    case checkpoint::Storage::kF32: return "f32";
  }
  return "";
}

// Layers and ordinals: -1 means none.
void write_optional(JsonWriter& json, std::string_view key, int value) {
  json.key(key);
  if (value < 0) json.null();
  else json.integer(value);
}

template <typename T>
void write_list(JsonWriter& json, std::string_view key, const std::vector<T>& values) {
  json.key(key).begin_array();
  for (const T value : values) json.integer(value);
  json.end_array();
}

void write_model(JsonWriter& json, const InspectReport& report) {
  json.key("model").begin_object();
  json.key("config").string(report.config_path.string());
  json.key("model_type").string(report.config.model_type);
  json.key("storage").string(storage_name(report.storage));
  json.key("has_vision").boolean(report.config.has_vision());
  json.key("max_position_embeddings").integer(report.config.text_config.max_position_embeddings);
  json.key("unknown_fields").begin_array();
  for (const std::string& field : report.config.unknown_fields) json.string(field);
  json.end_array().end_object();
}

void write_layer(JsonWriter& json, const checkpoint::LayerInfo& layer) {
  json.begin_object();
  json.key("layer").integer(layer.layer);
  json.key("is_draft").boolean(layer.is_draft);
  json.key("role").string(checkpoint::layer_role_name(layer.role));
  json.key("ratio").integer(layer.ratio);
  write_optional(json, "owner", layer.owner);
  write_optional(json, "index_source", layer.index_source);
  write_optional(json, "index_group", layer.index_group);
  json.key("is_candidate_source").boolean(layer.is_candidate_source);
  json.key("uses_candidates").boolean(layer.uses_candidates);
  write_optional(json, "engram", layer.engram);
  write_optional(json, "draft_tap", layer.draft_tap);
  json.end_object();
}

void write_layers(JsonWriter& json, const checkpoint::LayerTopology& topology) {
  using checkpoint::LayerRole;
  json.key("layers").begin_array();
  for (const auto& layer : topology.layers) write_layer(json, layer);
  for (const auto& stage : topology.drafts) write_layer(json, stage);
  json.end_array();
  json.key("roles").begin_object();
  json.key("window").integer(topology.count(LayerRole::kWindow));
  json.key("full").integer(topology.count(LayerRole::kFull));
  json.key("reindex").integer(topology.count(LayerRole::kReindex));
  json.key("reuse").integer(topology.count(LayerRole::kReuse));
  json.key("draft_window").integer(std::ssize(topology.drafts));
  json.end_object();
  write_list(json, "owners", topology.owners);
  write_list(json, "index_sources", topology.index_sources);
  write_optional(json, "candidate_source", topology.candidate_source);
}

void write_weights(JsonWriter& json, const InspectReport& report) {
  const checkpoint::CheckpointTotals& totals = report.totals;
  json.key("parameters").begin_object();
  json.key("total").integer(totals.parameters);
  json.key("per_token").integer(totals.parameters_per_token);
  json.end_object();
  json.key("checkpoint").begin_object();
  json.key("tensors").integer(totals.tensors);
  json.key("bytes").integer(totals.bytes);
  json.key("shards").integer(checkpoint::num_shards(report.config));
  json.key("groups").begin_array();
  for (int ordinal = 0; ordinal < checkpoint::kNumGroups; ++ordinal) {
    const auto group = static_cast<checkpoint::Group>(ordinal);
    json.begin_object();
    json.key("group").string(checkpoint::group_name(group));
    json.key("tier").string(tier_name(tier_of(group)));
    json.key("tensors").integer(totals.group_tensors[ordinal]);
    json.key("bytes").integer(totals.bytes_of(group));
    json.key("parameters").integer(totals.parameters_of(group));
    json.end_object();
  }
  json.end_array();
  json.key("components").begin_array();
  for (const Component& component : report.components) {
    json.begin_object();
    json.key("component").string(component.key);
    json.key("group").string(checkpoint::group_name(component.group));
    json.key("tensors").integer(component.tensors);
    json.key("bytes").integer(component.bytes);
    json.key("parameters").integer(component.parameters);
    json.key("parameters_per_token").integer(component.parameters_per_token);
    json.end_object();
  }
  json.end_array();
  json.key("verified");
  if (!report.shards.has_value()) {
    json.null();
  } else {
    json.begin_object();
    json.key("ok").boolean(report.shards->status.ok());
    json.key("tensors").integer(report.shards->tensors);
    json.key("bytes").integer(report.shards->bytes);
    json.key("message").string(report.shards->status.message());
    json.end_object();
  }
  json.end_object();
}

void write_variant(JsonWriter& json, const CacheVariant& variant) {
  const cache::CacheGeometry& geometry = variant.geometry;
  json.begin_object();
  json.key("kv_cache_dtype").string(cache::main_format_name(geometry.options.format.main));
  json.key("index_cache_dtype").string(cache::index_format_name(geometry.options.format.index));
  json.key("spec_tokens").integer(geometry.options.spec_tokens);
  json.key("requested").boolean(variant.is_requested);
  json.key("page_bytes").integer(geometry.paged_bytes());
  json.key("main_page_bytes").integer(geometry.page_bytes);
  json.key("index_page_bytes").integer(geometry.index_page_bytes);
  json.key("bytes_per_token").real(variant.bytes_per_token());
  json.key("state_bytes").integer(geometry.state_bytes);
  json.key("state_layers").integer(geometry.layers);
  json.key("ring_slots").integer(geometry.ring_slots);
  json.key("compressor_ring_slots").integer(geometry.compressor_slots);
  json.key("pages_that_fit").integer(variant.pages);
  json.key("tokens_that_fit").integer(variant.tokens());
  json.key("layout_id").string(geometry.layout_id);
  json.end_object();
}

void write_cache(JsonWriter& json, const InspectReport& report) {
  const cache::CacheGeometry& geometry = report.requested().geometry;
  json.key("cache").begin_object();
  json.key("page_tokens").integer(report.request.page_tokens);
  json.key("memory_bytes").integer(report.request.memory_bytes);
  json.key("formats").begin_array();
  for (const CacheVariant& variant : report.variants) write_variant(json, variant);
  json.end_array();
  json.key("owners").begin_array();
  for (const cache::OwnerGeometry& owner : geometry.owners) {
    json.begin_object();
    json.key("layer").integer(owner.layer);
    json.key("ratio").integer(owner.ratio);
    json.key("rows_per_page").integer(owner.rows_per_page);
    json.key("main_offset_bytes").integer(owner.main_offset_bytes);
    json.key("main_bytes").integer(owner.rows_per_page * geometry.main_row_bytes);
    json.key("index_bytes").integer(owner.index_bytes());
    json.end_object();
  }
  json.end_array().end_object();
}

void write_engram(JsonWriter& json, const InspectReport& report) {
  json.key("engram").begin_object();
  json.key("compressed_vocab_size").integer(report.config.text_config.engram_compressed_vocab_size);
  json.key("layers").begin_array();
  for (const checkpoint::EngramLayer& layer : report.engram) {
    json.begin_object();
    json.key("layer").integer(layer.layer);
    json.key("rows").integer(layer.total_rows);
    write_list(json, "multipliers", layer.multipliers);
    write_list(json, "primes", layer.primes);
    write_list(json, "offsets", layer.offsets);
    json.end_object();
  }
  json.end_array();
  json.key("token_map");
  if (!report.token_map.has_value()) {
    json.null();
  } else {
    json.begin_object();
    json.key("tokenizer").string(report.token_map->tokenizer.string());
    json.key("tokens").integer(report.token_map->tokens);
    json.key("classes").integer(report.token_map->classes);
    json.key("pad_class").integer(report.token_map->pad_class);
    json.key("sha256").string(report.token_map->sha256);
    json.end_object();
  }
  json.end_object();
}

}  // namespace

std::string to_json(const InspectReport& report) {
  JsonWriter json;
  json.begin_object();
  write_model(json, report);
  write_layers(json, report.topology);
  write_weights(json, report);
  write_cache(json, report);
  write_engram(json, report);
  json.end_object();
  return std::move(json).text() + "\n";
}

}  // namespace ps::apps
