#include "text/output_parser.h"

#include <array>
#include <deque>
#include <utility>

#include "base/json.h"
#include "base/macros.h"
#include "text/markup.h"
#include "text/pattern_matcher.h"

namespace ps::text {
namespace {

using Kind = ParserEvent::Kind;

enum class State : uint8_t {
  kReasoning,
  kContent,
  kToolCalls,    // between the tags of a block
  kName,         // of a call
  kArguments,    // between the parameters of a call
  kParameter,    // its quoted name
  kType,         // up to the end of its opening tag
  kString,       // its value
  kJsonValue,    // its value, JSON
  kJsonContent,  // JSON mode, before the JSON
  kJson,
  kJsonDone,  // JSON mode, after the closing fence
  kFinished,
};
constexpr size_t kStates = static_cast<size_t>(State::kFinished) + 1;

// What a complete pattern means.
enum class Action : uint8_t {
  kOpenBlock,
  kEndReasoning,
  kDropMarker,
  kStop,
  kBeginName,
  kCloseBlock,
  kEndName,
  kBeginParameter,
  kEndCall,
  kEndParameterName,
  kBeginString,
  kBeginJsonValue,
  kEndValue,
  kOpenFence,
  kBeginJson,
  kCloseFence,
};

// The patterns of one state. Where two end on the same byte, the first of them counts.
class PatternSet {
 public:
  void add(Action action, std::string_view pattern, bool takes_newlines = false) {
    matchers_.emplace_back(pattern, takes_newlines);
    actions_.push_back(action);
    interesting_[static_cast<uint8_t>(pattern.front())] = true;
    if (takes_newlines) interesting_['\n'] = true;
  }
  void reset() noexcept {
    for (PatternMatcher& matcher : matchers_) matcher.reset();
    held_ = 0;
  }
  // Index of the pattern that ends with this byte, or -1.
  int advance(char byte) noexcept {
    held_ = 0;
    for (size_t i = 0; i < matchers_.size(); ++i) {
      // NOTE: the state is then left or entered anew, which resets the others.
      if (matchers_[i].advance(byte)) return static_cast<int>(i);
      if (matchers_[i].held() > held_) held_ = matchers_[i].held();
    }
    return -1;
  }
  [[nodiscard]] size_t held() const noexcept { return held_; }
  // A byte at which an idle matcher has to look.
  [[nodiscard]] bool is_interesting(char byte) const noexcept { return interesting_[static_cast<uint8_t>(byte)]; }
  [[nodiscard]] Action action(int index) const noexcept { return actions_[static_cast<size_t>(index)]; }
  [[nodiscard]] size_t match_length(int index) const noexcept { return matchers_[static_cast<size_t>(index)].held(); }

 private:
  std::vector<PatternMatcher> matchers_;
  std::vector<Action> actions_;
  std::array<bool, 256> interesting_{};
  size_t held_ = 0;  // longest over the matchers
};

// Text that is not delivered yet, as the pieces in which it came.
class HeldText {
 public:
  [[nodiscard]] bool empty() const noexcept { return ends_.empty(); }
  [[nodiscard]] uint64_t begin() const noexcept { return begin_; }
  [[nodiscard]] uint64_t first_end() const noexcept { return ends_.front(); }

  // REQUIRES: `begin` is where the text before ended, or empty().
  void append(uint64_t begin, std::string_view piece) {
    if (piece.empty()) return;
    if (ends_.empty()) begin_ = begin;
    bytes_ += piece;
    ends_.push_back(begin + piece.size());
  }
  // [begin(), to). REQUIRES: to is in the text. Valid until the text changes.
  [[nodiscard]] std::string_view view(uint64_t to) const noexcept {
    return std::string_view(bytes_).substr(start_, static_cast<size_t>(to - begin_));
  }
  // Drops everything before `to`.
  void drop(uint64_t to) {
    while (!ends_.empty() && ends_.front() <= to) ends_.pop_front();
    if (ends_.empty()) {
      bytes_.clear();
      start_ = 0;
      return;
    }
    if (to <= begin_) return;
    start_ += static_cast<size_t>(to - begin_);
    begin_ = to;
    if (start_ > bytes_.size() / 2) {  // each byte is moved at most once per halving
      bytes_.erase(0, start_);
      start_ = 0;
    }
  }

