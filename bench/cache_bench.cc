// Cost of the cache's bookkeeping: prefix matching, publication, reservation, and copies of STATE images.
//   cache_bench [benchmark options]
// PAGEs of 256 tokens on a manager of 65,536 PAGEs, which is 15 GB of the packed format; prompts of 100,000 tokens.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

#include "base/pcg64.h"
#include "cache/page_manager.h"
#include "cache/pool.h"
#include "cache/state_images.h"
#include "checkpoint/config.h"
#include "checkpoint/topology.h"

namespace {

using namespace ps::cache;  // NOLINT: a program of one file

constexpr int32_t kPages = 65'536;
constexpr int64_t kPageTokens = 256;
constexpr int64_t kPrompt = 100'000;

PageManagerOptions options() {
  return {.pages = kPages, .page_tokens = kPageTokens, .layout_id = "bench", .name_space = ""};
}

std::vector<int32_t> draw_prompt(uint64_t seed, int64_t count = kPrompt) {
  ps::Pcg64 random(seed);
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) token = static_cast<int32_t>(random.integer(0, 129'280));
  return tokens;
}

int64_t pages_for(int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

// Publishes `prompts` prompts and releases them: most PAGEs of the manager are cached.
void fill(PageManager& pages, uint64_t prompts) {
  for (uint64_t seed = 1; seed <= prompts; ++seed) {
    const std::vector<int32_t> tokens = draw_prompt(seed);
    std::vector<PageId> table;
    if (!pages.reserve(pages_for(kPrompt), table)) std::abort();
    PublishCursor cursor;
    pages.publish(table, tokens, kPrompt, cursor);
    pages.release(table);
  }
}

void match_prefix(benchmark::State& state) {
  PageManager pages(options());
  fill(pages, 160);
  const std::vector<int32_t> hit = draw_prompt(80);
  const std::vector<int32_t> miss = draw_prompt(1000);
  std::vector<PageId> hits;
  hits.reserve(static_cast<size_t>(pages_for(kPrompt)));
  for (auto _ : state) benchmark::DoNotOptimize(pages.match(state.range(0) != 0 ? hit : miss, kPrompt - 1, hits));
  state.counters["hit_tokens"] = static_cast<double>(hits.size()) * kPageTokens;
}
BENCHMARK(match_prefix)->ArgName("hit")->Arg(1)->Arg(0)->Unit(benchmark::kMicrosecond);

void publish_whole_prompt(benchmark::State& state) {
  PageManager pages(options());
  const std::vector<int32_t> tokens = draw_prompt(1);
  std::vector<PageId> table;
  for (auto _ : state) {
    state.PauseTiming();
    pages.release(table);
    table.clear();
    std::vector<PageId> all;  // evicts what the last round published
    if (!pages.reserve(kPages, all)) std::abort();
    pages.release(all);
    if (!pages.reserve(pages_for(kPrompt), table)) std::abort();
    PublishCursor cursor;
    state.ResumeTiming();
    pages.publish(table, tokens, kPrompt, cursor);
  }
}
BENCHMARK(publish_whole_prompt)->Unit(benchmark::kMicrosecond)->Iterations(200);

// What every decode step does for a sequence of 100,000 tokens that fills no PAGE in it.
void publish_nothing_new(benchmark::State& state) {
  PageManager pages(options());
  const std::vector<int32_t> tokens = draw_prompt(1);
  std::vector<PageId> table;
  if (!pages.reserve(pages_for(kPrompt), table)) std::abort();
  PublishCursor cursor;
  for (auto _ : state) pages.publish(table, tokens, kPrompt, cursor);
}
BENCHMARK(publish_nothing_new);

// Claim of a full hit with its reservation of one PAGE, and the release of both.
void admit_and_release(benchmark::State& state) {
  PageManager pages(options());
  fill(pages, 160);
  const std::vector<int32_t> tokens = draw_prompt(80);
  std::vector<PageId> table;
  table.reserve(static_cast<size_t>(pages_for(kPrompt)) + 1);
  for (auto _ : state) {
    (void)pages.match(tokens, kPrompt - 1, table);
    benchmark::DoNotOptimize(pages.admission_demand(table, 1));
    pages.claim(table);
    if (!pages.reserve(1, table)) std::abort();
    pages.release(table);
  }
}
BENCHMARK(admit_and_release)->Unit(benchmark::kMicrosecond);

// A prompt's PAGEs from vacant ones, or by eviction of cached ones.
void reserve_and_release(benchmark::State& state) {
  PageManager pages(options());
  if (state.range(0) != 0) fill(pages, 170);  // more than there is room for: no PAGE is vacant
  std::vector<PageId> table;
  table.reserve(kPages);
  uint64_t seed = 1000;
  for (auto _ : state) {
    table.clear();
    if (!pages.reserve(pages_for(kPrompt), table)) std::abort();
    if (state.range(0) != 0) {
      state.PauseTiming();
      const std::vector<int32_t> other = draw_prompt(seed++);
      PublishCursor cursor;
      pages.publish(table, other, kPrompt, cursor);
      state.ResumeTiming();
    }
    pages.release(table);
  }
  state.SetItemsProcessed(state.iterations() * pages_for(kPrompt));
}
BENCHMARK(reserve_and_release)->ArgName("evict")->Arg(0)->Unit(benchmark::kMicrosecond);
BENCHMARK(reserve_and_release)->ArgName("evict")->Arg(1)->Unit(benchmark::kMicrosecond)->Iterations(300);

// What the geometry of the published model depends on.
ps::checkpoint::TextConfig published_dims() {
  ps::checkpoint::TextConfig text;
  text.head_dim = 512;
  text.index_head_dim = 128;
  text.index_n_heads = 32;
  text.index_topk = 512;
  text.sliding_window = 128;
  text.num_hidden_layers = 40;
  text.num_nextn_predict_layers = 3;
  text.compress_ratios.assign(43, 0);
  std::fill_n(text.compress_ratios.begin() + 2, 18, 2);
  std::fill_n(text.compress_ratios.begin() + 20, 20, 1);
  text.kv_source_layer_ids = {2, 8, 14, 20};
  text.index_source_layer_ids = {2, 8, 14, 20, 24, 28, 32, 36};
  text.engram_layer_ids = {1, 14};
  text.engram_max_ngram_size = 4;
  return text;
}

// Store and restore of one image of the published model: bytes per second of both copies.
void store_and_restore_image(benchmark::State& state) {
  const ps::checkpoint::TextConfig text = published_dims();
  const auto format = state.range(0) != 0 ? MainFormat::kFp4 : MainFormat::kBF16;
  auto geometry = CacheGeometry::create(text, ps::checkpoint::layer_topology(text),
                                        {.format = {format, ps::ops::IndexFormat::kFp4}, .page_tokens = kPageTokens});
  if (!geometry.ok()) return state.SkipWithError(geometry.status().to_string().c_str());
  auto pool = CachePool::allocate(geometry.value(), 64, 2);
  if (!pool.ok()) return state.SkipWithError(pool.status().to_string().c_str());
  PageManager pages(
      {.pages = 64, .page_tokens = kPageTokens, .layout_id = geometry.value().layout_id, .name_space = ""});
  StateImages images(pages, geometry.value(), 2);
  const std::vector<int32_t> tokens = draw_prompt(1, kPageTokens);
  std::vector<PageId> table;
  if (!pages.reserve(1, table)) std::abort();
  PublishCursor cursor;
  pages.publish(table, tokens, kPageTokens, cursor);
  pool.value().zero_slot(SlotId{0});
  pool.value().position(SlotId{0}) = kPageTokens;
  for (auto _ : state) {
    if (images.queue_store(cursor.hash, kPageTokens, SlotId{0}) != StoreResult::kQueued) std::abort();
    images.run_copies(pool.value());
    images.complete_step(true);
    if (!images.queue_restore(cursor.hash, SlotId{1}, geometry.value().layout_id)) std::abort();
    images.run_copies(pool.value());
    images.complete_step(true);
    if (!images.make_room(63)) std::abort();  // gives the image up again
  }
  state.SetBytesProcessed(state.iterations() * 2 * (geometry.value().window_bytes() + geometry.value().cursor_bytes()));
}
BENCHMARK(store_and_restore_image)->ArgName("packed")->Arg(0)->Arg(1)->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
