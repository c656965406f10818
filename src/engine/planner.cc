#include "engine/planner.h"

#include <algorithm>
#include <cstdio>

#include "base/cpu_info.h"
#include "base/macros.h"
#include "engine/scheduler.h"
#include "model/forward.h"

namespace ps::engine {
namespace {

Status check_replay(const checkpoint::LayerTopology& topology, const EngineOptions& options) {
  if (!options.decoder_replay) return {};
  return model::supports_decoder_replay(topology).with("turn it off, or");
}

std::string gibibytes(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f GiB", static_cast<double>(bytes) / static_cast<double>(1 << 30));
  return text;
}

// How many PAGEs the options ask for.
Result<int64_t> page_count(const MemoryPlan& plan, const EngineOptions& options, int64_t max_context) {
  const cache::CacheGeometry& geometry = plan.geometry;
  if (options.memory_bytes > 0) {
    const int64_t fixed = plan.scratch_bytes + plan.logit_bytes;
    const int64_t pages = geometry.max_pages(options.memory_bytes - fixed, plan.slots);
    if (pages >= 1) return pages;
    const int64_t least =
        fixed + plan.slots * geometry.state_bytes + geometry.paged_bytes() + 4 * geometry.alignment_bytes;
    return Status::exhausted("memory of " + std::to_string(options.memory_bytes) + " bytes holds " +
                             std::to_string(fixed) + " of scratch and " + std::to_string(plan.slots) +
                             " STATE slots of " + std::to_string(geometry.state_bytes) + ", but no PAGE; " +
                             std::to_string(least) +
                             " would be enough for one, fewer max-sequences or a smaller token-budget need less");
  }
  if (options.pages > 0) return options.pages;
  const int64_t context_pages = geometry.pages_for(max_context);
  return context_pages * std::max<int64_t>(1, (options.max_sequences + 1) / 2);
}

}  // namespace

Result<MemoryPlan> plan_memory(const checkpoint::Config& config, const checkpoint::LayerTopology& topology,
                               const ops::OpTable& table, const EngineOptions& options) {
  const checkpoint::TextConfig& text = config.text_config;
  if (options.threads < 1 || options.threads > 1024) {
    return Status::invalid("threads is " + std::to_string(options.threads) + "; legal values are 1 to 1024");
  }
  if (options.max_context < 0 || options.max_context > text.max_position_embeddings) {
    return Status::invalid("max-context is " + std::to_string(options.max_context) + "; legal values are 1 to " +
                           std::to_string(text.max_position_embeddings) + ", or 0 for what fits");
  }
  PS_RETURN_IF_ERROR(check_replay(topology, options));
  MemoryPlan plan;
  PS_TRY(plan.geometry, cache::CacheGeometry::create(text, topology, {options.format, options.page_tokens, 0}));
  SchedulerOptions scheduling;
  scheduling.replay = {static_cast<int32_t>(text.sliding_window), static_cast<int32_t>(options.page_tokens),
                       options.encoder_replay, options.decoder_replay};
  scheduling.max_sequences = options.max_sequences;
  scheduling.token_budget = options.token_budget;
  scheduling.long_prefill_tokens = options.long_prefill_tokens;
  scheduling.image_interval_tokens = options.image_interval_tokens;
  scheduling.prefix_cache = options.prefix_cache;
  scheduling.max_context = 1;
  PS_RETURN_IF_ERROR(check(scheduling));

  const model::Dimensions dims = model::dimensions(config);
  plan.slots = options.max_sequences;
  // Wanted rows pass through in blocks, but a request with prompt log-probabilities may want every row's last hidden
  // state.
  plan.scratch_bytes = model::forward_scratch_bytes(dims, table, options.compute, options.token_budget,
                                                    options.token_budget, options.threads);
  plan.logit_bytes = options.max_sequences * dims.vocabulary * int64_t{sizeof(float)};
  plan.state_bytes = plan.slots * plan.geometry.state_bytes;
  const int64_t wanted_context =
      options.max_context > 0 ? options.max_context : std::min<int64_t>(text.max_position_embeddings, 32768);
  PS_TRY(plan.pages, page_count(plan, options, wanted_context));
  plan.page_bytes = plan.pages * plan.geometry.paged_bytes();
  const int64_t held = std::min(plan.page_tokens_total(), text.max_position_embeddings);
  plan.max_context = options.max_context > 0 ? options.max_context : held;
  if (plan.max_context > held) {
    return Status::exhausted("max-context is " + std::to_string(options.max_context) + ", but the PAGEs hold " +
                             std::to_string(held) + " tokens; at most that many are legal here");
  }
  // The kernel grants more than there is and kills later: refuse now.
  if (const int64_t machine = cpu_info().memory_bytes; plan.total_bytes() + options.copied_weight_bytes > machine) {
    std::string copies;
    if (options.copied_weight_bytes > 0) {
      copies = " and copied weights " + std::to_string(options.copied_weight_bytes);
    }
    return Status::exhausted("PAGEs, STATE and scratch take " + std::to_string(plan.total_bytes()) + " bytes" + copies +
                             ", the machine has " + std::to_string(machine) +
                             " (or this control group); a smaller max-context, max-sequences or memory is needed");
  }
  return plan;
}

std::string describe(const MemoryPlan& plan) {
  const auto line = [](const std::string& label, const std::string& value) {
    return label + std::string(label.size() < 24 ? 24 - label.size() : 1, ' ') + value + "\n";
  };
  std::string text;
  text += line("scratch", gibibytes(plan.scratch_bytes + plan.logit_bytes));
  text += line("STATE", gibibytes(plan.state_bytes) + " = " + std::to_string(plan.slots) + " slots of " +
                            std::to_string(plan.geometry.state_bytes) + " bytes");
  text += line("PAGEs", gibibytes(plan.page_bytes) + " = " + std::to_string(plan.pages) + " of " +
                            std::to_string(plan.geometry.paged_bytes()) + " bytes");
  text += line("total", gibibytes(plan.total_bytes()));
  text += line("tokens", std::to_string(plan.page_tokens_total()) + ", at most " + std::to_string(plan.max_context) +
                             " in one sequence");
  for (int64_t context = 1024; context <= plan.max_context; context *= 8) {
    const int64_t fit = std::min(plan.slots, plan.pages / plan.geometry.pages_for(context));
    text += line("sequences of " + std::to_string(context), std::to_string(fit));
  }
  return text;
}

}  // namespace ps::engine
