// Speed of the tokenizer: encoding by kind of text in bytes per second, loading, and the cost of the Engram classes.
//   tokenizer_bench <tokenizer.json> [benchmark options]
// Degenerate texts (one letter repeated and the like) are there to show that no input is slow.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <string>

#include "base/mapped_file.h"
#include "text/pretokenizer.h"
#include "text/token_map.h"
#include "text/tokenizer.h"

namespace {

using ps::text::Tokenizer;

constexpr size_t kBytes = 1 << 20;

// Words drawn with a skewed frequency, so that pieces repeat about as they do in prose.
std::string draw(std::initializer_list<const char*> words, const char* separator) {
  const std::vector<std::string> list(words.begin(), words.end());
  std::string text;
  uint64_t state = 12345;
  while (text.size() < kBytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const double uniform = static_cast<double>(state >> 11) * 0x1p-53;
    text += list[static_cast<size_t>(uniform * uniform * static_cast<double>(list.size()))];
    text += separator;
  }
  return text;
}

std::string english() {
  return draw({"the",         "of",        "and",          "to",
               "a",           "in",        "that",         "is",
               "was",         "he",        "for",          "it",
               "with",        "as",        "his",          "on",
               "be",          "at",        "by",           "I'm",
               "this",        "had",       "not,",         "are",
               "but",         "from",      "or",           "have",
               "an",          "they",      "which",        "one.",
               "you",         "were",      "her",          "all",
               "she",         "there",     "would",        "their",
               "we",          "him,",      "been",         "has",
               "when",        "who",       "will",         "more",
               "no",          "if",        "out",          "so",
               "said",        "what",      "up",           "its",
               "about",       "into",      "than",         "them",
               "can",         "only",      "other",        "memory",
               "question",    "answer.",   "2024",         "children",
               "history",     "between",   "river",        "shoulder",
               "weather",     "scheduler", "kaleidoscope", "unforgettable",
               "Bartholomew", "(see",      "below)",       "re-read",
               "x86-64"},
              " ");
}

std::string chinese() {
  return draw({"我们", "的", "是", "在", "中文", "测试", "，", "世界", "。", "可以", "模型", "一个", "运行", "问题",
               "回答", "内存"},
              "");
}

std::string code() {
  return draw({"for (int i = 0; i < count; ++i) {\n", "  return value_[index];\n", "}\n\n",
               "  if (status.ok()) continue;\n", "#include <vector>\n", "const std::string& name = token.content;\n",
               "    total += x * 0.5f;\n", "// A comment that explains why.\n", "def main(self, *args):\n"},
              "");
}

std::string repeated(const char* unit) {
  std::string text;
  while (text.size() < kBytes) text += unit;
  return text;
}

void encode(benchmark::State& state, const Tokenizer& tokenizer, const std::string& text) {
  size_t tokens = 0;
  for (auto _ : state) {
    const auto ids = tokenizer.encode(text);
    tokens = ids.size();
    benchmark::DoNotOptimize(ids.data());
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
  state.counters["bytes_per_token"] = static_cast<double>(text.size()) / static_cast<double>(tokens);
}

void split(benchmark::State& state, const std::string& text) {
  for (auto _ : state) {
    size_t pieces = 0;
    for (size_t begin = 0; begin < text.size(); ++pieces) begin = ps::text::piece_end(text, begin);
    benchmark::DoNotOptimize(pieces);
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
}

void register_texts(const Tokenizer& tokenizer) {
  const std::pair<const char*, std::string> texts[] = {{"english", english()},
                                                       {"chinese", chinese()},
                                                       {"code", code()},
                                                       {"letter", repeated("a")},
                                                       {"blank", repeated(" ")},
                                                       {"digit", repeated("7")},
                                                       {"mark", repeated("\u0301")},
                                                       {"exclamation", repeated("!")},
                                                       {"newline", repeated("\n")},
                                                       {"han", repeated("漢")},
                                                       {"emoji", repeated("\U0001F600")},
                                                       {"invalid", repeated("\xFF")},
                                                       {"cut_control", repeated("<｜place▁holder▁no▁")}};
  for (const auto& [name, text] : texts) {
    benchmark::RegisterBenchmark(("encode/" + std::string(name)).c_str(), [&tokenizer,
                                                                           text = text](benchmark::State& state) {
      encode(state, tokenizer, text);
    })->Unit(benchmark::kMillisecond);
  }
  for (size_t i = 0; i < 3; ++i) {
    benchmark::RegisterBenchmark(("split/" + std::string(texts[i].first)).c_str(), [text = texts[i].second](
                                                                                       benchmark::State& state) {
      split(state, text);
    })->Unit(benchmark::kMillisecond);
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s <tokenizer.json> [benchmark options]\n", argv[0]);
    return 2;
  }
  const auto json = ps::read_file(argv[1], 64 << 20);
  const auto tokenizer = Tokenizer::load(argv[1]);
  if (!json.ok() || !tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", tokenizer.status().to_string().c_str());
    return 1;
  }
  register_texts(*tokenizer.value());
  benchmark::RegisterBenchmark("load", [&json](benchmark::State& state) {
    for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::parse(json.value()));
  })->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark("engram_token_map", [&tokenizer](benchmark::State& state) {
    for (auto _ : state) benchmark::DoNotOptimize(ps::text::engram_token_map(*tokenizer.value()));
  })->Unit(benchmark::kMillisecond);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
