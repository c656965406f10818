// pagestate prompt: what the model reads for the body of a chat-completions request, byte for byte.
#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>

#include "apps/commands/commands.h"
#include "apps/tokenizer_source.h"
#include "base/json.h"
#include "base/macros.h"
#include "base/mapped_file.h"
#include "text/chat_completions_request.h"
#include "text/prompt_encoder.h"
#include "text/servable.h"

namespace ps::apps {
namespace {

struct Options {
  std::string request;
  std::string encoding = "recipe";
  bool prints_ids = false;
  TokenizerSource source;
};

Result<std::string> read_request(const std::string& path) {
  if (path != "-") return read_file(path, text::kChatBodyLimits.bytes);
  std::string body((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>());
  if (std::cin.bad()) return Status::unavailable("cannot read standard input");
  return body;
}

Status write(std::string_view output) {
  const size_t written = std::fwrite(output.data(), 1, output.size(), stdout);
  const bool is_flushed = std::fflush(stdout) == 0;
  return written == output.size() && is_flushed ? Status() : Status::unavailable("cannot write to standard output");
}

Result<text::Prompt> encode(const std::string& body, text::ChatEncoding encoding) {
  PS_TRY(const text::ChatCompletionsRequest request,
         text::parse_chat_completions(body, {.most_answers = text::kMostAnswers}));
  PS_TRY(text::Prompt prompt, text::encode_prompt(request.chat, {.encoding = encoding}));
  PS_RETURN_IF_ERROR(text::check_servable(request.chat, prompt));
  return prompt;
}

Status run(const Options& options) {
  if (options.encoding != "recipe" && options.encoding != "model") {
    return Status::invalid("--chat-encoding " + options.encoding + ": legal are recipe and model");
  }
  std::shared_ptr<const text::Tokenizer> tokenizer;
  if (options.prints_ids) {
    PS_TRY(tokenizer, options.source.load());
  }
  PS_TRY(const std::string body, read_request(options.request));
  const auto prompt =
      encode(body, options.encoding == "recipe" ? text::ChatEncoding::kRecipe : text::ChatEncoding::kModel);
  if (!prompt.ok()) {
    PS_RETURN_IF_ERROR(write(text::openai_error_body(prompt.status())));
    return Status::unsupported("the request is refused; the answer's body is on standard output");
  }
  if (!options.prints_ids) return write(prompt.value().text);
  PS_TRY(const std::vector<text::TokenId> ids, text::tokenize_prompt(prompt.value(), *tokenizer));
  JsonWriter out;
  out.begin_array();
  for (const text::TokenId id : ids) out.integer(id);
  return write(std::move(out.end_array()).text() + "\n");
}

}  // namespace

void add_prompt(CLI::App& program, Work& chosen) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = program.add_subcommand(
      "prompt", "The prompt of a chat-completions request, or the body of the error (exit code 1)");
  command->add_option("--request", options->request, "File with the JSON body; - reads standard input")->required();
  command->add_option("--chat-encoding", options->encoding, "recipe (the hosted API's) or model (the repository's)")
      ->capture_default_str();
  command->add_flag("--ids", options->prints_ids, "Print token ids; needs --tokenizer or --model");
  options->source.add_options(*command);
  command->callback([&chosen, options] { chosen = [options] { return run(*options); }; });
}

}  // namespace ps::apps
