#include "apps/validation.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "base/macros.h"
#include "base/pcg64.h"
#include "engine/engine.h"
#include "engine/runner.h"
#include "engine/transcript.h"

namespace ps::apps {
namespace {

using engine::Engine;
using engine::EngineOptions;
using engine::FinishReason;
using engine::Request;
using engine::SequenceId;
using engine::Transcriber;
using engine::Transcript;

// One setting of formats and replay, and the tools that scenarios are written with.
class Lab {
 public:
  Lab(const ValidationSetup& setup, cache::CacheFormat format, bool replay) : setup_(setup), replay_(replay) {
    options_.format = format;
    options_.encoder_replay = replay;
    options_.decoder_replay = replay;
    options_.page_tokens = setup.page_tokens;
    options_.max_sequences = 4;
    options_.token_budget = options_.max_sequences + 2 * setup.page_tokens + window() + setup.page_tokens;
    options_.max_context = 8 * setup.page_tokens;
    options_.pages = 40;
    options_.threads = setup.threads;
    options_.pin_threads = setup.pin_threads;
  }

  [[nodiscard]] bool replay() const noexcept { return replay_; }
  [[nodiscard]] int64_t page() const noexcept { return setup_.page_tokens; }
  [[nodiscard]] EngineOptions options() const noexcept { return options_; }
  [[nodiscard]] int64_t window() const { return setup_.checkpoint->config().text_config.sliding_window; }
  [[nodiscard]] std::string settings() const {
    return fmt::format("kv={} index={} replay={}", cache::main_format_name(options_.format.main),
                       cache::index_format_name(options_.format.index), replay_ ? "on" : "off");
  }

  // Prompts of one family agree on every common prefix.
  [[nodiscard]] Request request(uint64_t family, int64_t length, int64_t max_tokens = 6) const {
    Pcg64 random(family);
    Request made;
    for (int64_t i = 0; i < length; ++i) {
      made.prompt.push_back(
          static_cast<int32_t>(random.integer(3, setup_.checkpoint->config().text_config.vocab_size)));
    }
    made.max_tokens = max_tokens;
    made.ignore_eos = true;
    return made;
  }

  [[nodiscard]] std::unique_ptr<Engine> engine(const EngineOptions& options) {
    auto made = Engine::create(*setup_.checkpoint, setup_.token_classes, {}, *setup_.table, options);
    if (!made.ok()) {
      fail("engine: " + made.status().to_string());
      return nullptr;
    }
    return std::move(made).value();
  }

  // The uninterrupted run: alone in a fresh engine, nothing cached, the prompt in as few forwards as the setting
  // allows.
  [[nodiscard]] Transcript alone(const Request& request, const EngineOptions& options) {
    const auto made = engine(options);
    if (made == nullptr) return {};
    Transcriber transcriber(*made);
    const auto id = made->add(request);
    if (!id.ok() || !transcriber.run()) {
      fail("uninterrupted run: " + id.status().to_string());
      return {};
    }
    return transcriber.of(id.value());
  }
  [[nodiscard]] Transcript alone(const Request& request) {
    EngineOptions options = options_;
    options.prefix_cache = false;
    options.token_budget = std::max(options.token_budget, options.max_sequences + options.max_context + 2 * page());
    return alone(request, options);
  }

  void expect(bool holds, const std::string& what) {
    if (!holds) fail(what);
  }
  void expect_same(const Transcript& got, const Transcript& expected, const std::string& what) {
    if (got.tokens != expected.tokens) return fail(what + ": tokens differ");
    if (got.logits != expected.logits) return fail(what + ": logits differ");
  }
  void expect_empty(const Engine& used) {
    const Status integrity = used.check_integrity();
    if (!integrity.ok()) fail(integrity.to_string());
    if (used.counters().pages.used != 0) fail(std::to_string(used.counters().pages.used) + " PAGEs are still held");
  }
  void fail(const std::string& what) { detail_ += (detail_.empty() ? "" : "; ") + what; }
  [[nodiscard]] std::string take_detail() { return std::exchange(detail_, {}); }
  [[nodiscard]] const ValidationSetup& setup() const noexcept { return setup_; }

