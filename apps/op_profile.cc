#include "apps/op_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>
#include <type_traits>
#include <utility>

#include "apps/text_table.h"
#include "base/macros.h"

namespace ps::apps {
namespace {

// Ops are plain function pointers: what they need beyond their arguments is found here.
OpProfile* current = nullptr;

constexpr std::array<std::string_view, 23> kNames = {"embed",
                                                     "rms_norm",
                                                     "rope",
                                                     "scale",
                                                     "compact_rows",
                                                     "quantize_mxfp8",
                                                     "linear",
                                                     "grouped_linear",
                                                     "hc_mix",
                                                     "hc_collapse",
                                                     "hc_expand",
                                                     "sparse_attention",
                                                     "window_write",
                                                     "compressor_pool",
                                                     "compressor_ring_write",
                                                     "compressed_store",
                                                     "index_key_store",
                                                     "index_query_quantize",
                                                     "index_select",
                                                     "router",
                                                     "moe",
                                                     "engram_gather",
                                                     "engram_mix"};

template <typename Member>
struct ArgsOf;
template <typename Args>
struct ArgsOf<ops::Op<Args> ops::OpTable::*> {
  using Type = Args;
};

std::string_view format_name(ops::WeightFormat format) {
  switch (format) {
    case ops::WeightFormat::kF32: return "F32";
    case ops::WeightFormat::kBF16: return "BF16";
    case ops::WeightFormat::kFp8Block32: return "FP8";
    case ops::WeightFormat::kFp4Block32: return "FP4";
  }
  return "?";
}

}  // namespace

template <auto kMember, int kSlot>
struct TimedOp {
  using Args = typename ArgsOf<std::remove_cv_t<decltype(kMember)>>::Type;

  static void run(const Args& args, ops::Exec& exec) {
    OpProfile::Key key{kSlot, 0, 0, ops::WeightFormat::kBF16};
    if constexpr (std::is_same_v<Args, ops::LinearArgs> || std::is_same_v<Args, ops::GroupedLinearArgs>) {
      key = {kSlot, args.w.rows, args.w.columns, args.w.format};
    }
    const auto start = std::chrono::steady_clock::now();
    (current->base_.*kMember)(args, exec);
    OpProfile::Sum& sum = current->entries_[key];
    sum.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    ++sum.calls;
  }
};

namespace {

template <auto... kMembers, int... kSlots>
void time_all(ops::OpTable& table, std::integer_sequence<int, kSlots...>) {
  static_assert(sizeof...(kMembers) == kNames.size());
  ((table.*kMembers = TimedOp<kMembers, kSlots>::run), ...);
}

}  // namespace

OpProfile::OpProfile(const ops::OpTable& base) : base_(base), table_(base) {
  PS_CHECK(current == nullptr, "one profile at a time");
  current = this;
  using T = ops::OpTable;
  time_all<&T::embed, &T::rms_norm, &T::rope, &T::scale, &T::compact_rows, &T::quantize_mxfp8, &T::linear,
           &T::grouped_linear, &T::hc_mix, &T::hc_collapse, &T::hc_expand, &T::sparse_attention, &T::window_write,
           &T::compressor_pool, &T::compressor_ring_write, &T::compressed_store, &T::index_key_store,
           &T::index_query_quantize, &T::index_select, &T::router, &T::moe, &T::engram_gather, &T::engram_mix>(
      table_, std::make_integer_sequence<int, static_cast<int>(kNames.size())>{});
}

OpProfile::~OpProfile() { current = nullptr; }

std::string OpProfile::text(const Key& key) {
  std::string name(kNames[static_cast<size_t>(key.slot)]);
  if (key.rows == 0) return name;
  return fmt::format("{} {} {}x{}", name, format_name(key.format), key.rows, key.columns);
}

std::vector<OpProfile::Entry> OpProfile::entries() const {
  std::vector<Entry> entries;
  for (const auto& [key, sum] : entries_) entries.push_back({text(key), sum.calls, sum.seconds});
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) { return a.seconds > b.seconds; });
  return entries;
}

std::string OpProfile::to_string() const {
  const std::vector<Entry> all = entries();
  double total = 0;
  for (const Entry& entry : all) total += entry.seconds;
  TextTable table({{"op", TextTable::Align::kLeft}, {"calls"}, {"seconds"}, {"share"}});
  for (const Entry& entry : all) {
    table.add_row({entry.op, std::to_string(entry.calls), fmt::format("{:.4f}", entry.seconds),
                   fmt::format("{:.1f} %", 100 * entry.seconds / total)});
  }
  return table.to_string();
}

}  // namespace ps::apps
