#include "text/synthetic_tokenizer.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/json.h"
#include "text/byte_alphabet.h"
#include "text/pretokenizer.h"
#include "text/utf8.h"

namespace ps::text {
namespace {

constexpr std::string_view kSample =
    "Hello, world! Hello there, and hello again. The quick brown fox jumps over the lazy dog. "
    "The runtime reads the files of the checkpoint, plans the memory that it needs, and answers the first request as "
    "fast as the second. When the user asks a question, the assistant thinks about it before it answers. "
    "What is the weather like in Paris today? The weather in Paris is sunny, with a light wind from the north.\n\n"
    "A tool is a function with a name, a description and parameters. The assistant calls the function get_weather "
    "with the parameter location, and the result of the call comes back as text. Then the assistant reads the result "
    "and writes the answer for the user.\n\n"
    "for (int i = 0; i < count; ++i) {\n    total += values[i];\n    return total;\n}\n\n"
    "def main():\n    print(\"Hello, world!\")\n    return value\n\n"
    "{\"name\": \"get_weather\", \"arguments\": {\"location\": \"Paris\", \"unit\": \"celsius\"}}\n\n"
    "One page holds the history of many tokens. Each request has one state of fixed size, and the pages that it fills "
    "can be shared with other requests that begin with the same text. A request that is cancelled gives its pages "
    "back. If the pool runs out of pages, the scheduler takes them from the request that came last, and that request "
    "starts again from the beginning when there is room for it. Nothing that another request does can change the "
    "answer: the same question gives the same tokens every time, alone or together with many others.\n\n"
    "In the morning the children walked to the river to look at the boats. There were three large ships with white "
    "sails, and a small one that carried apples, bread and water to the other side. The oldest of the children said "
    "that she would like to be a captain, and that she would sail around the world and write down everything she "
    "saw. Her brother thought about this for a long time. Then he said that he would rather stay here and wait for "
    "her letters, because someone has to read what is written.\n\n"
    "Counting is simple: one, two, three, four, five, six, seven, eight, nine, ten. The numbers 100, 200, 300 and "
    "1000 come after that. Please explain how this works, step by step, and think carefully about each step before "
    "you continue with the next step.\n";

struct NamedToken {
  std::string_view content;
  bool is_special;
  bool is_normalized;
};

constexpr NamedToken kSentenceTokens[] = {
    {"<｜begin▁of▁sentence｜>", true, false}, {"<｜end▁of▁sentence｜>", true, false}, {"<｜▁pad▁｜>", true, false}};

constexpr NamedToken kNamedTokens[] = {
    {"<｜System｜>", false, true},
    {"<｜User｜>", false, true},
    {"<｜Assistant｜>", false, true},
    {"<|EOT|>", true, true},
    {"<think>", false, false},
    {"</think>", false, false},
    {"｜DSML｜", false, false},
    {"<｜latest_reminder｜>", false, false},
    {"<｜action｜>", false, false},
    {"<｜query｜>", false, false},
    {"<｜authority｜>", false, false},
    {"<｜domain｜>", false, false},
    {"<｜task｜>", false, false},
    {"<｜political｜>", false, false},
    {"<｜entity｜>", false, false},
    {"<｜title｜>", false, false},
    {"<｜safety｜>", false, false},
    {"<｜answer｜>", false, false},
    {"<｜search｜>", false, false},
    {"<｜read_url｜>", false, false},
    {"<｜rl_image_pad｜>", false, false},
    {"<｜rl_image_start｜>", false, false},
    {"<｜deepseek_image｜>", false, false},
    {"<|place_holder_mm_span_0442|>", true, false},
};
constexpr int kFixedTokens = static_cast<int>(std::size(kSentenceTokens) + 256 + std::size(kNamedTokens));
static_assert(kFixedTokens <= kSmallestSyntheticVocab);

// Byte-pair training on the sample: the most frequent pair of neighbours becomes a token, the smaller ids on ties.
class Trainer {
 public:
  Trainer() {
    for (const NamedToken& token : kSentenceTokens) add(std::string(token.content));
    for (int byte = 0; byte < 256; ++byte) add(spell_bytes(std::string(1, static_cast<char>(byte))));
    std::map<std::string_view, int> counts;
    for (size_t begin = 0; begin < kSample.size();) {
      const size_t end = piece_end(kSample, begin);
      ++counts[kSample.substr(begin, end - begin)];
      begin = end;
    }
    for (const auto& [piece, count] : counts) {
      Word word{count, {}};
      for (const char byte : piece) word.ids.push_back(id_of_.at(spell_bytes(std::string(1, byte))));
      words_.push_back(std::move(word));
    }
  }

  // Adds up to `limit` tokens; fewer when no pair occurs twice any more.
  void learn(int limit) {
    const size_t target = vocabulary_.size() + static_cast<size_t>(limit);
    while (vocabulary_.size() < target) {
      const Pair pair = most_frequent_pair();
      if (pair.first < 0) return;
      const std::string& left = vocabulary_[static_cast<size_t>(pair.first)];
      const std::string& right = vocabulary_[static_cast<size_t>(pair.second)];
      merges_.push_back(left + " " + right);
      apply(pair, add(left + right));
    }
  }

