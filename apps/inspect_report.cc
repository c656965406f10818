#include "apps/inspect_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <span>
#include <string_view>
#include <utility>

#include "base/macros.h"
#include "base/mapped_file.h"
#include "base/sha256.h"
#include "checkpoint/checkpoint.h"
#include "text/token_map.h"
#include "text/tokenizer.h"

namespace ps::apps {
namespace {

using checkpoint::Group;

constexpr int64_t kConfigLimitBytes = 1 << 20;

// The component of a backbone tensor by its name: "layers.3.attn.wq_a.weight".
std::string_view backbone_component(const checkpoint::TensorSpec& spec) {
  const auto has = [&spec](std::string_view part) { return spec.name.find(part) != std::string::npos; };
  if (spec.expert_layer >= 0) return "routed_experts";
  if (spec.name.starts_with("embed.") || spec.name.starts_with("head.")) return "embedding_and_head";
  if (has(".shared_experts.")) return "shared_experts";
  if (has(".ffn.gate.")) return "router";
  if (has(".engram.")) return "engram_projections";
  if (has(".indexer.") || has(".compressor.")) return "indexer_and_compressor";
  if (has(".attn.")) return "attention";
  if (has(".hc_")) return "hyper_connections";
  return "norms";
}

std::string_view component_key(const checkpoint::TensorSpec& spec) {
  switch (spec.group) {
    case Group::kBackbone: return backbone_component(spec);
    case Group::kEngramTable: return "engram_tables";
    case Group::kDraft: return "draft_stages";
    case Group::kVision: return "vision_tower";
  }
  return "";
}

std::vector<Component> collect_components(const checkpoint::Config& config, checkpoint::Storage storage) {
  std::vector<Component> components;
  checkpoint::for_each_tensor(config, storage, [&](const checkpoint::TensorSpec& spec) {
    const std::string_view key = component_key(spec);
    auto found = std::ranges::find(components, key, &Component::key);
    if (found == components.end()) {
      components.push_back({.key = std::string(key), .group = spec.group});
      found = components.end() - 1;
    }
    ++found->tensors;
    found->bytes += spec.size_bytes();
    if (!checkpoint::is_scale(spec.form)) found->parameters += spec.logical_shape.elements();
  });
  const checkpoint::TextConfig& text = config.text_config;
  for (Component& component : components) {
    if (component.group != Group::kBackbone) continue;
    component.parameters_per_token = component.parameters;
    if (component.key == "routed_experts") {
      component.parameters_per_token = component.parameters / text.n_routed_experts * text.num_experts_per_tok;
    }
  }
  return components;
}

Result<std::vector<CacheVariant>> collect_variants(const InspectReport& report) {
  using cache::MainFormat;
  using ops::IndexFormat;
  const checkpoint::TextConfig& text = report.config.text_config;
  std::vector<CacheVariant> variants;
  for (const MainFormat main : {MainFormat::kBF16, MainFormat::kFp4}) {
    for (const IndexFormat index : {IndexFormat::kFp8, IndexFormat::kFp4}) {
      for (const bool has_draft : {false, true}) {
        if (has_draft && !text.has_draft()) continue;
        const cache::CacheOptions options{.format = {main, index},
                                          .page_tokens = report.request.page_tokens,
                                          .spec_tokens = has_draft ? text.dspark_block_size : 0};
        CacheVariant variant;
        PS_TRY(variant.geometry, cache::CacheGeometry::create(text, report.topology, options));
        variant.is_requested = options.format == report.request.format;
        variant.pages = variant.geometry.max_pages(report.request.memory_bytes, 1);
        variants.push_back(std::move(variant));
      }
    }
  }
  return variants;
}

Result<TokenMapReport> collect_token_map(const std::filesystem::path& path, const checkpoint::TextConfig& text) {
  PS_TRY(const auto tokenizer, text::Tokenizer::load(path));
  const text::TokenMap map = text::engram_token_map(*tokenizer);
  static_assert(std::endian::native == std::endian::little);
  TokenMapReport report;
  report.tokenizer = path;
  report.tokens = std::ssize(map.class_of);
  report.classes = map.classes;
  report.sha256 = sha256_hex(std::as_bytes(std::span(map.class_of)));
  const int32_t pad = text.engram_pad_token_id;
  if (pad < 0 || pad >= report.tokens) {
    return Status::invalid(
        fmt::format("{}: has {} tokens, text_config.engram_pad_token_id is {}", path.string(), report.tokens, pad));
  }
  report.pad_class = map.class_of[static_cast<size_t>(pad)];
  return report;
}

bool has_shards(const std::filesystem::path& folder) {
  std::error_code error;  // an unreadable folder has none
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::filesystem::path name = at->path().filename();
    if (name.extension() == ".safetensors" || name == "model.safetensors.index.json") return true;
  }
  return false;
}

ShardReport collect_shards(const std::filesystem::path& folder) {
  ShardReport report;
  Result<checkpoint::Checkpoint> opened = checkpoint::Checkpoint::open(folder);
  if (!opened.ok()) {
    report.status = std::move(opened).status();
    return report;
  }
  report.tensors = opened->num_tensors();
  report.bytes = opened->payload_bytes();
  return report;
}

Status read_config(InspectReport& report) {
  const std::filesystem::path& model = report.request.model;
  std::error_code error;
  report.config_path = std::filesystem::is_directory(model, error) ? model / "config.json" : model;
  PS_TRY(const std::string text, read_file(report.config_path, kConfigLimitBytes));
  Result<checkpoint::Config> config = checkpoint::parse_config(text).with(report.config_path.string());
  if (!config.ok()) return std::move(config).status();
  report.config = std::move(config).value();
  return {};
}

}  // namespace

