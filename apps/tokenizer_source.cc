#include "apps/tokenizer_source.h"

#include <filesystem>

namespace ps::apps {

void TokenizerSource::add_options(CLI::App& command) {
  auto* file = command.add_option("--tokenizer", tokenizer, "A tokenizer.json");
  auto* folder = command.add_option("--model", model, "A checkpoint folder, whose tokenizer.json is read");
  file->excludes(folder);
}

Result<std::shared_ptr<const text::Tokenizer>> TokenizerSource::load() const {
  if (tokenizer.empty() && model.empty()) {
    return Status::invalid("no tokenizer given; legal: --tokenizer PATH or --model DIR");
  }
  if (!tokenizer.empty()) return text::Tokenizer::load(tokenizer);
  return text::Tokenizer::load(std::filesystem::path(model) / "tokenizer.json");
}

}  // namespace ps::apps
