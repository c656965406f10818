// Engram addressing against the published constants and row vectors.
#include "checkpoint/engram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/pcg64.h"
#include "checkpoint/test_data.h"

namespace ps::checkpoint {
namespace {

using ps::test::integers;
using testing::HasSubstr;

std::vector<EngramLayer> published_layers() {
  Result<std::vector<EngramLayer>> layers = make_engram_layers(test::config_of_file().text_config, 99092, 2);
  EXPECT_TRUE(layers.ok()) << layers.status().to_string();
  return std::move(layers).value();
}

TEST(Engram, PrimesOffsetsAndMultipliersArePublished) {
  const JsonValue tables = ps::test::load_json("engram_tables.json");
  const std::vector<EngramLayer> layers = published_layers();
  ASSERT_EQ(layers.size(), 2u);
  for (const EngramLayer& engram : layers) {
    const JsonValue& expected = *tables.find("layers")->find(std::to_string(engram.layer));
    EXPECT_EQ(engram.multipliers, integers<int64_t>(expected, "multipliers"));
    EXPECT_EQ(engram.offsets, integers<int64_t>(expected, "offsets"));
    EXPECT_EQ(engram.total_rows, expected.find("total_rows")->integer().value());
    std::vector<int64_t> primes;
    for (const JsonValue& row : expected.find("primes")->items()) {
      for (const JsonValue& prime : row.items()) primes.push_back(prime.integer().value());
    }
    EXPECT_EQ(engram.primes, primes);
  }
  EXPECT_EQ(layers[0].multipliers,
            (std::vector<int64_t>{76632096046245, 4839876093313, 35959672319349, 73987337458391}));
  EXPECT_EQ(layers[1].multipliers,
            (std::vector<int64_t>{67716810739261, 51510806800915, 30921347202721, 82619226485591}));
}

TEST(Engram, RowsArePublished) {
  const JsonValue vectors = ps::test::load_json("test_vectors.json");
  const std::vector<EngramLayer> layers = published_layers();
  int checked = 0;
  for (const JsonValue& sequence : vectors.find("engram_rows")->items()) {
    const auto ids = integers<int32_t>(sequence, "compressed_ids");
    for (const EngramLayer& engram : layers) {
      const auto& expected = sequence.find("rows")->find(std::to_string(engram.layer))->items();
      ASSERT_EQ(expected.size(), ids.size());
      for (size_t p = 0; p < ids.size(); ++p) {
        std::vector<int32_t> classes;
        for (size_t back = 0; back < 4; ++back) classes.push_back(back <= p ? ids[p - back] : kEngramDead);
        std::vector<int64_t> rows(24);
        hash_rows(engram, classes, rows);
        for (size_t column = 0; column < 24; ++column) {
          ASSERT_EQ(rows[column], expected[p].items()[column].integer().value())
              << "position " << p << " column " << column;
          ++checked;
        }
      }
    }
  }
  EXPECT_GT(checked, 1000);
}

// One dead lookback pads all deeper ones, also those that are alive again.
TEST(Engram, DeadLookbacksAreSticky) {
  const EngramLayer engram = published_layers()[0];
  const auto rows_of = [&](std::vector<int32_t> classes) {
    std::vector<int64_t> rows(24);
    hash_rows(engram, classes, rows);
    return rows;
  };
  EXPECT_EQ(rows_of({5, kEngramDead, 7, 8}), rows_of({5, 2, 2, 2}));
  EXPECT_EQ(rows_of({5, 6, kEngramDead, 8}), rows_of({5, 6, 2, 2}));
  EXPECT_EQ(rows_of({kEngramDead, 6, 7, 8}), rows_of({2, 2, 2, 2}));
  EXPECT_NE(rows_of({5, 6, 7, 8}), rows_of({5, 6, 7, 2}));
}

// Multipliers of small vocabularies lie above 2^53, where doubles skip integers (pitfalls D2).
TEST(Engram, IsExactAbove53Bits) {
  EngramLayer engram;
  engram.max_ngram = 2;
  engram.heads = 1;
  engram.pad_class = 2;
  engram.multipliers = {(int64_t{1} << 53) + 1, (int64_t{1} << 62) + 1};
  engram.primes = {1000003};
  engram.offsets = {17};
  std::vector<int64_t> rows(1);
  hash_rows(engram, std::vector<int32_t>{1000, 1}, rows);
  const auto product = static_cast<int64_t>(uint128{1000} * ((uint64_t{1} << 53) + 1));
  EXPECT_EQ(rows[0], (product ^ ((int64_t{1} << 62) + 1)) % 1000003 + 17);
  EXPECT_NE(static_cast<int64_t>(1000 * static_cast<double>(engram.multipliers[0])), product);
}

TEST(Engram, RowsOfSmallModelsStayInTheirColumns) {
  const TextConfig text = test::nano_config().text_config;
  const Result<std::vector<EngramLayer>> layers = make_engram_layers(text, 400, 2);
  ASSERT_TRUE(layers.ok()) << layers.status().to_string();
  Pcg64 random(9);
  for (const EngramLayer& engram : layers.value()) {
    std::vector<int32_t> classes(4);
    std::vector<int64_t> rows(static_cast<size_t>(engram.columns()));
    for (int i = 0; i < 2000; ++i) {
      for (int32_t& c : classes) c = static_cast<int32_t>(random.integer(-1, 400));
      hash_rows(engram, classes, rows);
      for (size_t column = 0; column < rows.size(); ++column) {
        ASSERT_GE(rows[column], engram.offsets[column]);
        ASSERT_LT(rows[column], engram.offsets[column] + engram.primes[column]);
      }
    }
  }
}

TEST(Engram, RefusesAnotherTokenMap) {
  const TextConfig text = test::config_of_file().text_config;
  EXPECT_THAT(make_engram_layers(text, 99510, 2).status().message(),
              HasSubstr("has 99510 token classes, text_config.engram_compressed_vocab_size is 99092"));
  EXPECT_THAT(make_engram_layers(text, 99092, 99092).status().message(), HasSubstr("pad class 99092 is outside"));
  EXPECT_THAT(make_engram_layers(text, 99092, -1).status().message(), HasSubstr("pad class -1 is outside"));
}

TEST(Engram, PrimalityIsExact) {
  for (uint64_t n = 0; n < 20000; ++n) {
    bool expected = n >= 2;
    for (uint64_t d = 2; d * d <= n && expected; ++d) expected = n % d != 0;
    ASSERT_EQ(is_prime(n), expected) << n;
  }
  EXPECT_TRUE(is_prime(18446744073709551557ull));  // the largest below 2^64
  for (const uint64_t pseudoprime : {3215031751ull, 3825123056546413051ull, 18446744073709551615ull, 4294967297ull}) {
    EXPECT_FALSE(is_prime(pseudoprime)) << pseudoprime;
  }
}

}  // namespace
}  // namespace ps::checkpoint
