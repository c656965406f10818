// The backbone on `nano`: against the independent restatement, and against itself in any split, cache format and number
// of threads.
#include <cmath>
#include <cstring>

#include "tests/model/golden_data.h"

namespace ps::tests {
namespace {

const checkpoint::Checkpoint& nano() {
  static const checkpoint::Checkpoint opened = [] {
    auto result = checkpoint::Checkpoint::open(PAGESTATE_NANO);
    if (!result.ok()) throw std::runtime_error(result.status().to_string());
    return std::move(result).value();
  }();
  return opened;
}

std::unique_ptr<engine::Runner> nano_runner(engine::RunnerOptions options) {
  static const std::vector<int32_t> classes =
      text::engram_token_map(*text::Tokenizer::load(nano().tokenizer_path()).value()).class_of;
  options.max_tokens = 160;
  options.page_tokens = 32;
  auto made = engine::Runner::create(nano(), classes, ops::reference_table(), options);
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return made.ok() ? std::move(made).value() : nullptr;
}

struct NanoGolden {
  std::vector<int32_t> ids;
  std::vector<int64_t> positions;
  std::vector<float> logits;
};

NanoGolden read_golden() {
  auto file =
      checkpoint::SafetensorsFile::open(std::string(PAGESTATE_TEST_DATA) + "/golden/nano/golden.safetensors").value();
  NanoGolden golden;
  for (const checkpoint::SafetensorsEntry& entry : file.entries()) {
    const checkpoint::TensorView view = file.view(entry);
    const auto count = static_cast<size_t>(view.shape.elements());
    std::vector<int32_t> integers(view.dtype == DType::kI32 ? count : 0);
    if (view.dtype == DType::kI32) std::memcpy(integers.data(), view.data, count * 4);
    if (entry.name == "ids") golden.ids = integers;
    if (entry.name == "positions") golden.positions.assign(integers.begin(), integers.end());
    if (entry.name == "logits") {
      golden.logits.resize(count);
      std::memcpy(golden.logits.data(), view.data, count * 4);
    }
  }
  return golden;
}

// Twelve layers of FP8 and FP4 in BF16 compute. The restatement keeps our summation orders, so not even one ulp is
// given away.
TEST(Nano, EqualsTheRestatementEndToEnd) {
  const NanoGolden golden = read_golden();
  const auto runner = nano_runner({});
  ASSERT_NE(runner, nullptr);
  const std::vector<float> logits = all_logits(*runner, golden.ids);
  const size_t vocabulary = golden.logits.size() / golden.positions.size();
  for (size_t i = 0; i < golden.positions.size(); ++i) {
    for (size_t k = 0; k < vocabulary; ++k) {
      ASSERT_EQ(logits[static_cast<size_t>(golden.positions[i]) * vocabulary + k], golden.logits[i * vocabulary + k])
          << "position " << golden.positions[i] << " token " << k;
    }
  }
}

// What a run leaves behind: logits of all positions, compressed rows, the window rows that a next token can see.
struct Trace {
  std::vector<float> logits;
  std::vector<std::byte> cache;
  friend bool operator==(const Trace&, const Trace&) = default;
};

Trace trace(const engine::RunnerOptions& options, const std::vector<int32_t>& ids) {
  const auto runner = nano_runner(options);
  if (runner == nullptr) return {};
  Trace made;
  made.logits = all_logits(*runner, ids);
  std::vector<int32_t> table;
  for (const cache::PageId page : runner->pages()) table.push_back(cache::ordinal(page));
  const auto keep = [&](const std::byte* row, int64_t bytes) { made.cache.insert(made.cache.end(), row, row + bytes); };
  const auto length = static_cast<int32_t>(ids.size());
  for (size_t owner = 0; owner < nano().topology().owners.size(); ++owner) {
    const ops::MainPlane plane = runner->pool().main_plane(static_cast<int>(owner));
    for (int32_t row = 0; row < length / plane.ratio; ++row)
      keep(plane.row(table.data(), row), ops::row_bytes(plane.format, plane.dim));
    const ops::IndexPlane index = runner->pool().index_plane(static_cast<int>(owner));
    for (int32_t row = 0; row < length / index.ratio; ++row) {
      const int64_t flat = index.flat_row(table.data(), row);
      if (index.format != ops::IndexFormat::kFp4) continue;
      for (int64_t byte = 0; byte < index.dim / 2; ++byte) {
        keep(index.values + flat / 8 * (4 * index.dim) + ops::fp4_index_offset(flat % 8, byte, index.dim), 1);
      }
    }
  }
  const auto window = static_cast<int32_t>(nano().config().text_config.sliding_window);
  for (int layer = 0; layer < static_cast<int>(nano().topology().layers.size()); ++layer) {
    const ops::WindowRing ring = runner->pool().window_ring(layer);
    for (int32_t position = length - window; position < length; ++position)
      keep(ring.row(0, position), ops::row_bytes(ring.format, ring.dim));
  }
  return made;
}

TEST(Nano, AnySplitOfAPromptGivesTheSameLogitsAndCaches) {
  const std::vector<int32_t> ids = read_golden().ids;
  const Trace whole = trace({.prefill_chunk = 512}, ids);
  ASSERT_FALSE(whole.logits.empty());
  for (const int64_t chunk : {1, 2, 3, 63, 64, 65, 127, 128, 129}) {
    EXPECT_TRUE(trace({.prefill_chunk = chunk}, ids) == whole) << "chunks of " << chunk;
  }
}

TEST(Nano, NumberOfThreadsAndRepetitionChangeNothing) {
  const std::vector<int32_t> ids = read_golden().ids;
  const Trace once = trace({.threads = 1}, ids);
  for (const int threads : {1, 2, 3, 7}) EXPECT_TRUE(trace({.threads = threads}, ids) == once) << threads << " threads";
}

TEST(Nano, PackedAndBf16PoolsGiveTheSameLogits) {
  const std::vector<int32_t> ids = read_golden().ids;
  for (const ops::IndexFormat index : {ops::IndexFormat::kFp4, ops::IndexFormat::kFp8}) {
    const Trace wide = trace({.format = {cache::MainFormat::kBF16, index}}, ids);
    const Trace packed = trace({.format = {cache::MainFormat::kFp4, index}}, ids);
    EXPECT_EQ(wide.logits, packed.logits);
  }
}

}  // namespace
}  // namespace ps::tests