 private:
  std::string bytes_;
  size_t start_ = 0;           // of the held text in bytes_
  uint64_t begin_ = 0;         // its offset in the whole text
  std::deque<uint64_t> ends_;  // of the pieces, offsets in the whole text
};

}  // namespace

std::string_view parser_start_name(ParserStart start) noexcept {
  switch (start) {
    case ParserStart::kReasoning: return "reasoning";
    case ParserStart::kContent: return "content";
    case ParserStart::kToolCalls: return "tool_calls";
    case ParserStart::kContinuedReasoning: return "continued_reasoning";
    case ParserStart::kContinuedContent: return "continued_content";
  }
  return "?";
}

std::string_view finish_reason_name(FinishReason reason) noexcept {
  switch (reason) {
    case FinishReason::kStop:
    case FinishReason::kStopSequence: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kToolCalls: return "tool_calls";
    case FinishReason::kContentFilter: return "content_filter";
  }
  return "?";
}

class OutputParser::Machine {
 public:
  explicit Machine(ParserOptions options) : options_(std::move(options)) {
    add_patterns();
    begin();
  }

  void feed(std::string_view chunk, std::vector<ParserEvent>& events) {
    chunk_ = chunk;
    chunk_begin_ = fed_;
    events_ = &events;
    for (size_t at = 0; at < chunk.size();) at = step(at);
    fed_ = chunk_begin_ + chunk.size();
    hold_back();
    if (in_block_) tool_block_ += chunk.substr(static_cast<size_t>(block_taken_ - chunk_begin_));
    block_taken_ = fed_;
  }

  FinishReason finish(OutputEnd end, std::vector<ParserEvent>& events) {
    chunk_ = {};
    chunk_begin_ = fed_;
    events_ = &events;
    deliver_until(fed_);
    if (stop_hit_) return FinishReason::kStopSequence;
    if (end == OutputEnd::kLength) return FinishReason::kLength;
    if (end == OutputEnd::kContentFilter) return FinishReason::kContentFilter;
    if (options_.returns_unparsed) return_unparsed();
    return end == OutputEnd::kStop && calls_ > 0 ? FinishReason::kToolCalls : FinishReason::kStop;
  }

  [[nodiscard]] Section section() const noexcept {
    switch (state_) {
      case State::kReasoning: return Section::kReasoning;
      case State::kContent:
      case State::kJsonContent:
      case State::kJson:
      case State::kJsonDone: return Section::kContent;
      case State::kFinished: return Section::kFinished;
      default: return Section::kToolCalls;
    }
  }
  [[nodiscard]] std::optional<int32_t> stop_hit() const noexcept { return stop_hit_; }
  [[nodiscard]] int32_t calls() const noexcept { return calls_; }
  [[nodiscard]] const std::string& tool_block() const noexcept { return tool_block_; }
  [[nodiscard]] bool is_tool_block_closed() const noexcept { return is_block_closed_; }

 private:
  PatternSet& patterns(State state) noexcept { return patterns_[static_cast<size_t>(state)]; }

