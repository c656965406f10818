#include "apps/weights.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <limits>
#include <string>

#include "apps/machine_options.h"
#include "apps/progress.h"
#include "base/cpu_info.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/process.h"
#include "base/topology.h"

namespace ps::apps {
namespace {

using Clock = std::chrono::steady_clock;
using checkpoint::Checkpoint;

constexpr std::string_view kExperts = ".ffn.experts.";
constexpr int kLastStage = std::numeric_limits<int>::max();
constexpr int kFewestReaders = 4;  // they wait for the disk most of the time
constexpr std::chrono::seconds kLogInterval{5};

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

int stage_without_experts(std::string_view tensor) noexcept {
  return tensor.find(kExperts) == std::string_view::npos ? load_stage(tensor) : -1;
}

// Whose rows a step's threads cut among themselves. Which experts run, and on which thread, is the router's choice, and
// of the embedding a step reads single rows: these stay spread.
bool splits_rows(std::string_view tensor) noexcept {
  return tensor.ends_with(".weight") && tensor.find(kExperts) == std::string_view::npos && tensor != "embed.weight";
}

// A line in the log now and then, for who has no terminal.
class LogProgress {
 public:
  void update(int64_t done, int64_t total) {
    if (total == 0 || seconds_since(logged_) < static_cast<double>(kLogInterval.count())) return;
    logged_ = Clock::now();
    const double share = static_cast<double>(done) / static_cast<double>(total);
    const double seconds = seconds_since(start_);
    log_info(fmt::format("event=loading done_bytes={} total_bytes={} seconds={:.0f} left_seconds={:.0f}", done, total,
                         seconds, share > 0 ? seconds * (1 - share) / share : 0.0));
  }

 private:
  Clock::time_point start_ = Clock::now();
  Clock::time_point logged_ = start_;
};

Status check_copies_fit(const Checkpoint& opened) {
  const int64_t required = opened.load_bytes(load_stage);
  const int64_t available = cpu_info().available_memory_bytes;
  if (required <= available) return {};
  return Status::exhausted(
      fmt::format("--weights copy takes {} bytes of memory, {} are available; --weights map needs none of its own",
                  required, available));
}

}  // namespace

int load_stage(std::string_view tensor) noexcept {
  constexpr std::string_view kLayers = "layers.";
  if (tensor.starts_with("vision.") || tensor.starts_with("mtp.")) return -1;
  if (tensor.find(".engram.embed.") != std::string_view::npos) return -1;
  if (tensor.starts_with("embed.")) return 0;
  int layer = 0;
  if (!tensor.starts_with(kLayers)) return kLastStage;
  (void)std::from_chars(tensor.data() + kLayers.size(), tensor.data() + tensor.size(), layer);
  return 1 + layer;
}

Result<Checkpoint> open_checkpoint(const std::filesystem::path& folder, const Machine& machine) {
  PS_TRY(Checkpoint opened, Checkpoint::open(folder));
  if (machine.weights == WeightMode::kMap) return opened;
  PS_RETURN_IF_ERROR(check_copies_fit(opened));
  const std::vector<CpuPlace> cores = physical_core_places();
  // Threads that wander have no node of their own.
  const std::vector<NodeShare> shares = machine.pin_threads && !cores.empty()
                                            ? node_shares(place_workers(cores, machine.threads))
                                            : std::vector<NodeShare>();
  PS_RETURN_IF_ERROR(opened.copy_on_load(load_stage, splits_rows, shares).with("--weights copy"));
  return opened;
}

Status load_weights(const Checkpoint& checkpoint, const Machine& machine, int64_t reserved_bytes,
                    const std::function<bool()>& is_stopped) {
  const Clock::time_point start = Clock::now();
  const int64_t left = cpu_info().available_memory_bytes - reserved_bytes;
  const int64_t wanted = checkpoint.load_bytes(load_stage);
  const bool reads_experts = checkpoint.has_copies() || wanted <= left;
  if (!reads_experts) {
    log_warning(
        fmt::format("event=large_model weights_bytes={} available_bytes={} "
                    "what=\"not all weights fit into memory: experts are read from the disk when used\"",
                    wanted, left));
  }
  ProgressBar bar("loading", "GB", 1e9);
  LogProgress log;
  PS_TRY(const checkpoint::LoadFigures figures,
         checkpoint.load(reads_experts ? load_stage : stage_without_experts, std::max(machine.threads, kFewestReaders),
                         [&](int64_t done, int64_t total) {
                           bar.update(done, total);
                           log.update(done, total);
                           return !is_stopped || !is_stopped();
                         }));
  log_info(fmt::format("event=weights mode={} bytes={} were_cached_bytes={} seconds={:.2f}",
                       checkpoint.has_copies() ? "copy" : "map", figures.total_bytes, figures.cached_bytes,
                       seconds_since(start)));
  return {};
}

Status load_weights(const Checkpoint& checkpoint, const Machine& machine, const engine::MemoryPlan& plan,
                    const std::function<bool()>& is_stopped) {
  PS_RETURN_IF_ERROR(load_weights(checkpoint, machine, plan.total_bytes(), is_stopped));
  // Reading a tokenizer leaves twice its size in the allocator. Nothing of cache and scratch is touched yet.
  (void)malloc_trim(0);
  const int64_t other = std::max<int64_t>(0, anonymous_bytes() - checkpoint.copied_bytes());
  log_info(fmt::format("event=memory cache_bytes={} scratch_bytes={} copied_weights_bytes={} other_bytes={}",
                       plan.state_bytes + plan.page_bytes, plan.scratch_bytes + plan.logit_bytes,
                       checkpoint.copied_bytes(), other));
  return {};
}

}  // namespace ps::apps
