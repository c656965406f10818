// Behaviour of the engine that users see: hits, refusals, cancellation, stop rules, log-probabilities, no allocation in
// a step.
#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/engine/engine_fixture.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(PAGESTATE_DCHECKS)
#define PAGESTATE_COUNTS_ALLOCATIONS 1
namespace {
// Counts every allocation while armed.
std::atomic<bool> g_armed{false};
std::atomic<int64_t> g_allocations{0};
void count_allocation() {
  if (g_armed.load(std::memory_order_relaxed)) g_allocations.fetch_add(1, std::memory_order_relaxed);
}
}  // namespace

// Interposes malloc itself, which operator new calls too.
extern "C" void* __libc_malloc(size_t size);
extern "C" void* __libc_calloc(size_t count, size_t size);
extern "C" void* __libc_realloc(void* block, size_t size);
extern "C" void* malloc(size_t size) {
  count_allocation();
  return __libc_malloc(size);
}
extern "C" void* calloc(size_t count, size_t size) {
  count_allocation();
  return __libc_calloc(count, size);
}
extern "C" void* realloc(void* block, size_t size) {
  count_allocation();
  return __libc_realloc(block, size);
}
#endif

namespace ps::tests {
namespace {

using engine::EngineOptions;
using engine::FinishReason;
using engine::Request;

Request make_request(std::vector<int32_t> prompt, int64_t max_tokens = 4) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  return request;
}

// Pitfalls A1, A2: the same prompt again, with another request in between that overwrites every ring.
TEST(Engine, ResendHitsAndAnswersTheSame) {
  const EngineOptions options = exact_options();
  const auto engine = make_engine(options);
  Transcriber transcriber(*engine);
  const std::vector<int32_t> prompt = random_prompt(1, 150);
  const auto first = engine->add(make_request(prompt)).value();
  ASSERT_TRUE(transcriber.run());
  const auto other = engine->add(make_request(random_prompt(2, 170))).value();
  ASSERT_TRUE(transcriber.run());
  const auto second = engine->add(make_request(prompt)).value();
  ASSERT_TRUE(transcriber.run());
  EXPECT_EQ(transcriber.of(first).cached_tokens, 0);
  EXPECT_EQ(transcriber.of(second).cached_tokens, 144);
  EXPECT_EQ(transcriber.of(second).tokens, transcriber.of(first).tokens);
  EXPECT_EQ(transcriber.of(second).logits, transcriber.of(first).logits);
  EXPECT_EQ(transcriber.of(other), run_alone(options, make_request(random_prompt(2, 170))));
}

// The last block of a prompt is never a hit: an exact multiple computes its last PAGE again.
TEST(Engine, ExactMultipleRecomputesItsLastBlock) {
  const auto engine = make_engine(exact_options());
  Transcriber transcriber(*engine);
  const std::vector<int32_t> prompt = random_prompt(1, 144);
  (void)engine->add(make_request(prompt));
  ASSERT_TRUE(transcriber.run());
  const auto again = engine->add(make_request(prompt)).value();
  ASSERT_TRUE(transcriber.run());
  EXPECT_EQ(transcriber.of(again).cached_tokens, 96);
}

// Pitfalls A3, A4: with encoder replay any PAGE boundary is a hit, also one inside another conversation.
TEST(Engine, ReplayHitsAtEveryBoundaryOfACommonPrefix) {
  EngineOptions options = exact_options();
  options.encoder_replay = options.decoder_replay = true;
  const auto engine = make_engine(options);
  Transcriber transcriber(*engine);
  const std::vector<int32_t> base = random_prompt(3, 300);
  (void)engine->add(make_request(base));
  ASSERT_TRUE(transcriber.run());
  for (const size_t common : {47u, 48u, 100u, 191u, 192u, 250u}) {
    std::vector<int32_t> prompt(base.begin(), base.begin() + static_cast<std::ptrdiff_t>(common));
    prompt.push_back(4);
    prompt.push_back(6);
    const auto id = engine->add(make_request(prompt)).value();
    ASSERT_TRUE(transcriber.run());
    EXPECT_EQ(transcriber.of(id).cached_tokens, static_cast<int64_t>(common / 48 * 48)) << common;
  }
}

// A next turn hits the answer of the turn before, up to its last full PAGE.
TEST(Engine, GeneratedBlocksServeTheNextTurn) {
  EngineOptions options = exact_options();
  options.encoder_replay = options.decoder_replay = true;
  const auto engine = make_engine(options);
  Transcriber transcriber(*engine);
  std::vector<int32_t> prompt = random_prompt(3, 40);
  const auto turn = engine->add(make_request(prompt, 70)).value();
  ASSERT_TRUE(transcriber.run());
  prompt.insert(prompt.end(), transcriber.of(turn).tokens.begin(), transcriber.of(turn).tokens.end());
  prompt.push_back(9);
  const auto next = engine->add(make_request(prompt)).value();
  ASSERT_TRUE(transcriber.run());
  EXPECT_EQ(transcriber.of(next).cached_tokens, 96);  // 109 of 111 tokens have rows
}

// Pitfalls E1: X alone, and with 1, 7 and 31 companions of other lengths.
TEST(Engine, CompanionsDoNotChangeAnAnswer) {
  EngineOptions options = exact_options();
  options.prefix_cache = false;
  options.max_context = 200;
  options.max_sequences = 32;
  options.pages = 160;
  options.token_budget = 512;
  const Request request = make_request(random_prompt(5, 90), 6);
  const Transcript alone = run_alone(options, request);
  for (const int companions : {1, 7, 31}) {
    const auto engine = make_engine(options);
    Transcriber transcriber(*engine);
    for (int i = 0; i < companions / 2; ++i)
      (void)engine->add(make_request(random_prompt(100 + static_cast<uint64_t>(i), 3 + 5 * i)));
    const auto id = engine->add(request).value();
    for (int i = companions / 2; i < companions; ++i)
      (void)engine->add(make_request(random_prompt(100 + static_cast<uint64_t>(i), 3 + 5 * i)));
    ASSERT_TRUE(transcriber.run());
    EXPECT_EQ(transcriber.of(id), alone) << companions;
  }
}

// Pitfalls F12: what can never run is refused with the number that would fit, and harms nobody.
TEST(Engine, ImpossibleRequestsAreRefusedAtOnce) {
  const auto engine = make_engine(exact_options());
  Transcriber transcriber(*engine);
  const auto good = engine->add(make_request(random_prompt(1, 20))).value();
  const auto too_long = engine->add(make_request(random_prompt(1, 470), 20));
  ASSERT_FALSE(too_long.ok());
  EXPECT_NE(std::string(too_long.status().message()).find("at most 10 answer tokens fit"), std::string::npos)
      << too_long.status().to_string();
  EXPECT_FALSE(engine->add(make_request({}, 20)).ok());
  EXPECT_FALSE(engine->add(make_request({1, 2, 100000}, 20)).ok());
  EXPECT_FALSE(engine->add(make_request({1, 2, -1}, 20)).ok());
  Request hot = make_request({1, 2}, 20);
  hot.sampling.temperature = -1;
  EXPECT_FALSE(engine->add(hot).ok());
  ASSERT_TRUE(transcriber.run());
  EXPECT_EQ(transcriber.of(good).finish, FinishReason::kLength);
}

// A prompt that is only scored may fill the whole context: nothing is sampled behind it.
TEST(Engine, APromptWithoutAnAnswerMayFillTheContext) {
  const auto scores = [](std::vector<int32_t> prompt, int64_t max_tokens) {
    const auto engine = make_engine(exact_options());
    Request request = make_request(std::move(prompt), max_tokens);
    request.prompt_logprobs = true;
    EXPECT_TRUE(engine->add(request).ok());
    std::vector<float> got;
    while (engine->has_work()) {
      for (const engine::Event& event : engine->step()) {
        got.insert(got.end(), event.prompt_logprobs.begin(), event.prompt_logprobs.end());
        if (max_tokens > 0 || event.finish == FinishReason::kNone) continue;
        EXPECT_EQ(event.finish, FinishReason::kLength);
        EXPECT_EQ(event.token, -1);
        EXPECT_EQ(event.stop_token, -1);
        EXPECT_EQ(event.answer_tokens, 0);
      }
    }
    EXPECT_TRUE(engine->check_integrity().ok());
    return got;
  };
  const std::vector<int32_t> prompt = random_prompt(1, 480);
  std::vector<float> whole = scores(prompt, 0);
  ASSERT_EQ(whole.size(), 479u);
  whole.pop_back();
  EXPECT_EQ(whole, scores({prompt.begin(), prompt.end() - 1}, 1));
}

TEST(Engine, ARefusalOfLengthSaysWhatWouldFit) {
  const auto engine = make_engine(exact_options());
  const auto verdict = [&](int64_t prompt, int64_t max_tokens) {
    return std::string(engine->check(make_request(random_prompt(1, prompt), max_tokens)).message());
  };
  EXPECT_EQ(verdict(479, 0), "");
  EXPECT_EQ(verdict(480, 0), "");
  EXPECT_EQ(verdict(479, 1), "");
  const std::string context = " do not fit into the context of 480 tokens; at most ";
  EXPECT_EQ(verdict(481, 0), "481 prompt tokens and 0 answer tokens" + context + "480 prompt tokens fit");
  EXPECT_EQ(verdict(480, 1), "480 prompt tokens and 1 answer token" + context + "479 prompt tokens fit");
  EXPECT_EQ(verdict(481, 7), "481 prompt tokens and 7 answer tokens" + context + "479 prompt tokens fit");
  EXPECT_EQ(verdict(479, 2), "479 prompt tokens and 2 answer tokens" + context + "1 answer token fits");
  EXPECT_EQ(verdict(470, 20), "470 prompt tokens and 20 answer tokens" + context + "10 answer tokens fit");
  EXPECT_EQ(verdict(470, -1), "max_tokens is -1; legal values are 0 or more");
}

// Pitfalls F11: 200 cancellations at random moments; everything comes back.
TEST(Engine, CancellationsReturnEverything) {
  for (const bool replay : {false, true}) {
    EngineOptions options = exact_options();
    options.encoder_replay = options.decoder_replay = replay;
    options.long_prefill_tokens = 48;
    options.max_sequences = 3;
    const auto engine = make_engine(options);
    const int64_t pages = engine->pages().available();
    Pcg64 random(4);
    Transcriber transcriber(*engine);
    for (int i = 0; i < 100; ++i) {
      const auto id =
          engine
              ->add(make_request(random_prompt(static_cast<uint64_t>(random.integer(0, 3)), random.integer(1, 160)), 8))
              .value();
      const int64_t steps = random.integer(0, 7);
      for (int64_t step = 0; step < steps; ++step) transcriber.step();
      engine->abort(id);
      engine->abort(id);
    }
    ASSERT_TRUE(transcriber.run());
    ASSERT_TRUE(engine->check_integrity().ok()) << engine->check_integrity().to_string();
    const auto counters = engine->counters();
    EXPECT_EQ(counters.pages.used, 0);
    EXPECT_EQ(counters.pages.vacant + counters.pages.cached + counters.pages.units, pages);
    EXPECT_EQ(counters.scheduler.running, 0);
    EXPECT_EQ(counters.scheduler.waiting, 0);
  }
}

TEST(Engine, StopIdEndsTheAnswerWithoutAppearing) {
  const EngineOptions options = exact_options();
  const Transcript whole = run_alone(options, make_request(random_prompt(1, 30), 8));
  Request request = make_request(random_prompt(1, 30), 8);
  request.stop_ids = {whole.tokens[3]};
  const size_t first =
      static_cast<size_t>(std::find(whole.tokens.begin(), whole.tokens.end(), whole.tokens[3]) - whole.tokens.begin());
  const Transcript stopped = run_alone(options, request);
  EXPECT_EQ(stopped.finish, FinishReason::kStop);
  EXPECT_EQ(stopped.tokens,
            std::vector<int32_t>(whole.tokens.begin(), whole.tokens.begin() + static_cast<std::ptrdiff_t>(first)));
}

// Prompt log-probabilities are those of the teacher-forced logits, with decoder replay on for everyone else.
TEST(Engine, PromptLogprobsSeeEveryRow) {
  EngineOptions options = exact_options();
  options.encoder_replay = options.decoder_replay = true;
  const auto engine = make_engine(options);
  Request request = make_request(random_prompt(1, 130), 2);
  request.prompt_logprobs = true;
  request.top_logprobs = 3;
  (void)engine->add(request);
  std::vector<float> got;
  std::vector<engine::TokenLogprob> got_top;
  float best = 0;
  while (engine->has_work()) {
    for (const engine::Event& event : engine->step()) {
      if (!event.prompt_logprobs.empty()) got.assign(event.prompt_logprobs.begin(), event.prompt_logprobs.end());
      if (!event.prompt_top.empty()) got_top.assign(event.prompt_top.begin(), event.prompt_top.end());
      if (event.token >= 0) {
        ASSERT_EQ(event.top.size(), 3u);
        EXPECT_EQ(event.top[0].id, event.token);
        best = event.top[0].logprob;
        EXPECT_FLOAT_EQ(best, event.logprob);
      }
    }
  }
  ASSERT_EQ(got.size(), 129u);
  ASSERT_EQ(got_top.size(), 3 * 129u);
  const auto runner = small_model().runner({.max_tokens = 130});
  const std::vector<float> logits = all_logits(*runner, request.prompt);
  const auto vocabulary = logits.size() / 130;
  for (size_t i = 0; i < got.size(); ++i) {
    const std::span<const float> row = std::span(logits).subspan(i * vocabulary, vocabulary);
    EXPECT_EQ(got[i], engine::Sampler::logprob(row, request.prompt[i + 1])) << i;
    EXPECT_EQ(got_top[3 * i].id, std::max_element(row.begin(), row.end()) - row.begin()) << i;
    EXPECT_EQ(got_top[3 * i].logprob, engine::Sampler::logprob(row, got_top[3 * i].id)) << i;
    EXPECT_GE(got_top[3 * i + 1].logprob, got_top[3 * i + 2].logprob) << i;
  }
}

// The token that stops an answer is told, and is not part of it.
TEST(Engine, TheStoppingTokenIsTold) {
  const EngineOptions options = exact_options();
  const int32_t first = run_alone(options, make_request(random_prompt(1, 30), 8)).tokens[0];
  const auto engine = make_engine(options);
  Request request = make_request(random_prompt(1, 30), 8);
  request.stop_ids = {first};
  request.top_logprobs = 1;
  const auto id = engine->add(request);
  ASSERT_TRUE(id.ok());
  ASSERT_TRUE(engine->progress(id.value()).has_value());
  EXPECT_TRUE(engine->progress(id.value())->is_waiting);
  EXPECT_EQ(engine->progress(id.value())->total_tokens, 30);
  const auto events = engine->step();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].token, -1);
  EXPECT_EQ(events[0].stop_token, first);
  EXPECT_EQ(events[0].finish, FinishReason::kStop);
  EXPECT_EQ(events[0].answer_tokens, 0);
  ASSERT_EQ(events[0].top.size(), 1u);
  EXPECT_EQ(events[0].top[0].logprob, events[0].logprob);
  EXPECT_FALSE(engine->progress(id.value()).has_value());
}