  void add_patterns() {
    const auto open_block = [this](State state) {
      if (options_.parses_tool_calls) patterns(state).add(Action::kOpenBlock, markup::kTagBegin, true);
    };
    const auto stops = [this](State state) {
      for (size_t i = 0; i < options_.stops.size(); ++i) {
        if (options_.stops[i].empty()) continue;
        patterns(state).add(Action::kStop, options_.stops[i]);
        if (state == State::kContent) stop_of_pattern_.push_back(static_cast<int32_t>(i));
      }
    };
    open_block(State::kReasoning);
    patterns(State::kReasoning).add(Action::kEndReasoning, markup::kThinkEnd, true);
    stops(State::kContent);
    open_block(State::kContent);
    patterns(State::kContent).add(Action::kDropMarker, markup::kThinkEnd);

    patterns(State::kToolCalls).add(Action::kBeginName, "invoke name=\"");
    patterns(State::kToolCalls).add(Action::kCloseBlock, "</｜DSML｜tool_calls>");
    patterns(State::kToolCalls).add(Action::kCloseBlock, "</｜DSML｜ calls>");
    patterns(State::kName).add(Action::kEndName, "\"");
    patterns(State::kArguments).add(Action::kBeginParameter, "parameter name=");
    patterns(State::kArguments).add(Action::kEndCall, markup::kTagEnd);
    patterns(State::kParameter).add(Action::kEndParameterName, " ");
    patterns(State::kType).add(Action::kBeginString, "true\">");
    patterns(State::kType).add(Action::kBeginJsonValue, "false\">");
    patterns(State::kString).add(Action::kEndValue, markup::kTagEnd);
    patterns(State::kJsonValue).add(Action::kEndValue, markup::kTagEnd);

    patterns(State::kJsonContent).add(Action::kOpenFence, "```json\n");
    patterns(State::kJsonContent).add(Action::kOpenFence, "```\n");
    patterns(State::kJsonContent).add(Action::kBeginJson, "{");
    patterns(State::kJsonContent).add(Action::kBeginJson, "[");
    open_block(State::kJsonContent);
    patterns(State::kJsonContent).add(Action::kDropMarker, markup::kThinkEnd);
    stops(State::kJson);
    patterns(State::kJson).add(Action::kCloseFence, "\n```");
    open_block(State::kJsonDone);
  }

  void begin() {
    switch (options_.start) {
      case ParserStart::kReasoning: enter(State::kReasoning, 0, true); break;
      case ParserStart::kContinuedReasoning: enter(State::kReasoning, 0); break;
      case ParserStart::kContent: enter_answer(0); break;
      case ParserStart::kContinuedContent:
        // What the client began may be the beginning of the JSON, so nothing is taken for prose.
        enter(options_.is_json_mode ? State::kJson : State::kContent, 0);
        break;
      case ParserStart::kToolCalls:
        tool_block_ = markup::kCallsOpening;
        in_block_ = true;
        enter(State::kToolCalls, 0);
        break;
    }
  }

  // Everything before `next` is dealt with; from there on the rules of `state` hold.
  void enter(State state, uint64_t next, bool drops_newlines = false) {
    state_ = state;
    drops_newlines_ = drops_newlines;
    said_space_ = false;
    drop_until(next);
    patterns(state).reset();
  }

  void enter_answer(uint64_t next) {
    lead_newlines_ = 0;
    lead_end_ = next;
    if (options_.is_json_mode) return enter(State::kJsonContent, next);
    enter(State::kContent, next, true);
  }

  // Takes the byte at `at`, and uninteresting ones before it; returns where to go on.
  size_t step(size_t at) {
    if (state_ == State::kFinished) return chunk_.size();
    PatternSet& set = patterns(state_);
    if (set.held() == 0) {
      while (at < chunk_.size() && !set.is_interesting(chunk_[at]) && (!drops_newlines_ || chunk_[at] != '\n')) {
        drops_newlines_ = false;
        ++at;
      }
      if (at == chunk_.size()) return at;
    }
    const char byte = chunk_[at];
    const uint64_t next = chunk_begin_ + at + 1;
    const int found = set.advance(byte);
    if (found >= 0) {
      const Action action = set.action(found);
      act(action, found, next - set.match_length(found), next);
      if (action == Action::kBeginJson) return at;  // the bracket is part of the JSON, where a stop may begin with it
    } else if (drops_newlines_ && byte == '\n') {
      ++lead_newlines_;
      lead_end_ = next;
      enter(state_, next, true);
    } else {
      drops_newlines_ = false;
    }
    return at + 1;
  }