 private:
  const ValidationSetup& setup_;
  bool replay_;
  EngineOptions options_;
  std::string detail_;
};

// A private cache, fed in pieces of many lengths, gives the engine's tokens and logits. Only exact settings promise it.
void private_cache_parity(Lab& lab) {
  const Request request = lab.request(1, 3 * lab.page() + 5);
  EngineOptions options = lab.options();
  options.decoder_replay = false;
  options.prefix_cache = false;
  options.token_budget = options.max_sequences + options.max_context + 2 * lab.page();
  const Transcript expected = lab.alone(request, options);
  for (const int64_t chunk : {int64_t{1}, int64_t{3}, int64_t{7}, int64_t{64}, int64_t{129}, lab.page()}) {
    engine::RunnerOptions private_options;
    private_options.format = lab.options().format;
    private_options.page_tokens = lab.page();
    private_options.max_tokens = lab.options().max_context;
    private_options.prefill_chunk = chunk;
    private_options.threads = lab.setup().threads;
    private_options.pin_threads = lab.setup().pin_threads;
    auto runner =
        engine::Runner::create(*lab.setup().checkpoint, lab.setup().token_classes, *lab.setup().table, private_options);
    if (!runner.ok()) return lab.fail(runner.status().to_string());
    engine::Sampler sampler(static_cast<int32_t>(lab.setup().checkpoint->config().text_config.vocab_size), {});
    std::vector<int32_t> tokens;
    std::vector<int32_t> next = request.prompt;
    while (std::ssize(tokens) < request.max_tokens) {
      const auto take = [&](int64_t position, std::span<const float> logits) {
        tokens.push_back(sampler.sample(logits, request.sampling, {.position = position + 1}));
        return true;
      };
      const Status fed = runner.value()->feed(next, engine::LogitRows::kLast, take);
      if (!fed.ok()) return lab.fail(fed.to_string());
      next = {tokens.back()};
    }
    lab.expect(tokens == expected.tokens, "chunks of " + std::to_string(chunk) + ": tokens differ");
  }
}

// Several prompts, chunked, in ragged batches and in two orders of arrival.
void chunked_batched_reorder(Lab& lab) {
  std::vector<Request> requests;
  for (uint64_t i = 0; i < 4; ++i)
    requests.push_back(lab.request(10 + i, lab.page() * static_cast<int64_t>(i) + 2 * lab.window() + 3));
  EngineOptions options = lab.options();
  options.prefix_cache = false;
  // Under replay a short last chunk recomputes rows approximately; whole prompts keep the comparison exact.
  if (lab.replay()) options.token_budget = options.max_sequences + 4 * options.max_context;
  std::vector<Transcript> expected;
  for (const Request& request : requests) expected.push_back(lab.alone(request));
  for (const bool reversed : {false, true}) {
    const auto engine = lab.engine(options);
    if (engine == nullptr) return;
    Transcriber transcriber(*engine);
    std::vector<SequenceId> ids(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      const size_t which = reversed ? requests.size() - 1 - i : i;
      auto id = engine->add(requests[which]);
      if (!id.ok()) return lab.fail(id.status().to_string());
      ids[which] = id.value();
      transcriber.step();
    }
    lab.expect(transcriber.run(), "does not end");
    for (size_t i = 0; i < ids.size(); ++i)
      lab.expect_same(transcriber.of(ids[i]), expected[i], "request " + std::to_string(i));
    lab.expect_empty(*engine);
  }
}

// Two continuations of one cached prefix, at once. Exact with images; under replay equal to a repetition of itself.
void prefix_fork(Lab& lab) {
  const Request base = lab.request(20, 3 * lab.page() + 2);
  std::vector<Request> forks(2, base);
  for (size_t i = 0; i < forks.size(); ++i) {
    forks[i].prompt.push_back(static_cast<int32_t>(3 + i));
    forks[i].prompt.insert(forks[i].prompt.end(), 9, static_cast<int32_t>(7 + i));
  }
  std::vector<std::vector<Transcript>> rounds;
  for (int round = 0; round < 2; ++round) {
    const auto engine = lab.engine(lab.options());
    if (engine == nullptr) return;
    Transcriber transcriber(*engine);
    (void)engine->add(base);
    lab.expect(transcriber.run(), "does not end");
    std::vector<SequenceId> ids;
    for (const Request& fork : forks) ids.push_back(engine->add(fork).value());
    lab.expect(transcriber.run(), "does not end");
    rounds.emplace_back();
    for (const SequenceId id : ids) {
      lab.expect(transcriber.of(id).cached_tokens == 3 * lab.page(),
                 fmt::format("hit of {} tokens", transcriber.of(id).cached_tokens));
      rounds.back().push_back(transcriber.of(id));
    }
    lab.expect_empty(*engine);
  }
  for (size_t i = 0; i < forks.size(); ++i) {
    lab.expect_same(rounds[1][i], rounds[0][i], "repetition of fork " + std::to_string(i));
    if (!lab.replay()) lab.expect_same(rounds[0][i], lab.alone(forks[i]), "fork " + std::to_string(i));
  }
}

// A prefix whose PAGEs are there but whose image is not: computed again from a boundary that can be recovered. Replay
// needs none.
void missing_image(Lab& lab) {
  const Request base = lab.request(30, 4 * lab.page() + 2);
  Request shorter = base;
  shorter.prompt.resize(static_cast<size_t>(2 * lab.page() + 5));
  EngineOptions options = lab.options();
  options.image_interval_tokens = 0;
  const auto engine = lab.engine(options);
  if (engine == nullptr) return;
  Transcriber transcriber(*engine);
  (void)engine->add(base);
  lab.expect(transcriber.run(), "does not end");
  const SequenceId first = engine->add(shorter).value();
  lab.expect(transcriber.run(), "does not end");
  const SequenceId second = engine->add(shorter).value();
  lab.expect(transcriber.run(), "does not end");
  const int64_t boundary = 2 * lab.page();
  lab.expect(transcriber.of(first).cached_tokens == (lab.replay() ? boundary : 0),
             fmt::format("first: hit of {} tokens", transcriber.of(first).cached_tokens));
  lab.expect(transcriber.of(second).cached_tokens == boundary,
             fmt::format("second: hit of {} tokens", transcriber.of(second).cached_tokens));
  if (!lab.replay()) {
    const Transcript expected = lab.alone(shorter);
    lab.expect_same(transcriber.of(first), expected, "without image");
    lab.expect_same(transcriber.of(second), expected, "with image");
  } else {
    lab.expect_same(transcriber.of(second), transcriber.of(first), "second hit");
  }
  lab.expect_empty(*engine);
}

// The same prompt again, after another request ran through the same slot.
void exact_hit(Lab& lab) {
  const Request request = lab.request(40, 3 * lab.page() + 9);
  EngineOptions options = lab.options();
  options.max_sequences = 1;
  const auto engine = lab.engine(options);
  if (engine == nullptr) return;
  Transcriber transcriber(*engine);
  std::vector<SequenceId> ids;
  for (int round = 0; round < 3; ++round) {
    ids.push_back(engine->add(request).value());
    (void)engine->add(lab.request(41, 2 * lab.page() + 1, 2));
    lab.expect(transcriber.run(), "does not end");
  }
  lab.expect(transcriber.of(ids[1]).cached_tokens == 3 * lab.page(), "the second round does not hit");
  lab.expect_same(transcriber.of(ids[2]), transcriber.of(ids[1]), "second hit");
  if (!lab.replay()) lab.expect_same(transcriber.of(ids[1]), transcriber.of(ids[0]), "hit");
  lab.expect_empty(*engine);
}

// Preempted with at least 64 tokens of its answer, computed again, and carried on.
void preempt_resume(Lab& lab) {
  const Request request = lab.request(50, lab.page() + 3, 72);
  EngineOptions options = lab.options();
  options.prefix_cache = false;
  options.encoder_replay = options.decoder_replay = false;  // recomputation is exact only without truncated windows
  const Transcript expected = lab.alone(request, options);
  const auto engine = lab.engine(options);
  if (engine == nullptr) return;
  Transcriber transcriber(*engine);
  const SequenceId id = engine->add(request).value();
  while (engine->has_work() && transcriber.of(id).tokens.size() < 66) transcriber.step();
  lab.expect(engine->preempt_youngest(), "nothing to preempt");
  lab.expect(transcriber.run(), "does not end");
  lab.expect(engine->counters().scheduler.preemptions == 1, "not preempted");
  lab.expect_same(transcriber.of(id), expected, "resumed run");
  lab.expect_empty(*engine);
}

// Cancelled while waiting, in a middle chunk, right after the prompt's last chunk, and while decoding; everything comes
// back and the next request in the same slot is right.
void cancel_and_recycle(Lab& lab) {
  EngineOptions options = lab.options();
  options.max_sequences = 1;
  options.prefix_cache = false;
  options.long_prefill_tokens = lab.page();
  const auto engine = lab.engine(options);
  if (engine == nullptr) return;
  const int64_t free_pages = engine->pages().available();
  Transcriber transcriber(*engine);
  const Request victim = lab.request(60, 3 * lab.page() + 4, 20);
  const Request next = lab.request(61, lab.window() + 7, 4);
  const Transcript expected = lab.alone(next);
  for (const int steps : {0, 1, 4, 7}) {
    const SequenceId id = engine->add(victim).value();
    for (int i = 0; i < steps; ++i) transcriber.step();
    engine->abort(id);
    const SequenceId after = engine->add(next).value();
    lab.expect(transcriber.run(), "does not end");
    lab.expect(transcriber.of(id).finish == FinishReason::kAborted, fmt::format("after {} steps: not aborted", steps));
    lab.expect_same(transcriber.of(after), expected, fmt::format("next request after {} steps", steps));
    lab.expect(engine->pages().available() == free_pages, fmt::format("after {} steps: PAGEs are missing", steps));
  }
  lab.expect_empty(*engine);
}

// What the pool stores does not show: BF16 and packed rows hold equal values.
void cache_format_parity(Lab& lab) {
  const Request request = lab.request(70, 2 * lab.page() + 5);
  EngineOptions options = lab.options();
  options.prefix_cache = false;
  EngineOptions other = options;
  other.format.main =
      options.format.main == cache::MainFormat::kBF16 ? cache::MainFormat::kFp4 : cache::MainFormat::kBF16;
  lab.expect_same(lab.alone(request, options), lab.alone(request, other), "the other kv format");
}

struct Scenario {
  const char* name;
  void (*run)(Lab& lab);
};
constexpr Scenario kScenarios[] = {
    {"private_cache_parity", private_cache_parity},
    {"chunked_batched_reorder", chunked_batched_reorder},
    {"prefix_fork", prefix_fork},
    {"missing_image", missing_image},
    {"exact_hit", exact_hit},
    {"preempt_resume", preempt_resume},
    {"cancel_and_recycle", cancel_and_recycle},
    {"cache_format_parity", cache_format_parity},
};

}  // namespace

Status run_validation(const ValidationSetup& setup, const std::function<void(const ScenarioResult&)>& report) {
  for (const cache::MainFormat main : {cache::MainFormat::kBF16, cache::MainFormat::kFp4}) {
    for (const ops::IndexFormat index : {ops::IndexFormat::kFp4, ops::IndexFormat::kFp8}) {
      for (const bool replay : {false, true}) {
        Lab lab(setup, {main, index}, replay);
        PS_TRY(
            [[maybe_unused]] const auto plan,
            engine::plan_memory(setup.checkpoint->config(), setup.checkpoint->topology(), *setup.table, lab.options()));
        for (const Scenario& scenario : kScenarios) {
          const auto start = std::chrono::steady_clock::now();
          scenario.run(lab);
          ScenarioResult result;
          result.name = scenario.name;
          result.settings = lab.settings();
          result.detail = lab.take_detail();
          result.passed = result.detail.empty();
          result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
          report(result);
        }
      }
    }
  }
  return {};
}

}  // namespace ps::apps