// C8: after the requests are in, steps of every kind allocate nothing: prefill, decode, preemption, restore, finish.
TEST(Engine, StepsAllocateNothing) {
#ifdef PAGESTATE_COUNTS_ALLOCATIONS
  for (const bool replay : {false, true}) {
    EngineOptions options = exact_options();
    options.encoder_replay = options.decoder_replay = replay;
    options.pages = 14;
    options.threads = 2;
    const auto engine = make_engine(options);
    for (uint64_t i = 0; i < 6; ++i)
      (void)engine->add(make_request(random_prompt(i % 2, 100 + static_cast<int64_t>(i) * 9), 12));
    g_allocations = 0;
    g_armed = true;
    int steps = 0;
    while (engine->has_work() && steps < 500) {
      (void)engine->step();
      if (++steps == 9) engine->preempt_youngest();
    }
    g_armed = false;
    EXPECT_EQ(g_allocations.load(), 0) << "replay " << replay;
    EXPECT_FALSE(engine->has_work());
  }
#else
  GTEST_SKIP() << "malloc is the sanitizer's, and checking builds allocate for their checks";
#endif
}

TEST(Planner, RefusesWhatCannotWorkWithTheValueThatWould) {
  const Golden& golden = small_model();
  const auto refusal = [&](const EngineOptions& options) {
    const auto plan = engine::plan_memory(golden.checkpoint().config(), golden.checkpoint().topology(),
                                          ops::reference_table(), options);
    return plan.ok() ? std::string() : std::string(plan.status().message());
  };
  EngineOptions options = exact_options();
  EXPECT_EQ(refusal(options), "");
  options.page_tokens = 32;
  EXPECT_EQ(refusal(options), "");
  options.encoder_replay = true;
  EXPECT_NE(refusal(options).find("at least 39"), std::string::npos) << refusal(options);
  options = exact_options();
  options.page_tokens = 33;
  EXPECT_NE(refusal(options), "");
  options = exact_options();
  options.token_budget = 100;
  EXPECT_NE(refusal(options).find("140 or more"), std::string::npos) << refusal(options);
  options = exact_options();
  options.memory_bytes = 1 << 16;
  EXPECT_NE(refusal(options).find("would be enough"), std::string::npos) << refusal(options);
  options.memory_bytes = 64 << 20;
  EXPECT_EQ(refusal(options), "");
  options.memory_bytes = int64_t{1} << 50;
  EXPECT_NE(refusal(options).find("the machine has"), std::string::npos) << refusal(options);
  options = exact_options();
  options.max_context = 100000000;
  EXPECT_NE(refusal(options).find("legal values"), std::string::npos);
}

}  // namespace
}  // namespace ps::tests
