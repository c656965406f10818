#include "text/synthetic_tokenizer.h"

#include "text/test_data.h"

namespace ps::text {
namespace {

TEST(SyntheticTokenizer, HasExactlyTheSizeAskedFor) {
  for (const int size : {288, 320, 512, 1024, 2048, 4096, 129280}) {
    const auto json = make_synthetic_tokenizer(size);
    ASSERT_TRUE(json.ok());
    const auto tokenizer = Tokenizer::parse(json.value());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
    EXPECT_EQ(tokenizer.value()->vocab_size(), size);
    EXPECT_EQ(tokenizer.value()->bos(), 0);
    EXPECT_EQ(tokenizer.value()->eos(), 1);
    EXPECT_EQ(tokenizer.value()->find_added("<｜▁pad▁｜>"), 2);
  }
}

TEST(SyntheticTokenizer, IsDeterministic) {
  EXPECT_EQ(make_synthetic_tokenizer(512).value(), make_synthetic_tokenizer(512).value());
}

TEST(SyntheticTokenizer, LearnsWordsAndKeepsEveryText) {
  const auto tokenizer = Tokenizer::parse(make_synthetic_tokenizer(512).value()).value();
  const auto ids = tokenizer->encode("Hello");
  EXPECT_LE(ids.size(), 3u);
  EXPECT_LT(tokenizer->encode("What is the weather like in Paris?").size(), 20u);
  test::TextSource source(37);
  for (int round = 0; round < 3000; ++round) {
    const std::string text = source.text(30);
    ASSERT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  }
}

TEST(SyntheticTokenizer, FlagsTokensAsTheReleaseDoes) {
  const auto tokenizer = Tokenizer::parse(make_synthetic_tokenizer(512).value()).value();
  size_t shared = 0;
  for (const AddedToken& token : tokenizer->added_tokens()) {
    const auto released_id = test::released_tokenizer().find_added(token.content);
    ASSERT_TRUE(released_id.has_value()) << token.content;
    for (const AddedToken& released : test::released_tokenizer().added_tokens()) {
      if (released.id != *released_id) continue;
      ++shared;
      EXPECT_EQ(token.is_special, released.is_special) << token.content;
      EXPECT_EQ(token.is_normalized, released.is_normalized) << token.content;
    }
  }
  EXPECT_EQ(shared, tokenizer->added_tokens().size());
  EXPECT_EQ(tokenizer->never_sampled().size(), 4u);
}

TEST(SyntheticTokenizer, RefusesImpossibleSizes) {
  for (const int size : {-1, 0, 287, 262145}) {
    const auto json = make_synthetic_tokenizer(size);
    ASSERT_FALSE(json.ok());
    EXPECT_THAT(std::string(json.status().message()), testing::HasSubstr("legal are 288 to 262144"));
  }
}

}  // namespace
}  // namespace ps::text
