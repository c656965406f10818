// Where a command finds its tokenizer: options --tokenizer and --model, one of which is needed. Main thread only.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "base/status.h"
#include "text/tokenizer.h"

namespace ps::apps {

struct TokenizerSource {
  std::string tokenizer;  // path of a tokenizer.json
  std::string model;      // folder that holds one

  // The options keep pointers into this object.
  void add_options(CLI::App& command);
  [[nodiscard]] Result<std::shared_ptr<const text::Tokenizer>> load() const;
};

}  // namespace ps::apps