  // A pattern reaches from `begin` to `next`.
  void act(Action action, int pattern, uint64_t begin, uint64_t next) {
    deliver_until(begin);
    switch (action) {
      case Action::kOpenBlock:
        // Dropped for the client, but the model's context has them.
        if (begin != lead_end_) lead_newlines_ = 0;
        tool_block_ = std::string(lead_newlines_, '\n').append(text_between(begin, next));
        in_block_ = true;
        block_taken_ = next;
        return enter(State::kToolCalls, next);
      case Action::kEndReasoning: return enter_answer(next);
      case Action::kDropMarker: return enter(state_, next);
      case Action::kStop:
        stop_hit_ = stop_of_pattern_[static_cast<size_t>(pattern)];
        events_->push_back({Kind::kStop, {}, -1, *stop_hit_});
        return enter(State::kFinished, next);
      case Action::kCloseBlock: is_block_closed_ = true; return enter(State::kFinished, next);
      case Action::kOpenFence: return enter(State::kJson, next);
      case Action::kBeginJson: return enter(State::kJson, begin);
      case Action::kCloseFence: return enter(State::kJsonDone, next);
      default: return act_in_call(action, next);
    }
  }

  void act_in_call(Action action, uint64_t next) {
    switch (action) {
      case Action::kBeginName: name_.clear(); return enter(State::kName, next);
      case Action::kEndName:
        events_->push_back({Kind::kCallStart, std::exchange(name_, {}), calls_++, -1});
        has_parameters_ = false;
        return enter(State::kArguments, next);
      case Action::kBeginParameter:
        argue(has_parameters_ ? ", " : "{");
        has_parameters_ = true;
        return enter(State::kParameter, next);
      case Action::kEndCall:
        argue(has_parameters_ ? "}" : "{}");
        events_->push_back({Kind::kCallEnd, {}, calls_ - 1, -1});
        return enter(State::kToolCalls, next);
      case Action::kEndParameterName: argue(": "); return enter(State::kType, next);
      case Action::kBeginString: argue("\""); return enter(State::kString, next);
      case Action::kBeginJsonValue: return enter(State::kJsonValue, next);
      case Action::kEndValue:
        if (state_ == State::kString) argue("\"");
        return enter(State::kArguments, next);
      default: PS_CHECK(false, static_cast<int>(action));
    }
  }

  void argue(std::string_view text) { events_->push_back({Kind::kArguments, std::string(text), calls_ - 1, -1}); }

  // Delivers what is left before offset `to`, piece by piece.
  void deliver_until(uint64_t to) {
    while (!held_.empty() && held_.begin() < to) {
      const uint64_t end = held_.first_end() < to ? held_.first_end() : to;
      deliver(held_.view(end));
      held_.drop(end);
    }
    if (taken_ < to && chunk_begin_ < to) {
      const uint64_t from = taken_ > chunk_begin_ ? taken_ : chunk_begin_;
      deliver(chunk_.substr(static_cast<size_t>(from - chunk_begin_), static_cast<size_t>(to - from)));
    }
    if (taken_ < to) taken_ = to;
  }
  void drop_until(uint64_t to) {
    held_.drop(to);
    if (taken_ < to) taken_ = to;
  }
  // Bytes that are not delivered yet. REQUIRES: begin is not before taken_.
  [[nodiscard]] std::string text_between(uint64_t begin, uint64_t end) const {
    std::string text;
    if (begin < chunk_begin_) {
      text = held_.view(chunk_begin_).substr(static_cast<size_t>(begin - held_.begin()));
      begin = chunk_begin_;
    }
    text += chunk_.substr(static_cast<size_t>(begin - chunk_begin_), static_cast<size_t>(end - begin));
    return text;
  }

  // At the end of a chunk: delivers the pieces of which every byte is decided, and keeps the others.
  void hold_back() {
    const uint64_t decided = fed_ - (state_ == State::kFinished ? 0 : patterns(state_).held());
    if (decided == fed_) return deliver_until(fed_);
    while (!held_.empty() && held_.first_end() <= decided) deliver_until(held_.first_end());
    const uint64_t from = taken_ > chunk_begin_ ? taken_ : chunk_begin_;
    held_.append(from, chunk_.substr(static_cast<size_t>(from - chunk_begin_)));
  }

