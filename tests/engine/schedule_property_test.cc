// Nothing changes a bit: random requests, arrivals, chunk sizes, budgets, preemptions, cancellations and evictions, and
// every sequence must get the tokens and logits of its solo run.
//
// PAGESTATE_SCHEDULES sets how many schedules run (default 300; fewer in sanitizer builds). A failure prints its seed
// and the smallest set of requests that still fails.
#include <cstdlib>
#include <functional>
#include <set>

#include "tests/engine/forward_bench.h"

namespace ps::tests {
namespace {

using engine::EngineOptions;
using engine::FinishReason;
using engine::Request;

struct Arrival {
  Request request;
  int prompt_key = 0;  // names the request for the memo of solo runs
  int at_step = 0;
  int abort_at_step = -1;  // -1: never
};

struct Schedule {
  EngineOptions options;
  std::vector<Arrival> arrivals;
  std::vector<int> preempt_at_steps;
};

// Puts the arrivals but those `left_out` into the engine, aborts and preempts as the schedule says, and steps to the
// end. Empty when the engine kept its invariants, else what broke. ids: the sequence of each arrival.
std::string drive(engine::Engine& engine, Transcriber* transcriber, const Schedule& schedule,
                  const std::set<size_t>& left_out, std::map<size_t, engine::SequenceId>& ids) {
  for (int step = 0; step < 4000; ++step) {
    bool all_arrived = true;
    for (size_t i = 0; i < schedule.arrivals.size(); ++i) {
      const Arrival& arrival = schedule.arrivals[i];
      if (left_out.contains(i)) continue;
      all_arrived = all_arrived && arrival.at_step <= step;
      if (arrival.at_step == step) {
        const auto id = engine.add(arrival.request);
        if (!id.ok()) return "request " + std::to_string(i) + ": " + id.status().to_string();
        ids[i] = id.value();
      }
      if (arrival.abort_at_step == step && ids.contains(i)) engine.abort(ids[i]);
    }
    for (const int at : schedule.preempt_at_steps) {
      if (at == step) engine.preempt_youngest();
    }
    if (all_arrived && !engine.has_work()) {
      const int64_t held = engine.counters().pages.used;
      return held == 0 ? "" : std::to_string(held) + " PAGEs are still held";
    }
    if (transcriber != nullptr) {
      transcriber->step();
    } else {
      (void)engine.step();
    }
    if (const Status status = engine.check_integrity(); !status.ok()) {
      return "step " + std::to_string(step) + ": " + status.to_string();
    }
  }
  return "the engine does not come to an end";
}

// Prompts share long prefixes: three families, cut at many lengths.
Arrival draw_arrival(Pcg64& random) {
  Arrival arrival;
  const int64_t family = random.integer(0, 3);
  const int64_t length_step = random.integer(1, 16);
  const int64_t tail = random.integer(0, 2);
  const int64_t sampled = random.integer(0, 2);
  arrival.prompt_key = static_cast<int>(((family * 16 + length_step) * 2 + tail) * 2 + sampled);
  arrival.request.prompt = random_prompt(static_cast<uint64_t>(family), length_step * 12 + 1);
  if (tail == 1) arrival.request.prompt.back() = 5;
  if (sampled == 1) arrival.request.sampling = {.temperature = 1.0, .top_p = 0.9, .seed = 17};
  arrival.request.max_tokens = 7;
  arrival.request.ignore_eos = true;
  arrival.at_step = static_cast<int>(random.integer(0, 12));
  if (random.integer(0, 6) == 0) arrival.abort_at_step = arrival.at_step + static_cast<int>(random.integer(0, 8));
  return arrival;
}

Schedule draw_schedule(uint64_t seed) {
  Pcg64 random(seed);
  Schedule schedule;
  EngineOptions& options = schedule.options;
  options = exact_options();
  options.format.main = random.integer(0, 2) == 0 ? cache::MainFormat::kBF16 : cache::MainFormat::kFp4;
  options.page_tokens = 16 * random.integer(1, 5);
  options.max_sequences = random.integer(1, 6);
  const int64_t least = options.max_sequences + 2 * options.page_tokens + 40;
  options.token_budget = least + random.integer(0, 200);
  options.long_prefill_tokens = random.integer(0, 2) == 0 ? 0 : options.page_tokens * random.integer(1, 3);
  options.prefix_cache = random.integer(0, 4) != 0;
  options.image_interval_tokens = options.page_tokens * random.integer(0, 4);
  options.max_context = 208;
  options.pages = (208 + options.page_tokens - 1) / options.page_tokens + random.integer(0, 14);
  options.threads = static_cast<int>(random.integer(1, 3));
  const int64_t arrivals = random.integer(2, 8);
  for (int64_t i = 0; i < arrivals; ++i) schedule.arrivals.push_back(draw_arrival(random));
  const int64_t preemptions = random.integer(0, 4);
  for (int64_t i = 0; i < preemptions; ++i)
    schedule.preempt_at_steps.push_back(static_cast<int>(random.integer(1, 20)));
  return schedule;
}

const Transcript& solo(const Arrival& arrival, bool decoder_replay) {
  static std::map<std::pair<int, bool>, Transcript> memo;
  const auto [entry, is_new] = memo.try_emplace({arrival.prompt_key, decoder_replay});
  if (is_new) {
    EngineOptions options = exact_options();
    options.prefix_cache = false;
    options.decoder_replay = decoder_replay;
    entry->second = run_alone(options, arrival.request);
  }
  return entry->second;
}

// Empty when everything held, else what did not.
std::string run(const Schedule& schedule, const std::set<size_t>& left_out, int64_t* hits) {
  const auto engine = make_engine(schedule.options);
  Transcriber transcriber(*engine);
  std::map<size_t, engine::SequenceId> ids;
  if (std::string failure = drive(*engine, &transcriber, schedule, left_out, ids); !failure.empty()) return failure;
  for (const auto& [i, id] : ids) {
    const Transcript& got = transcriber.of(id);
    const Transcript& expected = solo(schedule.arrivals[i], schedule.options.decoder_replay);
    const std::string name = "request " + std::to_string(i);
    if (got.finish == FinishReason::kLength && !(got == expected)) return name + " differs from its solo run";
    if (got.finish == FinishReason::kAborted && !got.begins(expected))
      return name + ", aborted, differs from its solo run";
    if (got.finish == FinishReason::kNone) return name + " never ended";
    if (hits != nullptr) *hits += got.cached_tokens;
  }
  return {};
}

// Runs everything that the engine runs once more on PAGEs and slots of its own with the same numbers: one sequence at a
// time, no row left out of any layer, windows cut where the plan cuts them. Every logit row of the engine must have
// its bits.
class DenseReference final : public engine::StepTap {
 public:
  explicit DenseReference(const engine::Engine& engine, const EngineOptions& options)
      : forwards_(options.format, static_cast<int32_t>(options.page_tokens),
                  static_cast<int32_t>(engine.memory().pages), static_cast<int32_t>(engine.memory().slots),
                  options.token_budget + options.max_context) {}

