#include "engine/scheduler.h"

#include <algorithm>
#include <limits>

#include "base/macros.h"

namespace ps::engine {

std::string_view finish_reason_name(FinishReason reason) noexcept {
  switch (reason) {
    case FinishReason::kNone: return "none";
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kAborted: return "aborted";
  }
  return "?";
}

Status check(const SchedulerOptions& options) {
  const ReplayRules& replay = options.replay;
  const auto refuse = [](const std::string& name, int64_t value, const std::string& legal) {
    return Status::invalid(name + " is " + std::to_string(value) + "; legal values are " + legal);
  };
  if (options.max_sequences < 1) return refuse("max-sequences", options.max_sequences, "1 or more");
  if (options.max_context < 1) return refuse("max-context", options.max_context, "1 or more");
  if (replay.encoder_replay && options.prefix_cache && replay.page_tokens < replay.window - 1) {
    return refuse("page-tokens", replay.page_tokens,
                  "at least " + std::to_string(replay.window - 1) +
                      " with encoder replay: one PAGE of recomputation must rebuild the window");
  }
  // The widest forward that may not be cut: a PAGE of recomputation and a rest shorter than a PAGE or the window.
  const int64_t widest = 2 * int64_t{replay.page_tokens} + replay.window;
  const int64_t least = options.max_sequences + widest;
  if (options.token_budget < least) {
    return refuse("token-budget", options.token_budget,
                  std::to_string(least) + " or more (max-sequences + 2 PAGEs + window)");
  }
  if (options.long_prefill_tokens != 0 && options.long_prefill_tokens < replay.page_tokens) {
    return refuse("long-prefill-tokens", options.long_prefill_tokens,
                  "0 (no cap) or at least one PAGE, " + std::to_string(replay.page_tokens));
  }
  if (options.image_interval_tokens < 0)
    return refuse("image-interval-tokens", options.image_interval_tokens, "0 or more");
  return {};
}

Scheduler::Scheduler(const SchedulerOptions& options, cache::PageManager& pages, cache::StateSlots& slots,
                     cache::StateImages* images, std::string layout_id)
    : options_(options), pages_(pages), slots_(slots), images_(images), layout_id_(std::move(layout_id)) {
  const Status status = check(options);
  PS_CHECK(status.ok(), status.message());
  running_.reserve(static_cast<size_t>(options.max_sequences));
  step_.reserve(static_cast<size_t>(options.max_sequences));
  hits_.reserve(static_cast<size_t>(pages.count()));
  fresh_pages_.reserve(static_cast<size_t>(pages.count()));
}

Status Scheduler::check_fits(int64_t prompt_tokens, int64_t max_tokens) const {
  const int64_t fits = std::min(options_.max_context, pages_.count() * int64_t{options_.replay.page_tokens});
  if (prompt_tokens < 1) return Status::invalid("the prompt is empty; at least 1 token is needed");
  if (max_tokens < 0) {
    return Status::invalid("max_tokens is " + std::to_string(max_tokens) + "; legal values are 0 or more");
  }
  if (prompt_tokens <= fits && max_tokens <= fits - prompt_tokens) return {};
  const auto count = [](int64_t tokens, const std::string& kind) {
    return std::to_string(tokens) + " " + kind + (tokens == 1 ? " token" : " tokens");
  };
  const int64_t least = std::min<int64_t>(max_tokens, 1);  // answer tokens, where any are wanted
  const bool has_room = prompt_tokens + least <= fits;
  const int64_t room = has_room ? fits - prompt_tokens : fits - least;
  return Status::exhausted(count(prompt_tokens, "prompt") + " and " + count(max_tokens, "answer") +
                           " do not fit into the context of " + std::to_string(fits) + " tokens; at most " +
                           count(room, has_room ? "answer" : "prompt") + (room == 1 ? " fits" : " fit"));
}

void Scheduler::add(Sequence& sequence) {
  const int64_t longest = sequence.prompt_tokens + sequence.request.max_tokens;
  const int64_t page_tokens = options_.replay.page_tokens;
  sequence.pages.reserve(static_cast<size_t>((longest + page_tokens - 1) / page_tokens));
  sequence.target = sequence.length();
  waiting_.push_back(&sequence);
  // A later preemption puts running sequences back without allocating.
  waiting_.reserve(waiting_.size() + static_cast<size_t>(options_.max_sequences));
}

std::span<const ScheduledRows> Scheduler::schedule(std::vector<Sequence*>& aborted) {
  step_.clear();
  aborted.clear();
  fresh_pages_.clear();
  has_preempted_ = false;
  budget_ = options_.token_budget;
  drop_aborted(aborted);
  schedule_decodes();
  schedule_prefills();
  schedule_admissions();
  return step_;
}

void Scheduler::drop_aborted(std::vector<Sequence*>& aborted) {
  const auto drop = [&](std::vector<Sequence*>& queue) {
    std::erase_if(queue, [&](Sequence* sequence) {
      if (!sequence->abort_requested) return false;
      release(*sequence);
      sequence->state = SequenceState::kFinished;
      aborted.push_back(sequence);
      return true;
    });
  };
  drop(waiting_);
  drop(running_);
}

void Scheduler::schedule_decodes() {
  for (size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    if (sequence.is_prefilling()) continue;
    const int64_t page_tokens = options_.replay.page_tokens;
    const bool needs_page = sequence.computed / page_tokens == static_cast<int64_t>(sequence.pages.size());
    bool has_page = !needs_page;
    while (!has_page) {
      has_page = take_pages(sequence, 1);
      if (has_page) break;
      Sequence& victim = *running_.back();
      preempt(victim);
      if (&victim == &sequence) break;
    }
    if (!has_page) break;  // it was the youngest
    ScheduledRows scheduled;
    scheduled.sequence = &sequence;
    scheduled.rows.start = static_cast<int32_t>(sequence.computed);
    scheduled.rows.end = scheduled.rows.start + 1;
    scheduled.rows.decoder_start = scheduled.rows.start;
    scheduled.samples = true;
    step_.push_back(scheduled);
    --budget_;
  }
}

void Scheduler::schedule_prefills() {
  for (Sequence* sequence : running_) {
    if (!sequence->is_prefilling()) continue;
    const int64_t end = chunk_end(*sequence, sequence->computed, sequence->resume);
    if (end > sequence->computed) add_prefill(*sequence, end);
  }
}

void Scheduler::schedule_admissions() {
  if (has_preempted_) return;  // memory is short: whoever comes in now would be the next victim
  while (!waiting_.empty() && std::ssize(running_) < options_.max_sequences && slots_.available() > 0) {
    Sequence& sequence = *waiting_.front();
    if (!admit(sequence)) return;
    waiting_.erase(waiting_.begin());
    running_.push_back(&sequence);
  }
}

bool Scheduler::admit(Sequence& sequence) {
  hits_.clear();
  int64_t matched = 0;
  if (may_hit(sequence)) matched = pages_.match(sequence.tokens, sequence.length() - 1, hits_);
  if (images_ != nullptr) hits_.resize(static_cast<size_t>(images_->restorable_pages(hits_)));
  // A hit whose windows are rebuilt is not exact. Who was preempted gets no other hit than before, or the answer would
  // depend on it.
  const auto first_hit = static_cast<size_t>(sequence.cached_tokens / options_.replay.page_tokens);
  if (images_ == nullptr && sequence.was_admitted && hits_.size() > first_hit) hits_.resize(first_hit);
  if (admit_with_hits(sequence, matched)) return true;
  // An image that stays pinned beside its own request may leave too few PAGEs for ever: with nobody to wait for,
  // compute anew.
  if (hits_.empty() || !running_.empty()) return false;
  hits_.clear();
  return admit_with_hits(sequence, matched);
}

bool Scheduler::admit_with_hits(Sequence& sequence, int64_t matched) {
  const int64_t page_tokens = options_.replay.page_tokens;
  const int64_t hit = std::ssize(hits_) * page_tokens;
  const Resume how = hit > 0 && images_ == nullptr ? Resume::kFreshSlot : Resume::kContinue;
  sequence.admitted_at = hit;
  sequence.image_boundary = images_ != nullptr && matched > hit ? matched : 0;
  const int64_t end = chunk_end(sequence, hit, how);
  if (end <= hit) return false;

  const int64_t fresh = (sequence.length() + page_tokens - 1) / page_tokens - std::ssize(hits_);
  std::optional<cache::ChainHash> restored;
  if (images_ != nullptr && hit > 0) restored = pages_.hash_of(hits_.back());
  const int64_t available = images_ != nullptr ? images_->available(restored) : pages_.available();
  if (pages_.admission_demand(hits_, fresh) > available) return false;

  sequence.slot = slots_.take();
  PS_CHECK(sequence.slot.has_value());
  // Claim and pin before anything is allocated, or these very PAGEs and this image could be evicted.
  pages_.claim(hits_);
  if (restored) PS_CHECK(images_->queue_restore(*restored, *sequence.slot, layout_id_));
  sequence.pages.assign(hits_.begin(), hits_.end());
  PS_CHECK(take_pages(sequence, fresh), "admission of", fresh, "PAGEs");
  if (may_hit(sequence)) pages_.count_lookup(sequence.length() - 1, hit);

  sequence.slot_needs_zero = !restored.has_value();
  sequence.published = pages_.cursor_after(hits_);
  sequence.computed = hit;
  sequence.target = sequence.length();
  sequence.resume = how;
  sequence.last_image = restored ? hit : 0;
  sequence.state = SequenceState::kRunning;
  if (!sequence.was_admitted) sequence.cached_tokens = hit;
  sequence.was_admitted = true;
  add_prefill(sequence, end);
  return true;
}

void Scheduler::add_prefill(Sequence& sequence, int64_t end) {
  ScheduledRows scheduled;
  scheduled.sequence = &sequence;
  scheduled.rows = prefill_rows(rules_for(sequence, sequence.computed), sequence.resume,
                                static_cast<int32_t>(sequence.leg_end(sequence.computed)),
                                static_cast<int32_t>(sequence.computed), static_cast<int32_t>(end));
  scheduled.samples = end == sequence.target;
  step_.push_back(scheduled);
  budget_ -= scheduled.rows.end - scheduled.rows.start;
}

int64_t Scheduler::chunk_end(const Sequence& sequence, int64_t resume, Resume how) const {
  const ReplayRules rules = rules_for(sequence, resume);
  const int64_t leg = sequence.leg_end(resume);
  const auto start_for = [&](bool finishes) {
    return prefill_start(rules, how, static_cast<int32_t>(leg), static_cast<int32_t>(resume), finishes);
  };
  const int64_t cap =
      options_.long_prefill_tokens > 0 ? options_.long_prefill_tokens : std::numeric_limits<int32_t>::max();
  // The cap counts from the resume position, the budget from where the forward really starts.
  int64_t end = std::min(resume + cap, leg);
  if (images_ != nullptr) end = std::min(end, next_image_boundary(sequence, resume));
  // Decoder replay: the forward that finishes a prompt brings a whole window of its own rows, so that what it cuts
  // depends on the prompt alone and not on who took the budget. Images want other cuts, and a hit may lie behind this
  // one.
  const int64_t page_tokens = rules.page_tokens;
  const bool keeps_tail = rules.decoder_replay && images_ == nullptr;
  const int64_t last_cut = keeps_tail ? std::max<int64_t>(0, leg - rules.window) / page_tokens * page_tokens : leg;
  if (last_cut <= resume) end = leg;
  if (end == leg) {
    if (end - start_for(true) <= budget_) return end;
    --end;  // it will not finish: a middle chunk under the rules below
  }
  end = std::min({end, last_cut, start_for(false) + budget_});
  return std::max(end / page_tokens * page_tokens, resume);
}

int64_t Scheduler::next_image_boundary(const Sequence& sequence, int64_t resume) const {
  const int64_t page_tokens = options_.replay.page_tokens;
  // The last boundary that a resend of this prompt can hit.
  const int64_t last = (sequence.length() - 1) / page_tokens * page_tokens;
  int64_t next = last > resume ? last : sequence.length();
  if (sequence.image_boundary > resume) next = std::min(next, sequence.image_boundary);
  const int64_t interval = options_.image_interval_tokens / page_tokens * page_tokens;
  if (interval > 0) next = std::min(next, (resume / interval + 1) * interval);
  return next;
}

// Prompt log-probabilities need every row's logits, so such a request runs the decoder on all of them. So do answer
// rows that are computed again.
ReplayRules Scheduler::rules_for(const Sequence& sequence, int64_t position) const noexcept {
  ReplayRules rules = options_.replay;
  if (sequence.request.prompt_logprobs || sequence.is_second_leg(position)) rules.decoder_replay = false;
  return rules;
}

bool Scheduler::take_pages(Sequence& sequence, int64_t count) {
  if (images_ != nullptr && !images_->make_room(count)) return false;
  if (!pages_.reserve(count, sequence.pages)) return false;
  fresh_pages_.insert(fresh_pages_.end(), sequence.pages.end() - count, sequence.pages.end());
  return true;
}

void Scheduler::release(Sequence& sequence) {
  if (images_ != nullptr && sequence.slot.has_value()) images_->cancel_restore(*sequence.slot);
  pages_.release(sequence.pages);
  sequence.pages.clear();
  sequence.published = {};
  if (sequence.slot.has_value()) slots_.release(*sequence.slot);
  sequence.slot.reset();
  sequence.computed = 0;
}

void Scheduler::preempt(Sequence& sequence) {
  PS_CHECK(running_.back() == &sequence);
  running_.pop_back();
  release(sequence);
  sequence.target = sequence.length();
  sequence.state = SequenceState::kWaiting;
  ++sequence.preemptions;
  ++preemptions_;
  has_preempted_ = true;
  waiting_.insert(waiting_.begin(), &sequence);
}

bool Scheduler::preempt_youngest() {
  if (running_.empty()) return false;
  preempt(*running_.back());
  return true;
}

void Scheduler::complete() {
  for (const ScheduledRows& scheduled : step_) {
    Sequence& sequence = *scheduled.sequence;
    sequence.computed = scheduled.rows.end;
    sequence.resume = Resume::kContinue;
    if (!options_.prefix_cache) continue;
    pages_.publish(sequence.pages, sequence.tokens, sequence.computed, sequence.published);
    if (images_ != nullptr) keep_image(sequence);
  }
}

void Scheduler::keep_image(Sequence& sequence) {
  const int64_t page_tokens = options_.replay.page_tokens;
  const int64_t position = sequence.computed;
  if (position % page_tokens != 0 || sequence.published.pages * page_tokens != position) return;
  // Prompts are cut where an image is wanted; an answer passes boundaries and keeps one when the last is far enough
  // back.
  const bool is_answer = position > sequence.target;
  if (is_answer && position - sequence.last_image < std::max(options_.image_interval_tokens, page_tokens)) return;
  const cache::StoreResult result = images_->queue_store(sequence.published.hash, position, *sequence.slot);
  if (result == cache::StoreResult::kQueued || result == cache::StoreResult::kDuplicate) sequence.last_image = position;
}

void Scheduler::finish(Sequence& sequence) {
  release(sequence);
  sequence.state = SequenceState::kFinished;
  std::erase(running_, &sequence);
}

SchedulerCounters Scheduler::counters() const noexcept {
  return {static_cast<int64_t>(waiting_.size()), static_cast<int64_t>(running_.size()), preemptions_};
}

Status Scheduler::check_integrity() const {
  int64_t entries = 0;
  std::vector<int32_t> slots;
  for (const Sequence* sequence : running_) {
    entries += std::ssize(sequence->pages);
    if (!sequence->slot.has_value()) return Status::internal("a running sequence has no slot");
    slots.push_back(cache::ordinal(*sequence->slot));
    if (std::ssize(sequence->pages) * options_.replay.page_tokens < sequence->computed) {
      return Status::internal("computed tokens lie outside the block table");
    }
  }
  for (const Sequence* sequence : waiting_) {
    if (!sequence->pages.empty() || sequence->slot.has_value())
      return Status::internal("a waiting sequence holds resources");
  }
  std::sort(slots.begin(), slots.end());
  if (std::adjacent_find(slots.begin(), slots.end()) != slots.end()) return Status::internal("a slot has two owners");
  if (slots_.count() - slots_.available() != static_cast<int32_t>(slots.size()))
    return Status::internal("a slot leaked");
  if (images_ != nullptr) PS_RETURN_IF_ERROR(images_->check_integrity());
  return pages_.check_integrity(entries);
}

}  // namespace ps::engine
