#include "text/tokenizer.h"

#include <time.h>

#include "text/synthetic_tokenizer.h"
#include "text/test_data.h"

namespace ps::text {
namespace {

using test::released_tokenizer;
using Ids = std::vector<TokenId>;

std::vector<TokenId> ids_of(const JsonValue& array) {
  std::vector<TokenId> ids;
  for (const JsonValue& item : array.items()) ids.push_back(static_cast<TokenId>(item.integer().value()));
  return ids;
}

// The released tokenizer with another spelling of the image placeholder, as some files carry it.
std::shared_ptr<const Tokenizer> with_short_image_token() {
  std::string json = test::released_json();
  constexpr std::string_view kReleased = "<｜deepseek_image｜>";
  json.replace(json.find(kReleased), kReleased.size(), "<｜image｜>");
  return Tokenizer::parse(json).value();
}

// Pitfall 32 of the prompt: the file as it is.
TEST(Tokenizer, GivesTheReleasedIds) {
  const auto variant = with_short_image_token();
  const JsonValue file = test::read_json("tokenizer_cases.json");
  ASSERT_NE(file.find("cases"), nullptr);
  for (const JsonValue& entry : file.find("cases")->items()) {
    const std::string& text = entry.find("text")->text();
    const auto ids = ids_of(*entry.find("ids"));
    const Tokenizer& tokenizer = entry.find("variant") != nullptr ? *variant : released_tokenizer();
    EXPECT_EQ(tokenizer.encode(text), ids) << testing::PrintToString(text);
    EXPECT_EQ(tokenizer.decode(ids), text);
  }
  EXPECT_EQ(file.find("cases")->items().size(), 123u);
}

TEST(Tokenizer, CarriesTheReleasedTokenTable) {
  const Tokenizer& tokenizer = released_tokenizer();
  EXPECT_EQ(tokenizer.vocab_size(), 129280);
  EXPECT_EQ(tokenizer.bos(), 0);
  EXPECT_EQ(tokenizer.eos(), 1);
  const JsonValue file = test::read_json("special_tokens_v41.json");
  const auto& rows = file.find("added_tokens")->items();
  ASSERT_EQ(tokenizer.added_tokens().size(), rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const AddedToken& token = tokenizer.added_tokens()[i];
    EXPECT_EQ(token.id, rows[i].find("id")->integer().value());
    EXPECT_EQ(token.content, rows[i].find("content")->text());
    const JsonValue* special = rows[i].find("special");
    const JsonValue* normalized = rows[i].find("normalized");
    if (special->is_bool()) {
      EXPECT_EQ(token.is_special, special->boolean()) << token.content;
    }
    if (normalized->is_bool()) {
      EXPECT_EQ(token.is_normalized, normalized->boolean()) << token.content;
    }
    EXPECT_EQ(tokenizer.find_added(token.content), token.id);
    EXPECT_EQ(tokenizer.encode(token.content), Ids{token.id}) << token.content;
    EXPECT_EQ(tokenizer.decode(Ids{token.id}), token.content);
    EXPECT_EQ(tokenizer.token_spelling(token.id), token.content);
    EXPECT_TRUE(tokenizer.is_added(token.id));
  }
  EXPECT_EQ(tokenizer.find_added("Hello"), std::nullopt);
  EXPECT_FALSE(tokenizer.is_special(tokenizer.find_added("<｜User｜>").value()));
  EXPECT_TRUE(tokenizer.is_special(tokenizer.find_added("<|EOT|>").value()));
}

// Pitfall 34 of the prompt.
TEST(Tokenizer, MasksTheMultimodalSlots) {
  Ids expected;
  for (TokenId id = 128847; id <= 129270; ++id) expected.push_back(id);
  expected.push_back(129279);
  const auto masked = released_tokenizer().never_sampled();
  EXPECT_EQ(Ids(masked.begin(), masked.end()), expected);
}

TEST(Tokenizer, SpellsAndUnspellsTokens) {
  const Tokenizer& tokenizer = released_tokenizer();
  const Ids hello = tokenizer.encode(" Hello");
  ASSERT_EQ(hello.size(), 1u);
  EXPECT_EQ(tokenizer.token_bytes(hello[0]), " Hello");
  EXPECT_EQ(tokenizer.token_spelling(hello[0]), "ĠHello");
  EXPECT_EQ(tokenizer.token_bytes(-1), "");
  EXPECT_EQ(tokenizer.token_bytes(129280), "");
  EXPECT_EQ(tokenizer.decode(Ids{19923, 200000, -7}), "Hello");
  EXPECT_FALSE(tokenizer.is_special(200000));
}

TEST(Tokenizer, AddedTokensAreLeftmostLongestAndEatNoBlanks) {
  const Tokenizer& tokenizer = released_tokenizer();
  const TokenId user = tokenizer.find_added("<｜User｜>").value();
  const Ids blank = tokenizer.encode(" ");
  EXPECT_EQ(tokenizer.encode(" <｜User｜> "), (Ids{blank[0], user, blank[0]}));
  EXPECT_EQ(tokenizer.encode("<｜place▁holder▁no▁1｜><｜place▁holder▁no▁12｜>"), (Ids{128001, 128012}));
  EXPECT_EQ(tokenizer.encode("<<think>"), (Ids{30, 128821}));
  EXPECT_EQ(tokenizer.encode("</｜DSML｜"), (Ids{1718, 128825}));
  EXPECT_EQ(tokenizer.encode("<｜User"), tokenizer.encode("<｜User", AddedTokens::kAsText));
  EXPECT_EQ(tokenizer.encode("<think"), tokenizer.encode("<think", AddedTokens::kAsText));
}

TEST(Tokenizer, RawTokensAreCutBeforeNormalizedOnes) {
  auto json = make_synthetic_tokenizer(320);
  ASSERT_TRUE(json.ok());
  // "abXcd" (normalized) and "Xc" (raw): the raw one wins although the other starts further left and is longer.
  std::string text = json.value();
  const auto replace = [&text](const std::string& from, const std::string& to) {
    const size_t at = text.find("\"" + from + "\"");
    ASSERT_NE(at, std::string::npos);
    text.replace(at, from.size() + 2, "\"" + to + "\"");
  };
  replace("<｜Assistant｜>", "abXcd");
  replace("<｜User｜>", "ab");
  replace("<think>", "Xc");
  auto parsed = Tokenizer::parse(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  const Tokenizer& tokenizer = *parsed.value();
  const TokenId raw = tokenizer.find_added("Xc").value();
  const TokenId shorter = tokenizer.find_added("ab").value();
  EXPECT_EQ(tokenizer.encode("abXcd"), (Ids{shorter, raw, tokenizer.encode("d")[0]}));
  EXPECT_EQ(tokenizer.encode("abXc", AddedTokens::kAsText).size(), 4u);
}

TEST(Tokenizer, TextOfAUserCannotMakeControlTokens) {
  const Tokenizer& tokenizer = released_tokenizer();
  for (const AddedToken& token : tokenizer.added_tokens()) {
    const Ids ids = tokenizer.encode(token.content, AddedTokens::kAsText);
    for (const TokenId id : ids) EXPECT_FALSE(tokenizer.is_added(id)) << token.content;
    EXPECT_EQ(tokenizer.decode(ids), token.content);
  }
}

TEST(Tokenizer, DecodeSkipsOnlyWhatIsFlaggedSpecial) {
  const Tokenizer& tokenizer = released_tokenizer();
  const Ids ids = tokenizer.encode("<｜begin▁of▁sentence｜><｜User｜>Hi<think></think><|EOT|><｜end▁of▁sentence｜>");
  EXPECT_EQ(tokenizer.decode(ids, true), "<｜User｜>Hi<think></think>");
}

TEST(Tokenizer, EveryValidTextComesBack) {
  test::TextSource source(3);
  for (int round = 0; round < 20000; ++round) {
    std::string text = source.text(source.below(40));
    if (source.below(4) == 0) text.insert(0, "<think>｜DSML｜ calls>");
    ASSERT_EQ(released_tokenizer().decode(released_tokenizer().encode(text)), text) << testing::PrintToString(text);
  }
}

TEST(Tokenizer, BytesOutsideUtf8ComeBackAsBytes) {
  const Tokenizer& tokenizer = released_tokenizer();
  EXPECT_EQ(tokenizer.encode("a\xFFz").size(), 3u);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("a\xFFz")), "a\uFFFDz");
  test::TextSource source(11);
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (uint32_t i = source.below(24); i > 0; --i) text += static_cast<char>(source.below(256));
    ASSERT_EQ(tokenizer.decode_bytes(tokenizer.encode(text)), text);
  }
}