  [[nodiscard]] const std::vector<std::string>& vocabulary() const noexcept { return vocabulary_; }
  [[nodiscard]] const std::vector<std::string>& merges() const noexcept { return merges_; }

 private:
  using Pair = std::pair<int, int>;
  struct Word {
    int count;
    std::vector<int> ids;
  };

  // The id of a spelling, which is new unless another pair already made the same one.
  int add(const std::string& spelling) {
    const auto [entry, is_new] = id_of_.emplace(spelling, static_cast<int>(vocabulary_.size()));
    if (is_new) vocabulary_.push_back(spelling);
    return entry->second;
  }

  [[nodiscard]] Pair most_frequent_pair() const {
    std::map<Pair, int> counts;
    for (const Word& word : words_) {
      for (size_t i = 0; i + 1 < word.ids.size(); ++i) counts[{word.ids[i], word.ids[i + 1]}] += word.count;
    }
    Pair best{-1, -1};
    int best_count = 1;
    for (const auto& [pair, count] : counts) {
      if (count <= best_count) continue;
      best = pair;
      best_count = count;
    }
    return best;
  }

  void apply(const Pair& pair, int result) {
    for (Word& word : words_) {
      std::vector<int> merged;
      for (size_t i = 0; i < word.ids.size(); ++i) {
        const bool is_pair = i + 1 < word.ids.size() && word.ids[i] == pair.first && word.ids[i + 1] == pair.second;
        merged.push_back(is_pair ? result : word.ids[i]);
        if (is_pair) ++i;
      }
      word.ids = std::move(merged);
    }
  }

  std::vector<std::string> vocabulary_;
  std::vector<std::string> merges_;
  std::unordered_map<std::string, int> id_of_;
  std::vector<Word> words_;
};

void write_added_token(JsonWriter& json, int id, const NamedToken& token) {
  json.begin_object().key("id").integer(id).key("content").string(token.content);
  for (const char* flag : {"single_word", "lstrip", "rstrip"}) json.key(flag).boolean(false);
  json.key("normalized").boolean(token.is_normalized).key("special").boolean(token.is_special).end_object();
}

void write_added_tokens(JsonWriter& json, int first_id, int vocab_size) {
  json.key("added_tokens").begin_array();
  int id = 0;
  for (const NamedToken& token : kSentenceTokens) write_added_token(json, id++, token);
  id = first_id;
  for (const NamedToken& token : kNamedTokens) write_added_token(json, id++, token);
  for (int number = 0; id < vocab_size; ++number) {
    const std::string content = "<｜place▁holder▁no▁" + std::to_string(number) + "｜>";
    write_added_token(json, id++, {content, true, false});
  }
  json.end_array();
}

void write_byte_level(JsonWriter& json, bool add_prefix_space, bool trim_offsets, bool use_regex) {
  json.begin_object().key("type").string("ByteLevel").key("add_prefix_space").boolean(add_prefix_space);
  json.key("trim_offsets").boolean(trim_offsets).key("use_regex").boolean(use_regex).end_object();
}

void write_pipeline(JsonWriter& json) {
  json.key("normalizer").begin_object().key("type").string("Sequence").key("normalizers").begin_array().end_array();
  json.end_object();
  json.key("pre_tokenizer").begin_object().key("type").string("Sequence").key("pretokenizers").begin_array();
  for (const std::string_view pattern : kSplitPatterns) {
    json.begin_object().key("type").string("Split");
    json.key("pattern").begin_object().key("Regex").string(pattern).end_object();
    json.key("behavior").string("Isolated").key("invert").boolean(false).end_object();
  }
  write_byte_level(json, false, true, false);
  json.end_array().end_object().key("post_processor");
  write_byte_level(json, true, false, true);
  json.key("decoder");
  write_byte_level(json, true, true, true);
}

void write_model(JsonWriter& json, const Trainer& trainer) {
  json.key("model").begin_object().key("type").string("BPE");
  for (const char* name : {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"})
    json.key(name).null();
  json.key("fuse_unk").boolean(false).key("byte_fallback").boolean(false);
  json.key("vocab").begin_object();
  int id = 0;
  for (const std::string& spelling : trainer.vocabulary()) json.key(spelling).integer(id++);
  json.end_object().key("merges").begin_array();
  for (const std::string& merge : trainer.merges()) json.string(merge);
  json.end_array().end_object();
}

}  // namespace

Result<std::string> make_synthetic_tokenizer(int vocab_size) {
  if (vocab_size < kSmallestSyntheticVocab || vocab_size > kLargestSyntheticVocab) {
    return Status::invalid("synthetic tokenizer of " + std::to_string(vocab_size) + " tokens: legal are " +
                           std::to_string(kSmallestSyntheticVocab) + " to " + std::to_string(kLargestSyntheticVocab));
  }
  Trainer trainer;
  trainer.learn((vocab_size - kFixedTokens) * 7 / 8);  // the rest stays placeholders, as in the released file
  JsonWriter json;
  json.begin_object().key("version").string("1.0").key("truncation").null().key("padding").null();
  write_added_tokens(json, static_cast<int>(trainer.vocabulary().size()), vocab_size);
  write_pipeline(json);
  write_model(json, trainer);
  json.end_object();
  return std::move(json).text();
}

}  // namespace ps::text