  void planned(std::span<const engine::ScheduledRows> scheduled, std::span<const engine::SequenceRows> rows) override {
    expected_.clear();
    for (size_t i = 0; i < rows.size(); ++i) {
      // The cuts come from the row plan itself, not through the engine's hands.
      const engine::PrefillRows& cuts = scheduled[i].rows;
      engine::SequenceRows own = rows[i];
      own.window_start = cuts.window_start;
      own.cached_until = cuts.cached_until;
      own.write_from = cuts.write_from;
      own.decoder_window_start = cuts.decoder_truncated ? cuts.decoder_start : 0;
      expected_[scheduled[i].sequence->id] = forwards_.run_dense(own);
      narrowed_rows_ += std::max(0, rows[i].decoder_start - rows[i].start);
      replayed_rows_ += rows[i].window_start > 0 ? 1 : 0;
    }
  }

  void logits(engine::SequenceId sequence, int64_t position, std::span<const float> values) override {
    const std::vector<float>& expected = expected_[sequence][position];
    if (failure_.empty() && !std::equal(values.begin(), values.end(), expected.begin(), expected.end())) {
      failure_ = "sequence " + std::to_string(static_cast<int64_t>(sequence)) + " position " +
                 std::to_string(position) + " differs from the dense reference";
    }
  }

  [[nodiscard]] const std::string& failure() const noexcept { return failure_; }
  [[nodiscard]] int64_t narrowed_rows() const noexcept { return narrowed_rows_; }
  [[nodiscard]] int64_t rebuilds() const noexcept { return replayed_rows_; }

