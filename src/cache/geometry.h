// PAGE and STATE geometry: how many bytes the cache takes, and where everything lies (runtime.md 1.1-1.4, 1.7, 1.9).
//
// Pure arithmetic over the config, the layer topology, the row formats, the PAGE size B and the draft width; it knows
// no memory and no request. One allocation holds
//   [ main plane: N PAGEs ][ index plane of owner 0 ] ... [ of owner K-1 ][ STATE: S slots ]
// - A PAGE of the main plane holds B / ratio rows of every owner, owner after owner.
// - An index plane is dense over all PAGEs. kFp8: blocks of 8 rows, scales appended to each block. kFp4: two regions,
//   first the values of all PAGEs, then their scales, without padding between them. Rows per PAGE and blocks are the
//   same for both.
// - A STATE slot holds, in this order: window[layers][ring][row], compress_kv[owners][ring][dim] F32, compress_score
//   likewise, cursor[1 + history] int64: committed position, then the newest compressed Engram ids, oldest first.
// - PAGE sizes, plane starts, STATE fields and slots are aligned to 1024 bytes (BF16) or 256 bytes (packed).
// All arithmetic is 64-bit. Everything is checked by create(); later calls cannot fail, except for sums beyond int64.
// Threading: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "checkpoint/config.h"
#include "checkpoint/topology.h"
#include "ops/cache_views.h"

namespace ps::cache {

// How compressed rows and window rows are stored. Both decode to equal values (design.md C1).
enum class MainFormat : uint8_t {
  kBF16,  // main and window rows: dim BF16
  kFp4,   // packed: main rows E2M1 + E4M3 per 16, window rows E4M3 + E8M0 per 32
};

struct CacheFormat {
  MainFormat main = MainFormat::kBF16;
  ops::IndexFormat index = ops::IndexFormat::kFp4;
  friend bool operator==(const CacheFormat&, const CacheFormat&) = default;
};

// "bf16", "fp4", and "fp4", "fp8": values of --kv-cache-dtype and --index-cache-dtype. invalid names the legal ones.
[[nodiscard]] std::string_view main_format_name(MainFormat format) noexcept;
[[nodiscard]] std::string_view index_format_name(ops::IndexFormat format) noexcept;
[[nodiscard]] Result<MainFormat> parse_main_format(std::string_view name);
[[nodiscard]] Result<ops::IndexFormat> parse_index_format(std::string_view name);

struct CacheOptions {
  CacheFormat format = {};
  int64_t page_tokens = 256;  // B
  int64_t spec_tokens = 0;    // drafted tokens per step: 0, or dspark_block_size; adds rings of the draft stages
};

inline constexpr int64_t kMaxPageTokens = 65536;
// A legal B is a multiple of this times the largest ratio: every owner's rows of a PAGE are whole index blocks.
inline constexpr int64_t kPageRowMultiple = ops::kIndexBlockRows;

// One owner's part of a PAGE.
struct OwnerGeometry {
  int layer = 0;
  int32_t ratio = 1;              // tokens per row
  int32_t rows_per_page = 0;      // B / ratio
  int64_t main_offset_bytes = 0;  // of its rows in a PAGE of the main plane
  int64_t index_value_bytes = 0;  // of a PAGE: kFp4 the packed codes, kFp8 whole blocks with their scales
  int64_t index_scale_bytes = 0;  // of a PAGE: kFp4 the E8M0 scales, kFp8 0

  [[nodiscard]] int64_t index_bytes() const noexcept { return index_value_bytes + index_scale_bytes; }
};

struct CacheGeometry {
  CacheOptions options;
  int64_t alignment_bytes = 0;  // 1024 or 256

  int32_t head_dim = 0;
  int32_t index_dim = 0;
  ops::RowFormat main_row_format = ops::RowFormat::kBF16;
  ops::RowFormat window_row_format = ops::RowFormat::kBF16;
  int64_t main_row_bytes = 0;
  int64_t window_row_bytes = 0;
  int64_t index_row_bytes = 0;

  // PAGE
  std::vector<OwnerGeometry> owners;  // in the order of LayerTopology::owners
  int64_t page_bytes = 0;             // of the main plane, aligned: the stride of a PAGE
  int64_t index_page_bytes = 0;       // of all index planes
  [[nodiscard]] int64_t paged_bytes() const noexcept { return page_bytes + index_page_bytes; }

