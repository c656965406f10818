#include "cache/geometry.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/macros.h"
#include "ops/cache_rows.h"

namespace ps::cache {
namespace {

// Parts of layout_id that no config field states. Each changes when its rule does.
constexpr std::string_view kStateVersion = "state-v2";            // rings, in the field order of the charter
constexpr std::string_view kIndexFp4 = "fp4.page8.ceil";          // page-8 blocks, scale exponents rounded up
constexpr std::string_view kIndexFp8 = "fp8.block8.pow2";         // 8-row blocks, one power-of-two scale per key
constexpr std::string_view kEngramHash = "engram-v1";             // meaning of the ids in the cursor
constexpr std::string_view kImageContent = "image-rings-cursor";  // an image has no compressor rings
constexpr std::string_view kReplication = "tp-replicated";  // every rank of a tensor-parallel group holds all rows

constexpr int64_t kMaxDim = 65536;
constexpr int64_t kMaxWindow = 1 << 20;
constexpr int64_t kBF16RowUnitBytes = 256;

int64_t align_up(int64_t value, int64_t alignment) { return (value + alignment - 1) / alignment * alignment; }

// total += a * b, or false if that leaves int64. REQUIRES: nothing is negative.
bool add_product(int64_t& total, int64_t a, int64_t b) {
  int64_t product = 0;
  return !__builtin_mul_overflow(a, b, &product) && !__builtin_add_overflow(total, product, &total);
}
bool align_total(int64_t& total, int64_t alignment) {
  if (total > std::numeric_limits<int64_t>::max() - alignment) return false;
  total = align_up(total, alignment);
  return true;
}

Status illegal(std::string_view field, int64_t value, std::string_view legal) {
  return Status::invalid(std::string(field) + " " + std::to_string(value) + ": must be " + std::string(legal));
}

Status check_dims(const checkpoint::TextConfig& text, const CacheOptions& options) {
  constexpr std::string_view kLegalDim = "a positive multiple of 32, at most 65536";
  if (text.head_dim <= 0 || text.head_dim % 32 != 0 || text.head_dim > kMaxDim) {
    return illegal("head_dim", text.head_dim, kLegalDim);
  }
  // A BF16 row starts at an address that 256 divides, or lies within one such unit: wide loads never straddle two.
  const int64_t row = text.head_dim * 2;
  if (options.format.main == MainFormat::kBF16 && row % kBF16RowUnitBytes != 0 && kBF16RowUnitBytes % row != 0) {
    return illegal("head_dim", text.head_dim, "32, 64 or a multiple of 128 in a bf16 pool");
  }
  if (text.sliding_window <= 0 || text.sliding_window > kMaxWindow) {
    return illegal("sliding_window", text.sliding_window, "in 1..1048576");
  }
  if (!text.engram_layer_ids.empty() && (text.engram_max_ngram_size < 2 || text.engram_max_ngram_size > 64)) {
    return illegal("engram_max_ngram_size", text.engram_max_ngram_size, "in 2..64");
  }
  return {};
}

Status check_spec(const checkpoint::TextConfig& text, const CacheOptions& options) {
  if (options.spec_tokens == 0) return {};
  if (!text.has_draft()) {
    return illegal("spec_tokens", options.spec_tokens, "0: the checkpoint has no draft stages");
  }
  if (options.spec_tokens != text.dspark_block_size || options.spec_tokens < 0 || options.spec_tokens > kMaxWindow) {
    return illegal("spec_tokens", options.spec_tokens,
                   "0 or the draft width of the checkpoint, " + std::to_string(text.dspark_block_size));
  }
  return {};
}

Status check_page(const checkpoint::TextConfig& text, const checkpoint::LayerTopology& topology,
                  const CacheOptions& options) {
  // NOTE: without owners a PAGE holds nothing; the rule of ratio 2 is kept, so that one list of sizes is legal
  // everywhere.
  int64_t ratio = topology.owners.empty() ? 2 : 1;
  for (const int owner : topology.owners) {
    ratio = std::max<int64_t>(ratio, topology.layers[static_cast<size_t>(owner)].ratio);
  }
  const int64_t multiple = kPageRowMultiple * ratio;
  if (options.page_tokens <= 0 || options.page_tokens % multiple != 0 || options.page_tokens > kMaxPageTokens) {
    return illegal("page_tokens", options.page_tokens,
                   "a positive multiple of " + std::to_string(multiple) + " (whole blocks of 8 index rows at ratio " +
                       std::to_string(ratio) + "), at most 65536");
  }
  if (topology.owners.empty()) return {};
  if (text.index_head_dim <= 0 || text.index_head_dim % 32 != 0 || text.index_head_dim > ops::kMaxIndexDim) {
    return illegal("index_head_dim", text.index_head_dim, "a positive multiple of 32, at most 512");
  }
  // A candidate id names one block of the index plane.
  if (topology.candidate_source >= 0 && text.candidate_block_size != ops::kIndexBlockRows) {
    return illegal("candidate_block_size", text.candidate_block_size, "8, the rows of an index block");
  }
  return {};
}

void place_owners(const checkpoint::LayerTopology& topology, CacheGeometry& geometry) {
  const int64_t dim = geometry.index_dim;
  const bool fp4 = geometry.options.format.index == ops::IndexFormat::kFp4;
  int64_t main_bytes = 0;
  for (const int layer : topology.owners) {
    OwnerGeometry owner;
    owner.layer = layer;
    owner.ratio = topology.layers[static_cast<size_t>(layer)].ratio;
    owner.rows_per_page = static_cast<int32_t>(geometry.options.page_tokens / owner.ratio);
    owner.main_offset_bytes = main_bytes;
    owner.index_value_bytes = owner.rows_per_page * (fp4 ? dim / 2 : geometry.index_row_bytes);
    owner.index_scale_bytes = fp4 ? owner.rows_per_page * (dim / 32) : 0;
    main_bytes += owner.rows_per_page * geometry.main_row_bytes;
    geometry.index_page_bytes += owner.index_bytes();
    geometry.owners.push_back(owner);
  }
  geometry.page_bytes = align_up(main_bytes, geometry.alignment_bytes);
}

void place_state(CacheGeometry& geometry) {
  const int64_t alignment = geometry.alignment_bytes;
  const int64_t owners = static_cast<int64_t>(geometry.owners.size());
  geometry.window_layer_bytes = geometry.ring_slots * geometry.window_row_bytes;
  geometry.compressor_owner_bytes =
      int64_t{geometry.compressor_slots} * geometry.head_dim * static_cast<int64_t>(sizeof(float));
  geometry.compress_kv_offset = align_up(geometry.layers * geometry.window_layer_bytes, alignment);
  geometry.compress_score_offset =
      align_up(geometry.compress_kv_offset + owners * geometry.compressor_owner_bytes, alignment);
  geometry.cursor_offset =
      align_up(geometry.compress_score_offset + owners * geometry.compressor_owner_bytes, alignment);
  geometry.state_bytes =
      align_up(geometry.cursor_offset + (1 + geometry.history) * static_cast<int64_t>(sizeof(int64_t)), alignment);
}

template <typename T>
std::string join(const std::vector<T>& values) {
  std::string text;
  for (const T& value : values) {
    if (!text.empty()) text += '.';
    text += std::to_string(value);
  }
  return text.empty() ? "none" : text;
}

// "key=value;..." over everything that changes bytes or which rows a query selects (runtime.md 1.9).
std::string make_layout_id(const checkpoint::TextConfig& text, const checkpoint::LayerTopology& topology,
                           const CacheGeometry& geometry) {
  std::string id = "pagestate;" + std::string(kStateVersion);
  const auto add = [&id](std::string_view key, const std::string& value) {
    id.append(";").append(key).append("=").append(value);
  };
  const auto add_number = [&add](std::string_view key, int64_t value) { add(key, std::to_string(value)); };
  std::vector<int> ratios;
  for (const OwnerGeometry& owner : geometry.owners) ratios.push_back(owner.ratio);
  const bool fp4 = geometry.options.format.index == ops::IndexFormat::kFp4;
  add("kv", std::string(main_format_name(geometry.options.format.main)));
  add("index", std::string(fp4 ? kIndexFp4 : kIndexFp8));
  add_number("page", geometry.options.page_tokens);
  add_number("layers", geometry.layers);
  add("owners", join(topology.owners));
  add("ratios", join(ratios));
  add_number("dim", geometry.head_dim);
  add_number("rope_dim", text.qk_rope_head_dim);
  add_number("index_dim", geometry.index_dim);
  add_number("window", geometry.window);
  add_number("ring", geometry.ring_slots);
  add_number("compressor_ring", geometry.compressor_slots);
  add_number("spec", geometry.options.spec_tokens);
  add_number("history", geometry.history);
  add("index_sources", join(topology.index_sources));
  add_number("index_heads", text.index_n_heads);
  add_number("topk", text.index_topk);
  add_number("candidate_source", topology.candidate_source);
  add_number("candidate_blocks", text.candidate_topk_blocks);
  id.append(";").append(kEngramHash).append(";").append(kImageContent).append(";").append(kReplication);
  return id;
}

}  // namespace

std::string_view main_format_name(MainFormat format) noexcept { return format == MainFormat::kBF16 ? "bf16" : "fp4"; }
std::string_view index_format_name(ops::IndexFormat format) noexcept {
  return format == ops::IndexFormat::kFp4 ? "fp4" : "fp8";
}

Result<MainFormat> parse_main_format(std::string_view name) {
  if (name == "bf16") return MainFormat::kBF16;
  if (name == "fp4") return MainFormat::kFp4;
  return Status::invalid("KV cache dtype '" + std::string(name) + "': must be bf16 or fp4");
}

Result<ops::IndexFormat> parse_index_format(std::string_view name) {
  if (name == "fp4") return ops::IndexFormat::kFp4;
  if (name == "fp8") return ops::IndexFormat::kFp8;
  return Status::invalid("index cache dtype '" + std::string(name) + "': must be fp4 or fp8");
}

Result<CacheGeometry> CacheGeometry::create(const checkpoint::TextConfig& text,
                                            const checkpoint::LayerTopology& topology, const CacheOptions& options) {
  PS_RETURN_IF_ERROR(check_dims(text, options));
  PS_RETURN_IF_ERROR(check_spec(text, options));
  PS_RETURN_IF_ERROR(check_page(text, topology, options));
  const bool packed = options.format.main == MainFormat::kFp4;
  CacheGeometry geometry;
  geometry.options = options;
  geometry.alignment_bytes = packed ? 256 : 1024;
  geometry.head_dim = static_cast<int32_t>(text.head_dim);
  geometry.index_dim = topology.owners.empty() ? 0 : static_cast<int32_t>(text.index_head_dim);
  geometry.main_row_format = packed ? ops::RowFormat::kCompressed : ops::RowFormat::kBF16;
  geometry.window_row_format = packed ? ops::RowFormat::kMxfp8 : ops::RowFormat::kBF16;
  geometry.main_row_bytes = ops::row_bytes(geometry.main_row_format, text.head_dim);
  geometry.window_row_bytes = ops::row_bytes(geometry.window_row_format, text.head_dim);
  geometry.index_row_bytes =
      topology.owners.empty() ? 0 : ops::index_row_bytes(options.format.index, text.index_head_dim);
  place_owners(topology, geometry);

  const size_t drafts = options.spec_tokens > 0 ? topology.drafts.size() : 0;
  int32_t largest_ratio = 0;
  for (const OwnerGeometry& owner : geometry.owners) largest_ratio = std::max(largest_ratio, owner.ratio);
  geometry.window = static_cast<int32_t>(text.sliding_window);
  geometry.layers = static_cast<int32_t>(topology.layers.size() + drafts);
  geometry.ring_slots = static_cast<int32_t>(text.sliding_window + options.spec_tokens);
  geometry.compressor_slots = largest_ratio + static_cast<int32_t>(options.spec_tokens);
  geometry.history = text.engram_layer_ids.empty() ? 0 : static_cast<int32_t>(text.engram_max_ngram_size - 1);
  place_state(geometry);
  geometry.layout_id = make_layout_id(text, topology, geometry);
  return geometry;
}

int64_t CacheGeometry::max_pages(int64_t bytes, int64_t slots) const noexcept {
  bytes = std::min(bytes, std::numeric_limits<int64_t>::max() / 2);  // room for align_up
  int64_t state = 0;
  if (paged_bytes() == 0 || bytes < 0 || slots < 0 || !add_product(state, slots, state_bytes) || state > bytes)
    return 0;
  // The estimate ignores what alignment takes between the planes: less than one unit per plane.
  int64_t pages = std::min<int64_t>((bytes - state) / paged_bytes(), std::numeric_limits<int32_t>::max());
  const auto total = [this, state](int64_t count) {
    int64_t sum = count * page_bytes;
    for (const OwnerGeometry& owner : owners) sum = align_up(sum, alignment_bytes) + count * owner.index_bytes();
    return align_up(sum, alignment_bytes) + state;
  };
  while (pages > 0 && total(pages) > bytes) --pages;
  return pages;
}

Result<PoolLayout> PoolLayout::create(const CacheGeometry& geometry, int64_t pages, int64_t slots) {
  constexpr int64_t kMaxCount = std::numeric_limits<int32_t>::max();
  if (pages < 0 || pages > kMaxCount) return illegal("number of PAGEs", pages, "in 0..2147483647");
  if (slots < 0 || slots > kMaxCount) return illegal("number of STATE slots", slots, "in 0..2147483647");
  PoolLayout layout;
  layout.geometry = geometry;
  layout.pages = static_cast<int32_t>(pages);
  layout.slots = static_cast<int32_t>(slots);
  int64_t total = 0;
  bool fits = add_product(total, pages, geometry.page_bytes);
  for (const OwnerGeometry& owner : geometry.owners) {
    fits = fits && align_total(total, geometry.alignment_bytes);
    layout.index_start.push_back(total);
    fits = fits && add_product(total, pages, owner.index_value_bytes);
    layout.scale_start.push_back(total);
    fits = fits && add_product(total, pages, owner.index_scale_bytes);
  }
  fits = fits && align_total(total, geometry.alignment_bytes);
  layout.state_start = total;
  fits = fits && add_product(total, slots, geometry.state_bytes);
  layout.total_bytes = total;
  if (!fits) {
    return Status::invalid(std::to_string(pages) + " PAGEs of " + std::to_string(geometry.paged_bytes()) +
                           " bytes and " + std::to_string(slots) + " STATE slots of " +
                           std::to_string(geometry.state_bytes) + " bytes: the sum exceeds 2^63 bytes");
  }
  return layout;
}

ByteRange PoolLayout::page_part(int32_t page, int part) const noexcept {
  if (part == 0) return {page * geometry.page_bytes, geometry.page_bytes};
  const size_t owner = static_cast<size_t>(part - 1) / 2;
  const bool is_scale = part % 2 == 0;
  const OwnerGeometry& plane = geometry.owners[owner];
  const int64_t size = is_scale ? plane.index_scale_bytes : plane.index_value_bytes;
  return {(is_scale ? scale_start[owner] : index_start[owner]) + page * size, size};
}

ops::WindowRing PoolLayout::window_ring(std::byte* base, int layer) const {
  PS_CHECK(layer >= 0 && layer < geometry.layers, "layer", layer, "of", geometry.layers);
  ops::WindowRing ring;
  ring.base = base + state_start + layer * geometry.window_layer_bytes;
  ring.slot_stride_bytes = geometry.state_bytes;
  ring.ring_slots = geometry.ring_slots;
  ring.dim = geometry.head_dim;
  ring.format = geometry.window_row_format;
  return ring;
}

ops::MainPlane PoolLayout::main_plane(std::byte* base, int owner) const {
  PS_CHECK(owner >= 0 && owner < std::ssize(geometry.owners), "owner", owner, "of", geometry.owners.size());
  const OwnerGeometry& part = geometry.owners[static_cast<size_t>(owner)];
  ops::MainPlane plane;
  plane.base = base + part.main_offset_bytes;
  plane.page_stride_bytes = geometry.page_bytes;
  plane.rows_per_page = part.rows_per_page;
  plane.ratio = part.ratio;
  plane.dim = geometry.head_dim;
  plane.format = geometry.main_row_format;
  return plane;
}

ops::IndexPlane PoolLayout::index_plane(std::byte* base, int owner) const {
  PS_CHECK(owner >= 0 && owner < std::ssize(geometry.owners), "owner", owner, "of", geometry.owners.size());
  const OwnerGeometry& part = geometry.owners[static_cast<size_t>(owner)];
  ops::IndexPlane plane;
  plane.format = geometry.options.format.index;
  plane.values = base + index_start[static_cast<size_t>(owner)];
  plane.scales = plane.format == ops::IndexFormat::kFp4 ? base + scale_start[static_cast<size_t>(owner)] : nullptr;
  plane.rows_per_page = part.rows_per_page;
  plane.ratio = part.ratio;
  plane.dim = geometry.index_dim;
  return plane;
}

ops::CompressorRing PoolLayout::compressor_ring(std::byte* base, int owner) const {
  PS_CHECK(owner >= 0 && owner < std::ssize(geometry.owners), "owner", owner, "of", geometry.owners.size());
  ops::CompressorRing ring;
  ring.kv = base + slot_start(0) + geometry.compress_kv_offset + owner * geometry.compressor_owner_bytes;
  ring.score = base + slot_start(0) + geometry.compress_score_offset + owner * geometry.compressor_owner_bytes;
  ring.slot_stride_bytes = geometry.state_bytes;
  ring.ring_slots = geometry.compressor_slots;
  ring.dim = geometry.head_dim;
  return ring;
}

}  // namespace ps::cache