  // Text of the present state. What a state has no use for is dropped.
  void deliver(std::string_view text) {
    if (text.empty()) return;
    switch (state_) {
      case State::kReasoning: events_->push_back({Kind::kReasoning, std::string(text), -1, -1}); return;
      case State::kContent:
      case State::kJson: events_->push_back({Kind::kContent, std::string(text), -1, -1}); return;
      case State::kName: name_ += text; return;
      case State::kParameter:
      case State::kJsonValue: argue(text); return;
      case State::kString: {
        std::string escaped;
        append_json_escaped(escaped, text);
        events_->push_back({Kind::kArguments, std::move(escaped), calls_ - 1, -1});
        return;
      }
      case State::kJsonContent: prose_ += text; [[fallthrough]];
      case State::kJsonDone:
        // A space per run of prose tells a waiting client that something happens, and does not hurt the JSON.
        if (!said_space_) events_->push_back({Kind::kContent, " ", -1, -1});
        said_space_ = true;
        return;
      default: return;
    }
  }

  void return_unparsed() {
    if (calls_ > 0) return;
    std::string text;
    if (in_block_) {
      const bool prompt_opened = options_.start == ParserStart::kToolCalls;
      text = prose_ + tool_block_.substr(prompt_opened ? markup::kCallsOpening.size() : lead_newlines_);
    } else if (state_ == State::kJsonContent) {
      text = prose_;
    }
    if (!text.empty()) events_->push_back({Kind::kContent, std::move(text), -1, -1});
  }

  ParserOptions options_;
  std::array<PatternSet, kStates> patterns_;
  std::vector<int32_t> stop_of_pattern_;  // the stops are the first patterns of their states

  State state_ = State::kContent;
  bool drops_newlines_ = false;  // the state was just entered, and newlines at its beginning do not count
  size_t lead_newlines_ = 0;     // dropped in a row at the beginning of the state
  bool said_space_ = false;
  bool has_parameters_ = false;
  bool in_block_ = false;
  bool is_block_closed_ = false;
  int32_t calls_ = 0;
  std::optional<int32_t> stop_hit_;
  std::string name_;
  std::string prose_;  // of kJsonContent
  std::string tool_block_;

  // Offsets in the whole text. Bytes before taken_ are delivered or dropped; those from taken_ to the chunk are held.
  uint64_t fed_ = 0;
  uint64_t taken_ = 0;
  uint64_t lead_end_ = 0;     // behind lead_newlines_
  uint64_t block_taken_ = 0;  // bytes before it are in tool_block_, if they belong there
  HeldText held_;

  // Of the call in progress.
  std::string_view chunk_;
  uint64_t chunk_begin_ = 0;
  std::vector<ParserEvent>* events_ = nullptr;
};

OutputParser::OutputParser(ParserOptions options) : machine_(std::make_unique<Machine>(std::move(options))) {}
OutputParser::~OutputParser() = default;
OutputParser::OutputParser(OutputParser&&) noexcept = default;
OutputParser& OutputParser::operator=(OutputParser&&) noexcept = default;

void OutputParser::feed(std::string_view bytes, std::vector<ParserEvent>& events) { machine_->feed(bytes, events); }
FinishReason OutputParser::finish(OutputEnd end, std::vector<ParserEvent>& events) {
  return machine_->finish(end, events);
}
OutputParser::Section OutputParser::section() const noexcept { return machine_->section(); }
std::optional<int32_t> OutputParser::stop_hit() const noexcept { return machine_->stop_hit(); }
int32_t OutputParser::call_count() const noexcept { return machine_->calls(); }
const std::string& OutputParser::tool_block() const noexcept { return machine_->tool_block(); }
bool OutputParser::is_tool_block_closed() const noexcept { return machine_->is_tool_block_closed(); }

}  // namespace ps::text
