// pagestate parse: text that the model wrote, on standard input, as the choice of a chat completion.
#include <fmt/format.h>

#include <array>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/commands/commands.h"
#include "base/json.h"
#include "base/macros.h"
#include "text/output_parser.h"
#include "text/utf8.h"

namespace ps::apps {
namespace {

struct Options {
  std::string start = "content";
  std::string end = "stop";
  text::ParserOptions parser;
};

struct Message {
  std::string reasoning;
  std::string content;
  std::vector<std::pair<std::string, std::string>> calls;  // name, arguments
};

Result<text::ParserStart> start_of(const std::string& name) {
  using text::ParserStart;
  for (const ParserStart start : {ParserStart::kReasoning, ParserStart::kContent, ParserStart::kToolCalls,
                                  ParserStart::kContinuedReasoning, ParserStart::kContinuedContent}) {
    if (name == text::parser_start_name(start)) return start;
  }
  return Status::invalid("--start " + name +
                         ": legal are reasoning, content, tool_calls, continued_reasoning and continued_content");
}

void take(std::vector<text::ParserEvent>& events, Message& message) {
  using Kind = text::ParserEvent::Kind;
  for (text::ParserEvent& event : events) {
    switch (event.kind) {
      case Kind::kReasoning: message.reasoning += event.text; break;
      case Kind::kContent: message.content += event.text; break;
      case Kind::kCallStart: message.calls.emplace_back(std::move(event.text), ""); break;
      case Kind::kArguments: message.calls.back().second += event.text; break;
      case Kind::kCallEnd:
      case Kind::kStop: break;
    }
  }
  events.clear();
}

std::string choice(const Message& message, std::string_view finish_reason) {
  JsonWriter json;
  json.begin_object().key("message").begin_object();
  json.key("role").string("assistant").key("content").string(text::lossy_utf8(message.content));
  if (!message.reasoning.empty()) json.key("reasoning_content").string(text::lossy_utf8(message.reasoning));
  if (!message.calls.empty()) {
    json.key("tool_calls").begin_array();
    for (const auto& [name, arguments] : message.calls) {
      json.begin_object().key("type").string("function").key("function").begin_object();
      json.key("name").string(text::lossy_utf8(name)).key("arguments").string(text::lossy_utf8(arguments));
      json.end_object().end_object();
    }
    json.end_array();
  }
  json.end_object().key("finish_reason").string(finish_reason).end_object();
  return std::move(json).text();
}

Status run(Options options) {
  PS_TRY(options.parser.start, start_of(options.start));
  if (options.end != "stop" && options.end != "length") {
    return Status::invalid("--end " + options.end + ": legal are stop and length");
  }
  if (options.parser.start == text::ParserStart::kToolCalls) options.parser.parses_tool_calls = true;
  text::OutputParser parser(std::move(options.parser));
  Message message;
  std::vector<text::ParserEvent> events;
  std::array<char, 1 << 16> block;
  while (std::cin.read(block.data(), block.size()) || std::cin.gcount() > 0) {
    parser.feed(std::string_view(block.data(), static_cast<size_t>(std::cin.gcount())), events);
    take(events, message);
  }
  if (std::cin.bad()) return Status::unavailable("cannot read standard input");
  const text::FinishReason reason =
      parser.finish(options.end == "stop" ? text::OutputEnd::kStop : text::OutputEnd::kLength, events);
  take(events, message);
  std::cout << choice(message, text::finish_reason_name(reason)) << '\n' << std::flush;
  return std::cout ? Status() : Status::unavailable("cannot write to standard output");
}

}  // namespace

void add_parse(CLI::App& program, Work& chosen) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = program.add_subcommand("parse", "Text of the model (standard input) to a message in JSON");
  command
      ->add_option("--start", options->start,
                   "Where the prompt left off: reasoning, content, tool_calls, continued_reasoning, continued_content")
      ->capture_default_str();
  command->add_flag("--tools", options->parser.parses_tool_calls, "Read calls; otherwise their markup is text");
  command->add_flag("--json-mode", options->parser.is_json_mode, "Remove code fences and prose around JSON");
  command->add_option("--stop", options->parser.stops, "A string that ends the answer; may be repeated");
  command->add_option("--end", options->end, "How generation ended: stop or length")->capture_default_str();
  command->callback([&chosen, options] { chosen = [options] { return run(*options); }; });
}

}  // namespace ps::apps
