#include "server/answer_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace ps::server {
namespace {

class AnswerJob final : public SubmissionSink, public std::enable_shared_from_this<AnswerJob> {
 public:
  AnswerJob(ApiContext& context, AnswerRequest& request, std::shared_ptr<Responder> responder)
      : context_(context),
        responder_(std::move(responder)),
        format_(std::move(request.format)),
        is_stream_(request.is_stream),
        progress_(request.requests.size()),
        open_(request.requests.size()) {
    for (Generation::Options& options : request.options) {
      generations_.emplace_back(*context.tokenizer, std::move(options));
    }
  }

  void start(std::vector<engine::Request> requests) {
    if (auto error = context_.engine.submit(std::move(requests), shared_from_this(), submission_)) {
      return responder_->reply(format_->refuse(*error));
    }
    responder_->on_gone([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->context_.engine.cancel(self->submission_);
    });
    responder_->on_stop([weak = weak_from_this()](const ApiError& error) {
      const auto self = weak.lock();
      if (self == nullptr) return;
      self->context_.engine.cancel(self->submission_);
      self->on_failure(error);
    });
    if (!is_stream_) return;
    responder_->start_stream([weak = weak_from_this()] {
      const auto self = weak.lock();
      return self == nullptr ? std::string() : self->comment();
    });
    format_->open(events_);
    send();
  }

  void on_event(size_t index, const engine::Event& event) override {
    Generation& generation = generations_[index];
    if (generation.end() != AnswerEnd::kNone) return;
    TextDelta delta;
    generation.take(event, delta);
    if (delta.empty() && generation.end() == AnswerEnd::kNone) return;
    const bool is_enough = format_->take(index, generation, std::move(delta), is_stream_ ? &events_ : nullptr);
    if (is_enough && generation.end() == AnswerEnd::kNone) {
      TextDelta rest;
      generation.finish(AnswerEnd::kStop, rest);
    }
    if (generation.end() == AnswerEnd::kNone) return;
    --open_;
    // NOTE: does nothing when the engine ended it.
    context_.engine.finish(submission_, index);
  }

  void on_progress(size_t index, const engine::PromptProgress& progress) override { progress_[index] = progress; }

  void on_step() override {
    if (open_ > 0) return send();
    if (is_stream_) {
      format_->close(generations_, events_);
      send();
      return responder_->end_stream();
    }
    responder_->on_gone(nullptr);  // nothing is left to cancel
    context_.workers.post([self = shared_from_this()] {
      auto reply = std::make_shared<HttpReply>(self->format_->whole(self->generations_));
      self->context_.io.post([self, reply] { self->responder_->reply(std::move(*reply)); });
    });
  }

  void on_failure(const ApiError& error) override {
    if (!is_stream_) return responder_->reply(format_->refuse(error));
    format_->fail(error, events_);
    send();
    responder_->end_stream();
  }

 private:
  void send() {
    responder_->send(events_);
    events_.clear();
  }

  // For the client who waits: how far the prompts are.
  [[nodiscard]] std::string comment() const {
    engine::PromptProgress sum{0, 0, true};
    for (const engine::PromptProgress& progress : progress_) {
      if (progress.is_waiting) continue;
      sum.is_waiting = false;
      sum.computed_tokens += progress.computed_tokens;
      sum.total_tokens += progress.total_tokens;
    }
    if (sum.is_waiting) return "keep-alive queued";
    return fmt::format("keep-alive prefill {}/{} tokens", sum.computed_tokens, sum.total_tokens);
  }

  ApiContext& context_;
  std::shared_ptr<Responder> responder_;
  std::unique_ptr<AnswerFormat> format_;
  bool is_stream_;
  std::vector<Generation> generations_;
  std::vector<engine::PromptProgress> progress_;
  size_t open_;
  SubmissionId submission_{};
  std::string events_;
};

}  // namespace

void start_answer(ApiContext& context, AnswerRequest request, std::shared_ptr<Responder> responder) {
  if (!responder->is_open()) return;
  const auto job = std::make_shared<AnswerJob>(context, request, std::move(responder));
  job->start(std::move(request.requests));
}

}  // namespace ps::server