// Processor time of this thread: a busy machine does not count.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Any input, also the degenerate one, costs about the same per byte.
TEST(Tokenizer, TimeIsNearlyLinear) {
#ifdef PAGESTATE_DCHECKS
  constexpr double kSlowBuild = 40;
#else
  constexpr double kSlowBuild = 1;
#endif
  const auto seconds = [](const std::string& text) {
    const double start = thread_seconds();
    const Ids ids = released_tokenizer().encode(text);
    const double time = thread_seconds() - start;
    EXPECT_EQ(released_tokenizer().decode_bytes(ids).size(), text.size());
    return time;
  };
  const std::string_view units[] = {"a",          "ab",     " ",    "\n",   " \n", "0",
                                    "!",          "\u0301", "漢",   "中文", "・",  "अ",
                                    "\U0001F600", "\x01",   "\xFF", "<",    "｜",  "<｜place▁holder▁no▁"};
  for (const std::string_view unit : units) {
    std::string text;
    while (text.size() < (1 << 18)) text += unit;
    const double quarter = seconds(text);
    const std::string whole = text + text + text + text;
    const double full = seconds(whole);
    EXPECT_LT(full, 2.0 * kSlowBuild) << testing::PrintToString(unit);
    EXPECT_TRUE(full < 8 * quarter || full < 0.2 * kSlowBuild)
        << testing::PrintToString(unit) << ": " << quarter << " s, " << full << " s";
  }
}

TEST(Tokenizer, LoadNamesTheFile) {
  const auto missing = Tokenizer::load(test::data_path("no_such_tokenizer.json"));
  EXPECT_EQ(missing.status().code(), Code::kNotFound);
  const auto other = Tokenizer::load(test::data_path("tokenizer_cases.json"));
  EXPECT_THAT(other.status().to_string(), testing::HasSubstr("tokenizer_cases.json"));
}

}  // namespace
}  // namespace ps::text
