// What `pagestate inspect` tells about a checkpoint, as plain data: collected from config.json alone, then from the
// tokenizer and the shards where they are at hand. Nothing is read but headers, the config and the tokenizer.
//
// Knows no output format: inspect_text.cc and inspect_json.cc print the same report.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cache/geometry.h"
#include "checkpoint/config.h"
#include "checkpoint/engram.h"
#include "checkpoint/schema.h"
#include "checkpoint/topology.h"

namespace ps::apps {

struct InspectRequest {
  std::filesystem::path model;      // a checkpoint folder or a config.json
  std::filesystem::path tokenizer;  // empty: tokenizer.json beside the config, when there is one
  cache::CacheFormat format;        // the one whose details are printed; the table shows all
  int64_t page_tokens = 256;
  int64_t memory_bytes = 0;  // for PAGEs and STATE, without weights
};

// Where a group of tensors lives at run time.
enum class Tier : uint8_t { kDevice, kHost, kDeviceOptional };
// "device", "host", "device, when used".
[[nodiscard]] std::string_view tier_name(Tier tier) noexcept;
// Engram tables stay in host memory; draft stages and the vision tower are loaded when they are used.
[[nodiscard]] Tier tier_of(checkpoint::Group group) noexcept;

// Tensors of one purpose. `key` is its stable name.
struct Component {
  std::string key;
  checkpoint::Group group = checkpoint::Group::kBackbone;
  int64_t tensors = 0;
  int64_t bytes = 0;                 // as stored, scales included
  int64_t parameters = 0;            // logical
  int64_t parameters_per_token = 0;  // 0 for groups that schema.h does not count
};

// One combination of cache formats, with or without drafts.
struct CacheVariant {
  cache::CacheGeometry geometry;
  bool is_requested = false;  // the format of the request
  int64_t pages = 0;          // that fit into the memory beside one STATE slot

  [[nodiscard]] bool has_draft() const noexcept { return geometry.options.spec_tokens > 0; }
  [[nodiscard]] int64_t tokens() const noexcept { return pages * geometry.options.page_tokens; }
  [[nodiscard]] double bytes_per_token() const noexcept {
    return static_cast<double>(geometry.paged_bytes()) / static_cast<double>(geometry.options.page_tokens);
  }
};

struct TokenMapReport {
  std::filesystem::path tokenizer;
  int64_t tokens = 0;
  int64_t classes = 0;
  int32_t pad_class = 0;
  std::string sha256;  // of class_of as little-endian int32
};

struct ShardReport {
  int64_t tensors = 0;
  int64_t bytes = 0;
  Status status;  // ok: every tensor agrees with the schema, and there is no other
};

struct InspectReport {
  InspectRequest request;
  std::filesystem::path config_path;
  checkpoint::Config config;
  checkpoint::LayerTopology topology;
  checkpoint::Storage storage = checkpoint::Storage::kOfficial;  // the one that the config announces
  checkpoint::CheckpointTotals totals;                           // of the schema in that storage
  std::vector<Component> components;                             // in the order of their first tensor
  std::vector<CacheVariant> variants;  // bf16 before fp4, fp8 index before fp4, without drafts before with
  std::vector<checkpoint::EngramLayer> engram;
  std::optional<TokenMapReport> token_map;
  std::optional<ShardReport> shards;  // nothing for a folder without shards

  // The requested format without drafts.
  [[nodiscard]] const CacheVariant& requested() const noexcept;
  // The first thing that is wrong beyond the config itself: the shards, or a tokenizer with another number of classes.
  [[nodiscard]] Status verdict() const;
};

// Fails when the config, the cache options or a named tokenizer are unusable; disagreeing shards are part of the
// report.
[[nodiscard]] Result<InspectReport> inspect(const InspectRequest& request);

// For the terminal, and as one JSON object whose keys docs/inspect.md lists.
[[nodiscard]] std::string to_text(const InspectReport& report);
[[nodiscard]] std::string to_json(const InspectReport& report);

}  // namespace ps::apps