 private:
  ForwardBench forwards_;
  std::map<engine::SequenceId, std::map<int64_t, std::vector<float>>> expected_;
  std::string failure_;
  int64_t narrowed_rows_ = 0;
  int64_t replayed_rows_ = 0;
};

struct ReplaySeen {
  int64_t narrowed_rows = 0;
  int64_t rebuilds = 0;
};

std::string run_against_reference(const Schedule& schedule, const std::set<size_t>& left_out, ReplaySeen* seen) {
  const auto engine = make_engine(schedule.options);
  DenseReference reference(*engine, schedule.options);
  engine->tap(&reference);
  std::map<size_t, engine::SequenceId> ids;
  std::string failure = drive(*engine, nullptr, schedule, left_out, ids);
  engine->tap(nullptr);
  if (seen != nullptr) {
    seen->narrowed_rows += reference.narrowed_rows();
    seen->rebuilds += reference.rebuilds();
  }
  return reference.failure().empty() ? failure : reference.failure();
}

// The requests without which the schedule still fails are left out.
std::string shrink(const Schedule& schedule, const std::function<bool(const std::set<size_t>&)>& fails) {
  std::set<size_t> left_out;
  for (size_t i = 0; i < schedule.arrivals.size(); ++i) {
    left_out.insert(i);
    if (!fails(left_out)) left_out.erase(i);
  }
  std::string text;
  for (size_t i = 0; i < schedule.arrivals.size(); ++i) {
    if (left_out.contains(i)) continue;
    const Arrival& arrival = schedule.arrivals[i];
    text += " [request " + std::to_string(i) + ": prompt " + std::to_string(arrival.request.prompt.size()) +
            ", at step " + std::to_string(arrival.at_step) + ", abort at " + std::to_string(arrival.abort_at_step) +
            "]";
  }
  return text;
}

int schedule_count() {
  if (const char* wanted = std::getenv("PAGESTATE_SCHEDULES"); wanted != nullptr) return std::atoi(wanted);
#ifdef PAGESTATE_DCHECKS
  return 25;
#else
  return 300;
#endif
}

TEST(ScheduleProperty, EverySequenceGetsItsSoloRunBitForBit) {
  int64_t hits = 0;
  for (int seed = 0; seed < schedule_count(); ++seed) {
    const Schedule schedule = draw_schedule(static_cast<uint64_t>(seed));
    const std::string failure = run(schedule, {}, &hits);
    ASSERT_EQ(failure, "") << "seed " << seed << "; smallest failing set:"
                           << shrink(schedule, [&](const auto& out) { return !run(schedule, out, nullptr).empty(); });
  }
  const bool is_telling = schedule_count() >= 25;  // a handful of schedules may miss the restore path
  EXPECT_TRUE(hits > 0 || !is_telling) << "no schedule took the restore path";
}

// Encoder replay rebuilds a window from one PAGE: it must be that long.
void with_pages_of_a_window(EngineOptions& options) {
  const int64_t before = options.page_tokens;
  options.page_tokens = std::max<int64_t>(48, before);
  options.long_prefill_tokens = options.long_prefill_tokens / before * options.page_tokens;
  options.token_budget += 2 * (options.page_tokens - before);
}

// Encoder and decoder replay, hits that rebuild their windows included: the same cuts on a dense run give the same
// bits.
TEST(ScheduleProperty, ReplayEqualsADenseReferenceWithTheSameCuts) {
  ReplaySeen seen;
  for (int seed = 0; seed < schedule_count() / 2; ++seed) {
    Schedule schedule = draw_schedule(static_cast<uint64_t>(seed) + 2'000'000);
    schedule.options.encoder_replay = seed % 4 != 3;
    schedule.options.decoder_replay = seed % 4 != 2;
    if (schedule.options.encoder_replay) with_pages_of_a_window(schedule.options);
    schedule.options.prefix_cache = schedule.options.encoder_replay;  // images would be a second way to a state
    const std::string failure = run_against_reference(schedule, {}, &seen);
    ASSERT_EQ(failure, "") << "seed " << seed << "; smallest failing set:" << shrink(schedule, [&](const auto& out) {
      return !run_against_reference(schedule, out, nullptr).empty();
    });
  }
  EXPECT_GT(seen.narrowed_rows, 0);
  EXPECT_GT(seen.rebuilds, 0);
}

// Decoder replay cuts windows as a function of the prompt alone: company, chunks, PAGE order, cancellations and
// preemptions still change nothing.
TEST(ScheduleProperty, DecoderReplayIsAFunctionOfThePrompt) {
  for (int seed = 0; seed < schedule_count() / 3; ++seed) {
    Schedule schedule = draw_schedule(static_cast<uint64_t>(seed) + 1'000'000);
    schedule.options.decoder_replay = true;
    schedule.options.prefix_cache = false;
    const std::string failure = run(schedule, {}, nullptr);
    ASSERT_EQ(failure, "") << "seed " << seed << "; smallest failing set:"
                           << shrink(schedule, [&](const auto& out) { return !run(schedule, out, nullptr).empty(); });
  }
}

// With replay as it is by default, prefix cache included: whoever shares no prefix gets the bits of a solo run,
// although preempted sequences find their own PAGEs published.
TEST(ScheduleProperty, PreemptionChangesNothingUnderReplay) {
  for (int seed = 0; seed < schedule_count() / 3; ++seed) {
    Schedule schedule = draw_schedule(static_cast<uint64_t>(seed) + 3'000'000);
    schedule.options.encoder_replay = true;
    schedule.options.decoder_replay = true;
    schedule.options.prefix_cache = true;
    with_pages_of_a_window(schedule.options);
    for (size_t i = 0; i < schedule.arrivals.size(); ++i) {
      Arrival& arrival = schedule.arrivals[i];
      arrival.prompt_key = 1'000'000 + seed * 16 + static_cast<int>(i);
      const auto length = static_cast<int64_t>(arrival.request.prompt.size());
      arrival.request.prompt = random_prompt(static_cast<uint64_t>(arrival.prompt_key), length);
      arrival.request.max_tokens = 15;
    }
    schedule.preempt_at_steps = {4, 9, 12, 17, 21};
    const std::string failure = run(schedule, {}, nullptr);
    ASSERT_EQ(failure, "") << "seed " << seed;
  }
}

}  // namespace
}  // namespace ps::tests
