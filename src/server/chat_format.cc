#include "server/chat_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/log.h"

namespace ps::server {

namespace {

using text::ParserEvent;
using Section = text::OutputParser::Section;

text::OutputEnd output_end(AnswerEnd end) {
  switch (end) {
    case AnswerEnd::kLength: return text::OutputEnd::kLength;
    case AnswerEnd::kAborted: return text::OutputEnd::kUnknown;
    case AnswerEnd::kNone:
    case AnswerEnd::kStop:
    case AnswerEnd::kStopString: break;
  }
  return text::OutputEnd::kStop;
}

}  // namespace

ChatFormat::ChatFormat(ChatFormatOptions options, std::unique_ptr<ChatReply> reply,
                       std::shared_ptr<const text::Tokenizer> tokenizer, text::ToolCallMemory& memory)
    : options_(std::move(options)), reply_(std::move(reply)), tokenizer_(std::move(tokenizer)), memory_(memory) {
  for (size_t i = 0; i < options_.choices; ++i) choices_.emplace_back(options_.parser);
}

bool ChatFormat::take(size_t index, const Generation& generation, TextDelta delta, std::string* events) {
  std::string unsent;
  std::string& out = events == nullptr ? unsent : *events;
  Choice& choice = choices_[index];
  if (index == 0 || !has_started_) {
    prompt_tokens_ = generation.usage().prompt_tokens;
    cached_tokens_ = generation.usage().cached_tokens;
  }
  if (!std::exchange(has_started_, true)) reply_->start(usage(), out);
  count(choice, generation);
  keep_tokens(choice, generation, delta.tokens);

  parsed_.clear();
  const Section section = choice.parser.section();
  choice.parser.feed(delta.text, parsed_);
  const bool is_cut = cut_after_call();
  // What the parser met counts, whatever the engine says of the same token.
  const bool is_complete = is_cut || choice.parser.is_finished();
  const bool is_over = is_complete || generation.end() != AnswerEnd::kNone;
  std::vector<ReplyToken> tokens = release_tokens(choice, section, parsed_);
  text::FinishReason reason{};
  if (is_over) {
    reason = choice.parser.finish(is_complete ? text::OutputEnd::kStop : output_end(generation.end()), parsed_);
    (void)cut_after_call();
    // Nothing is held back any more.
    std::move(choice.tokens.begin(), choice.tokens.end(), std::back_inserter(tokens));
  }
  note_events(index);
  reply_->deliver(index, parsed_, tokens, out);
  if (!is_over) return false;
  end_choice(index, reason);
  if (options_.is_stream) reply_->finish(index, choice.end, out);
  return true;
}

bool ChatFormat::cut_after_call() {
  if (options_.allows_parallel_calls) return false;
  const auto end = std::find_if(parsed_.begin(), parsed_.end(),
                                [](const ParserEvent& event) { return event.kind == ParserEvent::Kind::kCallEnd; });
  if (end == parsed_.end()) return false;
  parsed_.erase(end + 1, parsed_.end());
  return true;
}

void ChatFormat::count(Choice& choice, const Generation& generation) {
  const int64_t tokens = generation.usage().completion_tokens - choice.answer_tokens;
  choice.answer_tokens += tokens;
  if (choice.parser.section() == text::OutputParser::Section::kReasoning) choice.reasoning_tokens += tokens;
}

void ChatFormat::keep_tokens(Choice& choice, const Generation& generation, std::span<const TokenDetail> details) const {
  // The token that ended the sentence is no part of the answer.
  if (generation.end() == AnswerEnd::kStop && !details.empty()) details = details.first(details.size() - 1);
  const Section section = choice.parser.section();
  if (section != Section::kReasoning && section != Section::kContent) return;
  for (const TokenDetail& detail : details) {
    ReplyToken token;
    token.bytes = tokenizer_->token_bytes(detail.id);
    token.logprob = detail.logprob;
    for (const auto& [id, logprob] : detail.top) {
      token.top.push_back({std::string(tokenizer_->token_bytes(id)), logprob});
    }
    token.is_reasoning = section == Section::kReasoning;
    choice.tokens.push_back(std::move(token));
  }
}

std::vector<ReplyToken> ChatFormat::release_tokens(Choice& choice, Section before,
                                                   std::span<const ParserEvent> events) {
  const bool has_text = std::any_of(events.begin(), events.end(), [](const ParserEvent& event) {
    return event.kind == ParserEvent::Kind::kReasoning || event.kind == ParserEvent::Kind::kContent;
  });
  if (has_text) return std::exchange(choice.tokens, {});
  if (choice.parser.section() != before) choice.tokens.clear();
  return {};
}

void ChatFormat::note_events(size_t index) {
  Choice& choice = choices_[index];
  for (const ParserEvent& event : parsed_) {
    if (event.kind == ParserEvent::Kind::kCallStart) {
      choice.calls.push_back({reply_->call_id(index, event.call), event.text, {}});
    } else if (event.kind == ParserEvent::Kind::kArguments && !choice.calls.empty()) {
      choice.calls.back().arguments += event.text;
    }
    choice.has_answer |= event.kind == ParserEvent::Kind::kContent || event.kind == ParserEvent::Kind::kCallStart;
  }
}

void ChatFormat::end_choice(size_t index, text::FinishReason reason) {
  Choice& choice = choices_[index];
  choice.end = {.reason = reason, .usage = usage()};
  if (const auto stop = choice.parser.stop_hit(); stop.has_value()) {
    choice.end.stop_string = options_.parser.stops[static_cast<size_t>(*stop)];
  }
  if (choice.parser.is_tool_block_closed()) memory_.remember(choice.calls, choice.parser.tool_block());
  if (reason != text::FinishReason::kLength || choice.has_answer || choice.reasoning_tokens == 0) return;
  const std::string limit = options_.max_tokens_name.empty()
                                ? fmt::format("the {} tokens that the context has room for", options_.max_tokens)
                                : fmt::format("{} = {}", options_.max_tokens_name, options_.max_tokens);
  warning_ = fmt::format(
      "the thought took all of {} and left nothing for the answer; ask for more tokens, less effort, or no thinking",
      limit);
  log_warning(fmt::format("event=thought_only reasoning_tokens={} what=\"{}\"", choice.reasoning_tokens, warning_));
}

ReplyUsage ChatFormat::usage() const {
  ReplyUsage usage{.prompt_tokens = prompt_tokens_, .cached_tokens = cached_tokens_};
  for (const Choice& choice : choices_) {
    usage.answer_tokens += choice.answer_tokens;
    usage.reasoning_tokens += choice.reasoning_tokens;
  }
  return usage;
}

HttpReply ChatFormat::refuse(const ApiError& error) {
  if (error.code != kContextLengthExceeded || options_.length_problem.empty()) return options_.error(error);
  ApiError told = error;
  told.message = options_.length_problem + "; " + error.message;
  return options_.error(told);
}

HttpReply ChatFormat::whole(const std::vector<Generation>&) {
  std::string body;
  for (size_t i = 0; i < choices_.size(); ++i) {
    choices_[i].end.usage = usage();
    reply_->finish(i, choices_[i].end, body);
  }
  HttpReply reply = json_reply(std::move(body));
  if (!warning_.empty()) reply.headers.push_back({"X-Pagestate-Warning", warning_});
  return reply;
}

}  // namespace ps::server
