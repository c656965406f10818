#include "apps/chat/local_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "apps/units.h"
#include "base/macros.h"
#include "text/detokenizer.h"
#include "text/output_parser.h"
#include "text/prompt_encoder.h"

namespace ps::apps::chat {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Where the user says nothing, the settings that the model is evaluated with (encoding.md 5.2).
engine::SamplingOptions sampling_options(const SamplingWishes& wishes) {
  engine::SamplingOptions options;
  options.temperature = wishes.temperature.value_or(1.0);
  options.top_p = wishes.top_p.value_or(0.95);
  options.seed = wishes.seed ? static_cast<uint64_t>(*wishes.seed) : std::random_device{}();
  return options;
}

// From the tokens of one answer to the sink.
class AnswerReader {
 public:
  AnswerReader(const text::Tokenizer& tokenizer, text::ParserOptions options, AnswerSink& sink)
      : detokenizer_(tokenizer), parser_(std::move(options)), sink_(sink) {}

  void push(int32_t token) {
    const text::Detokenizer::Emission emission = detokenizer_.push(token);
    if (emission.tokens == 0) return;
    parser_.feed(emission.text, events_);
    deliver();
  }
  void finish(text::OutputEnd end) {
    (void)parser_.finish(end, events_);  // without tools it ends as the engine says
    deliver();
  }

 private:
  void deliver() {
    for (const text::ParserEvent& event : events_) {
      if (event.kind == text::ParserEvent::Kind::kReasoning) sink_.reasoning(event.text);
      if (event.kind == text::ParserEvent::Kind::kContent) sink_.content(event.text);
    }
    events_.clear();
  }

  text::Detokenizer detokenizer_;
  text::OutputParser parser_;
  AnswerSink& sink_;
  std::vector<text::ParserEvent> events_;
};

class LocalBackend final : public Backend {
 public:
  explicit LocalBackend(std::unique_ptr<OpenModel> model) : model_(std::move(model)) {}

  Result<AnswerFigures> answer(const Question& question, AnswerSink& sink,
                               const std::function<bool()>& is_stopped) override {
    const Clock::time_point start = Clock::now();
    PS_TRY(const text::Prompt prompt, text::encode_prompt(question.chat));
    engine::Request request;
    PS_TRY(request.prompt, text::tokenize_prompt(prompt, *model_->tokenizer));
    request.sampling = sampling_options(question.sampling);
    PS_TRY(request.max_tokens, answer_room(std::ssize(request.prompt), question.sampling.max_tokens));
    AnswerReader reader(*model_->tokenizer, prompt.parser, sink);
    PS_TRY(const engine::SequenceId id, engine().add(std::move(request)));

    AnswerFigures figures;
    auto end = text::OutputEnd::kUnknown;
    bool is_aborted = false;
    while (engine().has_work()) {
      if (!is_aborted && is_stopped()) {
        engine().abort(id);
        is_aborted = true;
      }
      for (const engine::Event& event : engine().step()) {
        figures.prompt_tokens = event.prompt_tokens;
        figures.cached_tokens = event.cached_tokens;
        figures.answer_tokens = event.answer_tokens;
        if (figures.first_seconds == 0 && event.token >= 0) figures.first_seconds = seconds_since(start);
        if (event.token >= 0) reader.push(event.token);
        if (event.finish == engine::FinishReason::kAborted) figures.end = AnswerEnd::kStopped;
        if (event.finish == engine::FinishReason::kLength) figures.end = AnswerEnd::kLength;
        if (event.finish == engine::FinishReason::kLength) end = text::OutputEnd::kLength;
        if (event.finish == engine::FinishReason::kStop) end = text::OutputEnd::kStop;
      }
    }
    reader.finish(end);
    figures.total_seconds = seconds_since(start);
    return figures;
  }

  std::string describe() override {
    const cache::PageCounters pages = engine().counters().pages;
    const engine::MemoryPlan& plan = engine().memory();
    return fmt::format(
        "{}\nPAGEs: {} used, {} cached, {} free, of {} with {} tokens each\nmost tokens of a conversation: {}\n",
        model_->checkpoint.folder().string(), grouped(pages.used + pages.units), grouped(pages.cached),
        grouped(pages.vacant), grouped(plan.pages), plan.geometry.options.page_tokens, grouped(plan.max_context));
  }

 private:
  [[nodiscard]] engine::Engine& engine() noexcept { return *model_->engine; }

  // Without a wish: all that is left of the context.
  [[nodiscard]] Result<int64_t> answer_room(int64_t prompt_tokens, std::optional<int64_t> wish) {
    const int64_t left = engine().memory().max_context - prompt_tokens;
    if (left >= 1) return std::min(left, wish.value_or(left));
    return Status::exhausted(
        fmt::format("the conversation has {} tokens, and a context holds {}: start over with /reset, or raise "
                    "--max-context",
                    prompt_tokens, engine().memory().max_context));
  }

  std::unique_ptr<OpenModel> model_;
};

}  // namespace

std::unique_ptr<Backend> make_local_backend(std::unique_ptr<OpenModel> model) {
  return std::make_unique<LocalBackend>(std::move(model));
}

}  // namespace ps::apps::chat