  // STATE
  int32_t window = 0;              // W
  int32_t layers = 0;              // with a window ring: the backbone's, then the draft stages' when spec_tokens > 0
  int32_t ring_slots = 0;          // W + spec_tokens
  int32_t compressor_slots = 0;    // largest ratio + spec_tokens; every owner has a ring of that depth
  int32_t history = 0;             // Engram ids kept: max n-gram size - 1, or 0 without Engram
  int64_t window_layer_bytes = 0;  // of one layer's ring
  int64_t compressor_owner_bytes = 0;  // of one owner's ring, kv or score
  int64_t compress_kv_offset = 0;      // in a slot; window starts at 0
  int64_t compress_score_offset = 0;
  int64_t cursor_offset = 0;
  int64_t state_bytes = 0;  // aligned: the stride of a slot

  // Names the byte layout and the rules of selection: equal ids mean that PAGEs and STATE images are interchangeable
  // between two pools of the same weights and compute dtype. A restore compares it verbatim.
  std::string layout_id;

  // invalid, with the legal values, for anything that runtime.md 1.3 forbids.
  // REQUIRES: `topology` is layer_topology(text) of a legal config.
  [[nodiscard]] static Result<CacheGeometry> create(const checkpoint::TextConfig& text,
                                                    const checkpoint::LayerTopology& topology,
                                                    const CacheOptions& options);

  // PAGEs that cover positions [0, tokens).
  [[nodiscard]] int64_t pages_for(int64_t tokens) const noexcept {
    return (tokens + options.page_tokens - 1) / options.page_tokens;
  }
  // What an image of a slot holds (runtime.md 2.7.1): the window rings and the cursor, one after the other.
  [[nodiscard]] int64_t window_bytes() const noexcept { return layers * window_layer_bytes; }
  [[nodiscard]] int64_t cursor_bytes() const noexcept { return (1 + history) * static_cast<int64_t>(sizeof(int64_t)); }
  // PAGEs whose bytes hold an image of one slot. 0 for a model without owners.
  [[nodiscard]] int64_t pages_per_state_image() const noexcept {
    return paged_bytes() == 0 ? 0 : (window_bytes() + cursor_bytes() + paged_bytes() - 1) / paged_bytes();
  }
  // The most PAGEs that fit into `bytes` beside `slots` STATE slots; 0 when not even those fit.
  [[nodiscard]] int64_t max_pages(int64_t bytes, int64_t slots) const noexcept;
};

// Bytes of a pool, from its start.
struct ByteRange {
  int64_t start_bytes = 0;
  int64_t size_bytes = 0;
};

// Where everything lies in a pool of N PAGEs and S slots, as byte offsets from its start, and the views for a given
// start. The start may be any address space's, e.g. a device pointer: views are computed, never followed.
struct PoolLayout {
  CacheGeometry geometry;
  int32_t pages = 0;
  int32_t slots = 0;
  std::vector<int64_t> index_start;  // [owners], aligned
  std::vector<int64_t> scale_start;  // [owners], kFp4: of the scale region; kFp8: equal to the plane's end
  int64_t state_start = 0;           // aligned
  int64_t total_bytes = 0;

  // invalid for negative counts, and for counts or bytes beyond their integers.
  [[nodiscard]] static Result<PoolLayout> create(const CacheGeometry& geometry, int64_t pages, int64_t slots);

  // `layer`: [0, geometry.layers), draft stages after the backbone. `owner`: ordinal in LayerTopology::owners.
  [[nodiscard]] ops::WindowRing window_ring(std::byte* base, int layer) const;
  [[nodiscard]] ops::MainPlane main_plane(std::byte* base, int owner) const;
  [[nodiscard]] ops::IndexPlane index_plane(std::byte* base, int owner) const;
  [[nodiscard]] ops::CompressorRing compressor_ring(std::byte* base, int owner) const;
  // A PAGE's bytes are not contiguous: part 0 lies in the main plane, then two parts per owner: index values, index
  // scales (empty for kFp8). Together they are paged_bytes() long, and each part of consecutive PAGEs is contiguous.
  [[nodiscard]] int page_parts() const noexcept { return 1 + 2 * static_cast<int>(geometry.owners.size()); }
  [[nodiscard]] ByteRange page_part(int32_t page, int part) const noexcept;
  [[nodiscard]] int64_t slot_start(int32_t slot) const noexcept { return state_start + slot * geometry.state_bytes; }
};

}  // namespace ps::cache
