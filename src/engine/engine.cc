#include "engine/engine.h"

#include <algorithm>
#include <cstring>

#include "base/macros.h"
#include "engine/setup.h"

namespace ps::engine {
namespace {

SchedulerOptions scheduler_options(const EngineOptions& options, const MemoryPlan& plan, int64_t window) {
  SchedulerOptions scheduling;
  scheduling.replay = {static_cast<int32_t>(window), static_cast<int32_t>(options.page_tokens), options.encoder_replay,
                       options.decoder_replay};
  scheduling.max_sequences = options.max_sequences;
  scheduling.token_budget = options.token_budget;
  scheduling.long_prefill_tokens = options.long_prefill_tokens;
  scheduling.max_context = plan.max_context;
  scheduling.image_interval_tokens = options.image_interval_tokens;
  scheduling.prefix_cache = options.prefix_cache;
  return scheduling;
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(const checkpoint::Checkpoint& checkpoint,
                                               std::vector<int32_t> token_classes,
                                               std::span<const int32_t> never_sampled, const ops::OpTable& table,
                                               const EngineOptions& options) {
  const checkpoint::Config& config = checkpoint.config();
  EngineOptions planned = options;
  planned.copied_weight_bytes = checkpoint.copied_bytes();
  PS_TRY(MemoryPlan plan, plan_memory(config, checkpoint.topology(), table, planned));
  PS_TRY(PlanShape shape, make_plan_shape(config, token_classes));
  PS_TRY(cache::CachePool pool, cache::CachePool::allocate(plan.geometry, plan.pages, plan.slots));
  PS_TRY(HostBuffer scratch, HostBuffer::allocate(plan.scratch_bytes));

  std::unique_ptr<Engine> engine(
      new Engine(std::move(plan), options, std::move(pool), std::move(scratch), config, never_sampled));
  engine->shape_ = std::move(shape);
  engine->token_classes_ = std::move(token_classes);
  engine->model_ = std::make_unique<model::Model>(checkpoint, table, model::ModelOptions{options.compute});
  engine->views_ = make_views(engine->pool_, checkpoint.topology());
  engine->step_plan_.reserve(engine->shape_, options.token_budget, options.max_sequences,
                             engine->plan_.geometry.pages_for(engine->plan_.max_context));
  return engine;
}

Engine::Engine(MemoryPlan plan, const EngineOptions& options, cache::CachePool pool, HostBuffer scratch,
               const checkpoint::Config& config, std::span<const int32_t> never_sampled)
    : plan_(std::move(plan)),
      options_(options),
      eos_(config.eos_token_id),
      vocabulary_(static_cast<int32_t>(config.text_config.vocab_size)),
      pool_(std::move(pool)),
      scratch_(std::move(scratch)),
      threads_(options.threads, options.pin_threads ? Pinning::kCores : Pinning::kNone),
      slots_(static_cast<int32_t>(plan_.slots)),
      sampler_(vocabulary_, never_sampled) {
  const std::string layout = plan_.geometry.layout_id;
  const std::string replay = std::string("encoder-replay=") + (options.encoder_replay ? "1" : "0") +
                             " decoder-replay=" + (options.decoder_replay ? "1" : "0");
  pages_ = std::make_unique<cache::PageManager>(cache::PageManagerOptions{.pages = static_cast<int32_t>(plan_.pages),
                                                                          .page_tokens = options.page_tokens,
                                                                          .layout_id = layout,
                                                                          .name_space = replay});
  if (!options.encoder_replay && options.prefix_cache && plan_.geometry.paged_bytes() > 0) {
    images_ = std::make_unique<cache::StateImages>(*pages_, plan_.geometry, static_cast<int32_t>(plan_.slots));
  }
  scheduler_ = std::make_unique<Scheduler>(scheduler_options(options, plan_, config.text_config.sliding_window),
                                           *pages_, slots_, images_.get(), layout);
  const auto sequences = static_cast<size_t>(options.max_sequences);
  logits_.resize(sequences * static_cast<size_t>(vocabulary_));
  rows_.reserve(sequences);
  choices_.reserve(sequences);
  top_.resize(sequences * static_cast<size_t>(kMaxTopLogprobs));
}

Engine::~Engine() = default;

Status Engine::check(const Request& request) const {
  PS_RETURN_IF_ERROR(engine::check(request.sampling));
  if (request.top_logprobs < 0 || request.top_logprobs > kMaxTopLogprobs) {
    return Status::invalid("top_logprobs is " + std::to_string(request.top_logprobs) + "; legal values are 0 to " +
                           std::to_string(kMaxTopLogprobs));
  }
  for (const int32_t id : request.prompt) {
    if (id < 0 || id >= vocabulary_) {
      return Status::invalid("token id " + std::to_string(id) + "; legal values are 0 to " +
                             std::to_string(vocabulary_ - 1));
    }
  }
  return scheduler_->check_fits(static_cast<int64_t>(request.prompt.size()), request.max_tokens);
}

Result<SequenceId> Engine::add(Request request) {
  PS_RETURN_IF_ERROR(check(request));
  auto sequence = std::make_unique<Sequence>();
  sequence->id = SequenceId{next_id_};
  sequence->prompt_tokens = static_cast<int64_t>(request.prompt.size());
  sequence->request = std::move(request);
  const Request& wanted = sequence->request;
  // From here on the sequence never allocates: it may become as long as it was allowed to.
  const size_t longest = wanted.prompt.size() + static_cast<size_t>(wanted.max_tokens);
  sequence->tokens.reserve(longest);
  sequence->tokens.assign(wanted.prompt.begin(), wanted.prompt.end());
  if (!shape_.engram.empty()) {
    const auto history = static_cast<size_t>(shape_.engram.front().max_ngram) - 1;
    sequence->classes.reserve(longest + history);
    sequence->classes.assign(history, checkpoint::kEngramDead);
    for (const int32_t id : wanted.prompt) sequence->classes.push_back(token_classes_[static_cast<size_t>(id)]);
  }
  if (wanted.prompt_logprobs) {
    sequence->prompt_logprobs.resize(wanted.prompt.size() - 1);
    sequence->prompt_top.resize(sequence->prompt_logprobs.size() * static_cast<size_t>(wanted.top_logprobs));
  }
  scheduler_->add(*sequence);
  // Room for the events of a step in which everything that waits or runs ends.
  sequences_.emplace(next_id_, std::move(sequence));
  events_.reserve(2 * sequences_.size());
  aborted_.reserve(sequences_.size());
  ended_.reserve(sequences_.size());
  return SequenceId{next_id_++};
}

void Engine::abort(SequenceId id) {
  const auto found = sequences_.find(static_cast<int64_t>(id));
  if (found != sequences_.end()) found->second->abort_requested = true;
}

std::span<const Event> Engine::step() {
  events_.clear();
  ended_.clear();
  scheduled_ = scheduler_->schedule(aborted_);
  for (Sequence* sequence : aborted_) {
    Event event = event_of(*sequence);
    event.finish = FinishReason::kAborted;
    end(*sequence, event);
  }
  if (scheduled_.empty()) return events_;

  prepare_slots();
  build_plan(scheduled_);
  if (tap_ != nullptr) tap_->planned(scheduled_, rows_);
  choices_.assign(scheduled_.size(), Choice{});
  ops::Exec exec{threads_, scratch_};
  model_->forward(step_plan_.forward_plan(logits_.data(), static_cast<int32_t>(options_.max_sequences), this), views_,
                  exec);
  commit(scheduled_);
  ++steps_;
#ifdef PAGESTATE_DCHECKS
  const Status integrity = check_integrity();
  PS_CHECK(integrity.ok(), integrity.message());
#endif
  return events_;
}

// Brings every slot to the position that its forward continues: stores and restores of images first, then fresh slots.
void Engine::prepare_slots() {
  if (images_ != nullptr) images_->run_copies(pool_);
  if (options_.poison) {
    for (const cache::PageId page : scheduler_->fresh_pages()) pool_.poison_pages(page, 1);
  }
  for (const ScheduledRows& scheduled : scheduled_) {
    Sequence& sequence = *scheduled.sequence;
    const cache::SlotId slot = *sequence.slot;
    if (sequence.slot_needs_zero) {
      options_.poison ? pool_.poison_slot(slot) : pool_.zero_slot(slot);
      // After a prefix hit the cursor stands at the hit, although the window state is still to be rebuilt from below
      // it.
      pool_.position(slot) = sequence.computed;
      sequence.slot_needs_zero = false;
    }
    PS_CHECK(pool_.position(slot) == sequence.computed, "slot", cache::ordinal(slot), "holds", pool_.position(slot),
             "needs", sequence.computed);
  }
}

void Engine::build_plan(std::span<const ScheduledRows> scheduled) {
  rows_.clear();
  const size_t history = shape_.engram.empty() ? 0 : static_cast<size_t>(shape_.engram.front().max_ngram) - 1;
  for (const ScheduledRows& work : scheduled) {
    const Sequence& sequence = *work.sequence;
    const auto start = static_cast<size_t>(work.rows.start);
    const auto count = static_cast<size_t>(work.rows.end - work.rows.start);
    SequenceRows rows;
    rows.start = work.rows.start;
    rows.ids = std::span(sequence.tokens).subspan(start, count);
    if (!shape_.engram.empty()) rows.classes = std::span(sequence.classes).subspan(start, count + history);
    rows.pages = sequence.pages;
    rows.slot = *sequence.slot;
    rows.logits = sequence.request.prompt_logprobs && sequence.is_prefilling() ? LogitRows::kAll
                  : work.samples                                               ? LogitRows::kLast
                                                                               : LogitRows::kNone;
    rows.window_start = work.rows.window_start;
    rows.cached_until = work.rows.cached_until;
    rows.write_from = work.rows.write_from;
    rows.decoder_start = work.rows.decoder_start;
    rows.decoder_window_start = work.rows.decoder_truncated ? work.rows.decoder_start : 0;
    rows_.push_back(rows);
  }
  step_plan_.build(shape_, rows_);
}

void Engine::logits(int32_t first, int32_t rows, const float* values) {
  for (int32_t i = 0; i < rows; ++i) {
    const std::span<const float> row(values + int64_t{i} * vocabulary_, static_cast<size_t>(vocabulary_));
    const int32_t wanted = first + i;
    const auto index = static_cast<size_t>(step_plan_.logit_request(wanted));
    const int64_t position = step_plan_.logit_positions()[static_cast<size_t>(wanted)];
    Sequence& sequence = *scheduled_[index].sequence;
    if (tap_ != nullptr) tap_->logits(sequence.id, position, row);
    if (position + 1 < sequence.length()) {  // a prompt row: what did it say about the token that came?
      if (position + 1 < sequence.prompt_tokens) {
        sequence.prompt_logprobs[static_cast<size_t>(position)] =
            Sampler::logprob(row, sequence.tokens[static_cast<size_t>(position) + 1]);
        const auto top = static_cast<size_t>(sequence.request.top_logprobs);
        sampler_.top_logprobs(row, std::span(sequence.prompt_top).subspan(static_cast<size_t>(position) * top, top));
      }
      continue;
    }
    const std::span<const int32_t> tokens(sequence.tokens);
    const auto prompt = static_cast<size_t>(sequence.prompt_tokens);
    Choice& choice = choices_[index];
    choice.token = sampler_.sample(
        row, sequence.request.sampling,
        {.position = position + 1, .prompt = tokens.first(prompt), .generated = tokens.subspan(prompt)});
    choice.logprob = Sampler::logprob(row, choice.token);
    sampler_.top_logprobs(
        row, std::span(top_).subspan(index * kMaxTopLogprobs, static_cast<size_t>(sequence.request.top_logprobs)));
  }
}

void Engine::commit(std::span<const ScheduledRows> scheduled) {
  for (const ScheduledRows& work : scheduled) {
    Sequence& sequence = *work.sequence;
    if (sequence.is_prefilling()) prompt_rows_ += work.rows.end - work.rows.start;
    pool_.position(*sequence.slot) = work.rows.end;
  }
  if (images_ != nullptr) images_->complete_step(true);
  scheduler_->complete();
  for (size_t i = 0; i < scheduled.size(); ++i) {
    if (scheduled[i].samples) accept_token(*scheduled[i].sequence, i);
  }
}

void Engine::accept_token(Sequence& sequence, size_t index) {
  const Choice& choice = choices_[index];
  const Request& request = sequence.request;
  const bool stops =
      (choice.token == eos_ && !request.ignore_eos) ||
      std::find(request.stop_ids.begin(), request.stop_ids.end(), choice.token) != request.stop_ids.end();
  const bool is_wanted = request.max_tokens > 0;
  if (is_wanted) {
    sequence.tokens.push_back(choice.token);
    if (!shape_.engram.empty()) sequence.classes.push_back(token_classes_[static_cast<size_t>(choice.token)]);
  }
  Event event = event_of(sequence);
  if (request.prompt_logprobs && !sequence.prompt_logprobs_sent) {
    event.prompt_logprobs = sequence.prompt_logprobs;
    event.prompt_top = sequence.prompt_top;
    sequence.prompt_logprobs_sent = true;
  }
  if (!is_wanted) {
    event.finish = FinishReason::kLength;
    return end(sequence, event);
  }
  (stops ? event.stop_token : event.token) = choice.token;
  event.logprob = choice.logprob;
  event.top = std::span(top_).subspan(index * kMaxTopLogprobs, static_cast<size_t>(request.top_logprobs));
  if (stops) {
    event.finish = FinishReason::kStop;
    --event.answer_tokens;  // the stopping token is not part of the answer
    return end(sequence, event);
  }
  ++answer_tokens_;
  const bool is_full = sequence.answer_tokens() >= request.max_tokens;
  if (is_full) event.finish = FinishReason::kLength;
  if (is_full) return end(sequence, event);
  events_.push_back(event);
}

void Engine::end(Sequence& sequence, const Event& last) {
  events_.push_back(last);
  if (sequence.state != SequenceState::kFinished) scheduler_->finish(sequence);
  auto node = sequences_.extract(static_cast<int64_t>(sequence.id));
  ended_.push_back(std::move(node.mapped()));
}

std::optional<PromptProgress> Engine::progress(SequenceId id) const {
  const auto found = sequences_.find(static_cast<int64_t>(id));
  if (found == sequences_.end()) return std::nullopt;
  const Sequence& sequence = *found->second;
  return PromptProgress{std::min(sequence.computed, sequence.target), sequence.target,
                        sequence.state == SequenceState::kWaiting};
}

EngineView Engine::look() const {
  EngineView view{draw_pages(*pages_), {}};
  for (const auto& [id, sequence] : sequences_) {
    if (sequence->state != SequenceState::kRunning) continue;
    view.running.push_back({sequence->id, sequence->prompt_tokens, sequence->cached_tokens,
                            std::min(sequence->computed, sequence->prompt_tokens), sequence->answer_tokens()});
  }
  std::ranges::sort(view.running, {}, &SequenceView::id);
  return view;
}

Event Engine::event_of(const Sequence& sequence) const {
  Event event;
  event.sequence = sequence.id;
  event.cached_tokens = sequence.cached_tokens;
  event.prompt_tokens = sequence.prompt_tokens;
  event.answer_tokens = sequence.answer_tokens();
  return event;
}

EngineCounters Engine::counters() const noexcept {
  return {scheduler_->counters(), pages_->counters(), steps_, prompt_rows_, answer_tokens_};
}

}  // namespace ps::engine
