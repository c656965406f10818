// The parser of model text: every published case at every cut, and the faults that users met in other parsers.
#include "text/output_parser.h"

#include <algorithm>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "text/test_data.h"

namespace ps::text {
namespace {

using Kind = ParserEvent::Kind;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A whole message, as a client without streaming gets it. Neighbouring deltas are joined.
struct Parsed {
  std::string reasoning;
  std::string content;
  std::vector<std::pair<std::string, std::string>> calls;  // name, arguments
  std::vector<bool> call_ended;
  FinishReason reason = FinishReason::kStop;
  int32_t stop = -1;
  std::string block;
  bool operator==(const Parsed&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Parsed& parsed) {
  out << "reasoning " << testing::PrintToString(parsed.reasoning) << " content "
      << testing::PrintToString(parsed.content) << " calls " << testing::PrintToString(parsed.calls) << " finish "
      << finish_reason_name(parsed.reason) << " stop " << parsed.stop << " block "
      << testing::PrintToString(parsed.block);
  return out;
}

void take(const std::vector<ParserEvent>& events, Parsed& parsed) {
  for (const ParserEvent& event : events) {
    const auto call = static_cast<size_t>(event.call);
    switch (event.kind) {
      case Kind::kReasoning: parsed.reasoning += event.text; break;
      case Kind::kContent: parsed.content += event.text; break;
      case Kind::kCallStart:
        EXPECT_EQ(call, parsed.calls.size());
        parsed.calls.emplace_back(event.text, "");
        parsed.call_ended.push_back(false);
        break;
      case Kind::kArguments: parsed.calls.at(call).second += event.text; break;
      case Kind::kCallEnd: parsed.call_ended.at(call) = true; break;
      case Kind::kStop: parsed.stop = event.stop; break;
    }
  }
}

Parsed parse(const ParserOptions& options, const std::vector<std::string_view>& pieces,
             OutputEnd end = OutputEnd::kStop) {
  OutputParser parser(options);
  Parsed parsed;
  std::vector<ParserEvent> events;
  for (const std::string_view piece : pieces) parser.feed(piece, events);
  parsed.reason = parser.finish(end, events);
  take(events, parsed);
  parsed.block = parser.tool_block();
  return parsed;
}

std::vector<std::string_view> every_byte(std::string_view text) {
  std::vector<std::string_view> pieces;
  for (size_t i = 0; i < text.size(); ++i) pieces.push_back(text.substr(i, 1));
  return pieces;
}

// The result of the uncut text, after checking that every cut gives the same.
Parsed parse_at_every_cut(const ParserOptions& options, std::string_view text, OutputEnd end = OutputEnd::kStop) {
  const Parsed whole = parse(options, {text}, end);
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(parse(options, {text.substr(0, cut), text.substr(cut)}, end), whole) << "cut at byte " << cut;
  }
  EXPECT_EQ(parse(options, every_byte(text), end), whole) << "byte by byte";
  test::TextSource random(static_cast<uint32_t>(text.size()));
  for (int round = 0; round < 60; ++round) {
    std::vector<std::string_view> pieces;
    for (size_t at = 0; at < text.size();) {
      const size_t length = std::min<size_t>(random.below(12), text.size() - at);
      pieces.push_back(text.substr(at, length));
      at += length;
    }
    EXPECT_EQ(parse(options, pieces, end), whole) << "random cuts, round " << round;
  }
  return whole;
}

ParserOptions options_of(const JsonValue& json) {
  ParserOptions options;
  options.returns_unparsed = false;  // the cases are those of the bare state machine
  const std::string& start = json.find("start")->text();
  options.start = start == "reasoning"      ? ParserStart::kReasoning
                  : start == "content_lead" ? ParserStart::kContent
                                            : ParserStart::kToolCalls;
  EXPECT_TRUE(options.start != ParserStart::kToolCalls || start == "tool_calls") << start;
  const JsonValue* tools = json.find("tools");
  options.parses_tool_calls = tools == nullptr || tools->boolean();
  const JsonValue* json_mode = json.find("js");
  options.is_json_mode = json_mode != nullptr && json_mode->boolean();
  if (const JsonValue* stops = json.find("stops")) {
    for (const JsonValue& stop : stops->items()) options.stops.push_back(stop.text());
  }
  return options;
}

OutputEnd end_of(const JsonValue& json) {
  if (json.is_null()) return OutputEnd::kUnknown;
  EXPECT_THAT(json.text(), ::testing::AnyOf("stop", "length"));
  return json.text() == "length" ? OutputEnd::kLength : OutputEnd::kStop;
}

TEST(OutputParser, GivesEveryPublishedCaseAtEveryCut) {
  const JsonValue cases = test::read_json("stream_cases.json");
  ASSERT_GE(cases.find("cases")->items().size(), 40U);
  for (const JsonValue& item : cases.find("cases")->items()) {
    SCOPED_TRACE(item.find("name")->text());
    const ParserOptions options = options_of(*item.find("options"));
    const JsonValue& expect = *item.find("expect");
    const Parsed parsed = parse_at_every_cut(options, item.find("text")->text(), end_of(*item.find("backend_finish")));
    EXPECT_EQ(parsed.reasoning, expect.find("reasoning")->text());
    EXPECT_EQ(parsed.content, expect.find("content")->text());
    std::vector<std::pair<std::string, std::string>> calls;
    for (const JsonValue& call : expect.find("tool_calls")->items()) {
      calls.emplace_back(call.find("name")->text(), call.find("arguments")->text());
    }
    EXPECT_EQ(parsed.calls, calls);
    const JsonValue& stop = *expect.find("stop_sequence");
    const std::string& reason = expect.find("finish_reason")->text();
    EXPECT_EQ(parsed.reason == FinishReason::kStopSequence, reason == "stop_sequence");
    EXPECT_EQ(finish_reason_name(parsed.reason), reason == "stop_sequence" ? "stop" : reason);
    EXPECT_EQ(parsed.stop >= 0 ? options.stops.at(static_cast<size_t>(parsed.stop)) : "",
              stop.is_null() ? "" : stop.text());
  }
}

TEST(OutputParser, GivesThePublishedEventsOfEveryChunk) {
  const JsonValue cases = test::read_json("stream_cases.json");
  int with_events = 0;
  for (const JsonValue& item : cases.find("cases")->items()) {
    const JsonValue* chunks = item.find("chunks");
    if (chunks == nullptr) continue;
    SCOPED_TRACE(item.find("name")->text());
    ++with_events;
    OutputParser parser(options_of(*item.find("options")));
    const auto& expected = item.find("events_per_chunk")->items();
    ASSERT_EQ(expected.size(), chunks->items().size() + 1);
    for (size_t i = 0; i < expected.size(); ++i) {
      std::vector<ParserEvent> events;
      if (i < chunks->items().size()) {
        parser.feed(chunks->items()[i].text(), events);
      } else {
        parser.finish(OutputEnd::kStop, events);
      }
      std::vector<std::pair<std::string, std::string>> got;
      std::vector<std::pair<std::string, std::string>> want;
      for (const ParserEvent& event : events) {
        if (event.kind == Kind::kCallEnd) continue;  // the cases do not report it
        const std::string_view kind = event.kind == Kind::kReasoning   ? "reasoning"
                                      : event.kind == Kind::kContent   ? "content"
                                      : event.kind == Kind::kCallStart ? "tool"
                                      : event.kind == Kind::kArguments ? "args"
                                                                       : "stop";
        got.emplace_back(kind, event.text);
      }
      for (const JsonValue& event : expected[i].items()) {
        want.emplace_back(event.items()[0].text(), event.items()[1].text());
      }
      EXPECT_EQ(got, want) << "after chunk " << i;
    }
  }
  EXPECT_EQ(with_events, 4);
}

ParserOptions content_with_tools() { return {.start = ParserStart::kContent, .parses_tool_calls = true}; }
ParserOptions reasoning_with_tools() { return {.start = ParserStart::kReasoning, .parses_tool_calls = true}; }
using Calls = std::vector<std::pair<std::string, std::string>>;

// A block with one call of f and one string parameter.
std::string block_with(std::string_view value) {
  return "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"s\" string=\"true\">" +
         std::string(value) + "</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";
}

// Pitfalls F1, 21, 23.
TEST(OutputParserPitfalls, ATagSplitBetweenChunksNeverLeaksIntoTheArgument) {
  const std::string text = block_with("ls 2>&1 | grep '</parameter>' <tag> << EOF\nx\nEOF\n");
  const Parsed parsed = parse_at_every_cut(content_with_tools(), text);
  EXPECT_EQ(parsed.calls, (Calls{{"f", R"({"s": "ls 2>&1 | grep '</parameter>' <tag> << EOF\nx\nEOF\n"})"}}));
}

// Pitfall F2: the opener lacks an underscore, the closer is right.
TEST(OutputParserPitfalls, AMalformedOpenerStillGivesTheCall) {
  const std::string text =
      "<｜DSML｜toolcalls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" string=\"false\">1"
      "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>";
  EXPECT_EQ(parse_at_every_cut(content_with_tools(), text).calls, (Calls{{"f", R"({"a": 1})"}}));
}

// Pitfalls F2, F3, F13: an answer is never empty because its markup was no call.
TEST(OutputParserPitfalls, ABlockWithoutACallComesBackAsContent) {
  for (const std::string_view text : {"<｜DSML｜ calls>\n</｜DSML｜ calls>", "<｜DSML｜ calls>\n{\"name\": \"f\"}",
                                      "<｜DSML｜", "<｜DSML｜ calls>\n<｜DSML｜ invoke nam=\"f\">"}) {
    const Parsed parsed = parse_at_every_cut(content_with_tools(), text);
    EXPECT_EQ(parsed.content, text);
    EXPECT_EQ(parsed.reason, FinishReason::kStop);
    EXPECT_THAT(parsed.calls, IsEmpty());
    // Cut off by max_tokens, the finish reason explains the gap, and half a tag is nothing to show.
    EXPECT_EQ(parse_at_every_cut(content_with_tools(), text, OutputEnd::kLength).content, "");
  }
  ParserOptions forced = content_with_tools();
  forced.start = ParserStart::kToolCalls;
  EXPECT_EQ(parse_at_every_cut(forced, "I will not call.").content, "I will not call.");
}

TEST(OutputParserPitfalls, ProseInsteadOfJsonComesBackAsContent) {
  const ParserOptions options{.is_json_mode = true};
  EXPECT_EQ(parse_at_every_cut(options, "I cannot do that.").content, " I cannot do that.");
  EXPECT_EQ(parse_at_every_cut(options, "Here: {\"a\": 1}").content, " {\"a\": 1}");
  // Also where a block without a call follows.
  ParserOptions with_tools = options;
  with_tools.parses_tool_calls = true;
  EXPECT_EQ(parse_at_every_cut(with_tools, "I cannot.\n\n<｜DSML｜ calls>\noops").content,
            " I cannot.\n\n<｜DSML｜ calls>\noops");
}

// Pitfall 28: bars that a gateway doubled are no markup of the model's; they are shown whole, never half parsed.
TEST(OutputParserPitfalls, DoubledBarsAreText) {
  const std::string text = "<｜｜DSML｜｜ calls>\n<｜｜DSML｜｜ invoke name=\"f\">";
  const Parsed parsed = parse_at_every_cut(content_with_tools(), text);
  EXPECT_EQ(parsed.content, text);
  EXPECT_TRUE(parsed.calls.empty());
}

// Pitfall F4.
TEST(OutputParserPitfalls, TagsWithAndWithoutSpaceAreRead) {
  std::string text = block_with("x");
  const Parsed spaced = parse_at_every_cut(content_with_tools(), text);
  for (size_t at = 0; (at = text.find("｜ ")) != std::string::npos;) text.erase(at + std::string_view("｜").size(), 1);
  text.replace(text.find("｜calls"), std::string_view("｜calls").size(), "｜tool_calls");
  text.replace(text.rfind("｜calls"), std::string_view("｜calls").size(), "｜tool_calls");
  const Parsed unspaced = parse_at_every_cut(content_with_tools(), text);
  EXPECT_EQ(unspaced.calls, spaced.calls);
  EXPECT_EQ(unspaced.calls.size(), 1U);
  // Its own end closes it: nothing after that is a call any more.
  EXPECT_EQ(parse_at_every_cut(content_with_tools(), text + text).calls, spaced.calls);
  OutputParser parser(content_with_tools());
  std::vector<ParserEvent> events;
  parser.feed(text, events);
  EXPECT_TRUE(parser.is_finished());
}

// Pitfall F5: four strings.
TEST(OutputParserPitfalls, ABlockInsideReasoningEndsIt) {  // also 17
  const Parsed parsed = parse_at_every_cut(reasoning_with_tools(), "need it" + block_with("x"));
  EXPECT_EQ(parsed.reasoning, "need it");
  EXPECT_EQ(parsed.content, "");
  EXPECT_EQ(parsed.calls, (Calls{{"f", R"({"s": "x"})"}}));
  EXPECT_EQ(parsed.reason, FinishReason::kToolCalls);
}
TEST(OutputParserPitfalls, ABareEndMarkerInContentVanishes) {
  EXPECT_EQ(parse_at_every_cut({}, "a</think>b").content, "ab");
}
TEST(OutputParserPitfalls, ARepeatedBeginMarkerIsReasoning) {
  const Parsed parsed = parse_at_every_cut(reasoning_with_tools(), "<think>plan</think>Hi");
  EXPECT_EQ(parsed.reasoning, "<think>plan");
  EXPECT_EQ(parsed.content, "Hi");
}
TEST(OutputParserPitfalls, ReasoningContentAndCallFollowEachOther) {  // also 27
  const Parsed parsed = parse_at_every_cut(reasoning_with_tools(), "r</think>c" + block_with("x"));
  EXPECT_EQ(parsed.reasoning, "r");
  EXPECT_EQ(parsed.content, "c");
  EXPECT_EQ(parsed.calls.size(), 1U);
}

// Pitfall F7.
TEST(OutputParserPitfalls, AnyValueSurvivesTheRoundTrip) {
  test::TextSource random(7);
  for (int round = 0; round < 200; ++round) {
    std::string value = random.text(random.below(60));
    value += round % 3 == 0 ? "</｜DSM" : "<";
    const Parsed parsed = parse(content_with_tools(), every_byte(block_with(value)));
    ASSERT_EQ(parsed.calls.size(), 1U);
    const auto arguments = JsonValue::parse(parsed.calls[0].second);
    ASSERT_TRUE(arguments.ok()) << parsed.calls[0].second;
    EXPECT_EQ(arguments.value().find("s")->text(), value);
  }
}

// Pitfalls F9, 15.
TEST(OutputParserPitfalls, ReasoningWithoutAnEndIsReasoning) {
  const Parsed parsed = parse_at_every_cut(reasoning_with_tools(), "I think 42", OutputEnd::kLength);
  EXPECT_EQ(parsed.reasoning, "I think 42");
  EXPECT_EQ(parsed.content, "");
  EXPECT_EQ(parsed.reason, FinishReason::kLength);
}

// Pitfall F13: whatever the model writes, something of it is visible or the finish reason explains.
TEST(OutputParserPitfalls, TextIsNeverAnsweredWithNothing) {
  const std::vector<std::string> parts = {"\n",        "<",       "think>",     "</think>",
                                          "<｜DSML｜", " calls>", "</｜DSML｜", "invoke name=\"f\"",
                                          "x",         " ",       "```json\n",  "{"};
  test::TextSource random(13);
  for (int round = 0; round < 3000; ++round) {
    std::string text = "x";
    for (uint32_t i = random.below(8); i > 0; --i) text += parts[random.below(static_cast<uint32_t>(parts.size()))];
    ParserOptions options = random.below(2) == 0 ? content_with_tools() : reasoning_with_tools();
    options.is_json_mode = random.below(2) == 0;
    const Parsed parsed = parse(options, {text});
    EXPECT_TRUE(!parsed.reasoning.empty() || !parsed.content.empty() || !parsed.calls.empty()) << text;
  }
}

// Pitfall 18.
TEST(OutputParserPitfalls, WhatFollowsTheBlockIsDropped) {
  const Parsed parsed = parse_at_every_cut(content_with_tools(), block_with("x") + "</think>late" + block_with("y"));
  EXPECT_EQ(parsed.calls, (Calls{{"f", R"({"s": "x"})"}}));
  EXPECT_EQ(parsed.content, "");
}

// Pitfall 20: the only control markup in content is what was no call at all.
TEST(OutputParserPitfalls, AHalfClosedBlockShowsNoMarkup) {
  const Parsed parsed = parse_at_every_cut(content_with_tools(), "ok" + block_with("x").substr(0, 120));
  EXPECT_EQ(parsed.content, "ok");
  EXPECT_EQ(parsed.calls.size(), 1U);
  EXPECT_EQ(parsed.reason, FinishReason::kToolCalls);
}

// Pitfall 24.
TEST(OutputParserPitfalls, ALongStringFlowsWhileItIsWritten) {
  OutputParser parser(content_with_tools());
  std::vector<ParserEvent> events;
  const std::string text = block_with("V");
  parser.feed(text.substr(0, text.find('V')), events);
  events.clear();
  for (int i = 0; i < 100; ++i) {
    parser.feed("line\n", events);
    ASSERT_EQ(events.size(), static_cast<size_t>(i + 1)) << "held back";
    EXPECT_EQ(events.back().text, "line\\n");
  }
}

// Pitfall 26.
TEST(OutputParserPitfalls, AForcedCallStartsInsideTheBlock) {
  ParserOptions options = content_with_tools();
  options.start = ParserStart::kToolCalls;
  const std::string text = block_with("x").substr(std::string_view("\n\n<｜DSML｜ calls>\n").size());
  const Parsed parsed = parse_at_every_cut(options, text);
  EXPECT_EQ(parsed.calls, (Calls{{"f", R"({"s": "x"})"}}));
  EXPECT_EQ(parsed.block, block_with("x"));
}

// Pitfall 30.
TEST(OutputParserPitfalls, ACallWithoutParametersHasAnEmptyObject) {
  const Parsed parsed =
      parse_at_every_cut(content_with_tools(),
                         "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"now\">\n\n</｜DSML｜ invoke>\n</｜DSML｜ calls>");
  EXPECT_EQ(parsed.calls, (Calls{{"now", "{}"}}));
  EXPECT_THAT(parsed.call_ended, ElementsAre(true));
}

TEST(OutputParser, ANewlineAfterAFalseStartStays) {
  EXPECT_EQ(parse_at_every_cut(reasoning_with_tools(), "a\n<\n</think>b").reasoning, "a\n<\n");
  EXPECT_EQ(parse_at_every_cut(reasoning_with_tools(), "a\n</thin\n\n</think>b").reasoning, "a\n</thin\n");
  EXPECT_EQ(parse_at_every_cut(reasoning_with_tools(), "a\n\n<</think>b").reasoning, "a\n\n<");
}

TEST(OutputParser, StopsMayOverlapThemselvesAndTheFirstOfATieCounts) {
  EXPECT_EQ(parse_at_every_cut({.stops = {"aab"}}, "xaaaab").content, "xaa");
  EXPECT_EQ(parse_at_every_cut({.stops = {"abab!"}}, "ababab!z").content, "ab");
  const Parsed tie = parse_at_every_cut({.stops = {"", "b", "ab"}}, "xab");
  EXPECT_EQ(tie.stop, 1);
  EXPECT_EQ(tie.content, "xa");
  EXPECT_EQ(parse_at_every_cut({.stops = {"ab", "b"}}, "xab").stop, 0);
  EXPECT_EQ(parse_at_every_cut({.is_json_mode = true, .stops = {"}"}}, "{\"a\": {}}").content, "{\"a\": {");
  EXPECT_EQ(parse_at_every_cut({.is_json_mode = true, .stops = {"{"}}, "{\"a\": {}}").content, "");
}

TEST(OutputParser, IsFinishedOnceNothingCanFollow) {
  std::vector<ParserEvent> events;
  OutputParser stopped({.stops = {"END"}});
  stopped.feed("a EN", events);
  EXPECT_FALSE(stopped.is_finished());
  stopped.feed("D b", events);
  EXPECT_TRUE(stopped.is_finished());
  EXPECT_EQ(stopped.stop_hit(), 0);
  OutputParser closed(reasoning_with_tools());
  EXPECT_EQ(closed.section(), OutputParser::Section::kReasoning);
  closed.feed("r</think>", events);
  EXPECT_EQ(closed.section(), OutputParser::Section::kContent);
  closed.feed("<｜DSML｜ calls>", events);
  EXPECT_EQ(closed.section(), OutputParser::Section::kToolCalls);
  EXPECT_FALSE(closed.is_tool_block_closed());
  closed.feed("</｜DSML｜ calls>", events);
  EXPECT_TRUE(closed.is_finished());
  EXPECT_TRUE(closed.is_tool_block_closed());
}

TEST(OutputParser, KeepsTheExactBytesOfTheBlock) {
  const std::string block = "\n" + block_with("a") + "\n";
  EXPECT_EQ(parse_at_every_cut(content_with_tools(), "Look:" + block).block, block);
  EXPECT_EQ(parse_at_every_cut(content_with_tools(), "no block\n<｜DS").block, "");
  // Newlines that the client does not see are still in the model's context.
  EXPECT_EQ(parse_at_every_cut(content_with_tools(), block).block, block);
  EXPECT_EQ(parse_at_every_cut(content_with_tools(), "\n" + block).block, "\n" + block);
  EXPECT_EQ(parse_at_every_cut(content_with_tools(), "\nLook:" + block).block, block);
  ParserOptions reasoning = content_with_tools();
  reasoning.start = ParserStart::kReasoning;
  EXPECT_EQ(parse_at_every_cut(reasoning, "\n\nplan\n</think>" + block).block, block);
}

TEST(OutputParser, ContinuedTextKeepsItsFirstNewlines) {
  EXPECT_EQ(parse_at_every_cut({.start = ParserStart::kContinuedContent}, "\n\nmore").content, "\n\nmore");
  EXPECT_EQ(parse_at_every_cut({.start = ParserStart::kContinuedReasoning}, "\nmore</think>x").reasoning, "\nmore");
  EXPECT_EQ(parse_at_every_cut({.start = ParserStart::kContinuedContent, .is_json_mode = true}, "1}").content, "1}");
}

// Bytes per second of one kind of text, in feeds of `piece` bytes. The bound on it is far below what is measured: it
// catches time that grows with the square of the text.
double megabytes_per_second(const ParserOptions& options, std::string_view text, size_t piece) {
  const std::clock_t begin = std::clock();  // of the processor: other programs do not count
  OutputParser parser(options);
  std::vector<ParserEvent> events;
  for (size_t at = 0; at < text.size(); at += piece) {
    events.clear();
    parser.feed(text.substr(at, piece), events);
  }
  parser.finish(OutputEnd::kLength, events);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  return static_cast<double>(text.size()) / 1e6 / std::max(seconds, 1e-6);
}

TEST(OutputParser, TakesTimeInProportionToTheText) {
  const auto repeat = [](std::string_view part, size_t bytes) {
    std::string text;
    while (text.size() < bytes) text += part;
    return text;
  };
  const std::string prose = repeat("The quick brown fox, 12 < 13, jumps\nover the lazy dog. ", 10'000'000);
  const std::string block = block_with("V");
  const std::string value = block.substr(0, block.find('V')) + repeat("\"quoted\" </d> line\n", 10'000'000);
  const std::string newlines(4'000'000, '\n');
  ParserOptions stops = content_with_tools();
  stops.stops = {std::string(100'000, '\n') + "x", repeat("ab", 1000) + "c"};
  const struct {
    std::string_view what;
    ParserOptions options;
    const std::string& text;
    size_t piece;
  } runs[] = {{"prose", content_with_tools(), prose, 1 << 16},
              {"prose, 4 bytes", content_with_tools(), prose, 4},
              {"string value", content_with_tools(), value, 64},
              {"newlines, 1 byte", reasoning_with_tools(), newlines, 1},
              {"long stops", stops, newlines, 16}};
  for (const auto& run : runs) {
    const double speed = megabytes_per_second(run.options, run.text, run.piece);
    RecordProperty(std::string(run.what), std::to_string(speed));
    std::printf("%.*s: %.0f MB/s\n", static_cast<int>(run.what.size()), run.what.data(), speed);
    EXPECT_GT(speed, 1.0) << run.what;
  }
}

}  // namespace
}  // namespace ps::text
