#include "server/generation.h"

#include <algorithm>
#include <utility>

namespace ps::server {
namespace {

AnswerEnd end_of(engine::FinishReason reason) {
  switch (reason) {
    case engine::FinishReason::kStop: return AnswerEnd::kStop;
    case engine::FinishReason::kLength: return AnswerEnd::kLength;
    case engine::FinishReason::kAborted: return AnswerEnd::kAborted;
    case engine::FinishReason::kNone: break;
  }
  return AnswerEnd::kNone;
}

}  // namespace

int64_t count_characters(std::string_view text) noexcept {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

void CharacterCount::add(std::string_view bytes) {
  std::string text;
  decoder_.append(bytes, text);
  whole_ += count_characters(text);
}

Generation::Generation(const text::Tokenizer& tokenizer, Options options)
    : tokenizer_(tokenizer),
      keeps_details_(options.keeps_details),
      detokenizer_(tokenizer),
      matcher_(std::move(options.stops)) {}

void Generation::take(const engine::Event& event, TextDelta& delta) {
  if (end_ != AnswerEnd::kNone) return;
  usage_.prompt_tokens = event.prompt_tokens;
  usage_.cached_tokens = event.cached_tokens;
  if (!event.prompt_logprobs.empty()) {
    prompt_logprobs_.assign(event.prompt_logprobs.begin(), event.prompt_logprobs.end());
    prompt_top_.assign(event.prompt_top.begin(), event.prompt_top.end());
  }
  if (event.token >= 0) push(event, delta);
  if (event.stop_token >= 0) keep_detail(event.stop_token, event);
  if (end_ == AnswerEnd::kNone && event.finish != engine::FinishReason::kNone) finish(end_of(event.finish), delta);
}

void Generation::keep_detail(int32_t id, const engine::Event& event) {
  if (!keeps_details_) return;
  Waiting waiting;
  waiting.detail = {id, event.logprob, {event.top.begin(), event.top.end()}, characters_.begun()};
  waiting.begin = decoded_bytes_;
  waiting_.push_back(std::move(waiting));
}

void Generation::push(const engine::Event& event, TextDelta& delta) {
  keep_detail(event.token, event);
  if (keeps_details_) characters_.add(tokenizer_.token_bytes(event.token));
  const text::Detokenizer::Emission emission = detokenizer_.push(event.token);
  if (emission.tokens == 0) return;
  usage_.completion_tokens += emission.tokens;
  decoded_bytes_ += emission.text.size();
  for (auto it = waiting_.rbegin(); it != waiting_.rend() && !it->has_text; ++it) {
    it->end = decoded_bytes_;
    it->has_text = true;
  }
  const size_t before = delta.text.size();
  matcher_.push(emission.text, delta.text);
  shown_bytes_ += delta.text.size() - before;
  release_details(delta);
  if (matcher_.match() != nullptr) end_ = AnswerEnd::kStopString;
}

void Generation::release_details(TextDelta& delta) {
  // At a stop string, the tokens that begin before the cut belong to the text.
  const bool is_cut = matcher_.match() != nullptr;
  while (!waiting_.empty()) {
    const Waiting& next = waiting_.front();
    if (is_cut ? next.begin >= shown_bytes_ : !next.has_text || next.end > shown_bytes_) break;
    delta.tokens.push_back(std::move(waiting_.front().detail));
    waiting_.pop_front();
  }
}

void Generation::finish(AnswerEnd end, TextDelta& delta) {
  if (end_ != AnswerEnd::kNone) return;
  end_ = end;
  const size_t before = delta.text.size();
  matcher_.finish(delta.text);
  shown_bytes_ += delta.text.size() - before;
  for (Waiting& waiting : waiting_) delta.tokens.push_back(std::move(waiting.detail));
  waiting_.clear();
}

}  // namespace ps::server