std::string_view tier_name(Tier tier) noexcept {
  switch (tier) {
    case Tier::kDevice: return "device";
    case Tier::kHost: return "host";
    case Tier::kDeviceOptional: return "device, when used";
  }
  return "";
}

Tier tier_of(checkpoint::Group group) noexcept {
  switch (group) {
    case Group::kBackbone: return Tier::kDevice;
    case Group::kEngramTable: return Tier::kHost;
    case Group::kDraft:
    case Group::kVision: return Tier::kDeviceOptional;
  }
  return Tier::kDevice;
}

const CacheVariant& InspectReport::requested() const noexcept {
  const auto found = std::ranges::find_if(
      variants, [](const CacheVariant& variant) { return variant.is_requested && !variant.has_draft(); });
  PS_CHECK(found != variants.end());
  return *found;
}

Status InspectReport::verdict() const {
  if (shards.has_value() && !shards->status.ok()) {
    return {shards->status.code(), std::string(shards->status.message())};
  }
  const int64_t expected = config.text_config.engram_compressed_vocab_size;
  if (token_map.has_value() && !config.text_config.engram_layer_ids.empty() && token_map->classes != expected) {
    return Status::invalid(fmt::format("{}: has {} token classes, text_config.engram_compressed_vocab_size is {}",
                                       token_map->tokenizer.string(), token_map->classes, expected));
  }
  return {};
}

Result<InspectReport> inspect(const InspectRequest& request) {
  InspectReport report;
  report.request = request;
  PS_RETURN_IF_ERROR(read_config(report));
  const checkpoint::TextConfig& text = report.config.text_config;
  report.topology = checkpoint::layer_topology(text);
  report.storage = checkpoint::announced_storage(report.config);
  report.totals = checkpoint::checkpoint_totals(report.config, report.storage);
  report.components = collect_components(report.config, report.storage);
  PS_TRY(report.variants, collect_variants(report));
  // Primes, offsets and multipliers do not depend on the class of the pad token, which only a tokenizer tells.
  PS_TRY(report.engram, checkpoint::make_engram_layers(text, text.engram_compressed_vocab_size, 0));

  const std::filesystem::path folder = report.config_path.parent_path();
  std::filesystem::path tokenizer = request.tokenizer;
  std::error_code error;
  if (tokenizer.empty() && std::filesystem::exists(folder / "tokenizer.json", error))
    tokenizer = folder / "tokenizer.json";
  if (!tokenizer.empty()) {
    PS_TRY(report.token_map, collect_token_map(tokenizer, text));
    for (checkpoint::EngramLayer& layer : report.engram) layer.pad_class = report.token_map->pad_class;
  }
  // NOTE: naming the file config.json itself asks for the config alone.
  if (report.config_path != request.model && has_shards(folder)) report.shards = collect_shards(folder);
  return report;
}

}  // namespace ps::apps
