#include "base/pcg64.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>

#include "base/testing.h"

namespace ps {
namespace {

uint64_t unsigned_member(const JsonValue& object, std::string_view key) {
  return std::strtoull(object.find(key)->text().c_str(), nullptr, 10);
}

TEST(SeedSequence, MatchesTheGoldenVectors) {
  const JsonValue vectors = test::load_json("test_vectors.json");
  for (const JsonValue& golden : vectors.find("pcg64")->items()) {
    const uint64_t seed = unsigned_member(golden, "seed");
    const SeedSequence sequence(seed);
    const auto pool = test::integers<uint32_t>(golden, "pool_u32");
    EXPECT_TRUE(std::equal(pool.begin(), pool.end(), sequence.pool().begin())) << seed;
    const auto words = sequence.generate<8>();
    const auto state = test::integers<uint64_t>(golden, "state64x4");
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(words[2 * i] | (static_cast<uint64_t>(words[2 * i + 1]) << 32), state[i]) << seed;
    }
  }
  const std::array<uint32_t, 4> of_42 = {3444837047u, 2669555309u, 2046530742u, 3581440988u};
  EXPECT_EQ(SeedSequence(42).generate<4>(), of_42);
}

TEST(Pcg64, MatchesTheGoldenVectors) {
  const JsonValue vectors = test::load_json("test_vectors.json");
  for (const JsonValue& golden : vectors.find("pcg64")->items()) {
    Pcg64 random(unsigned_member(golden, "seed"));
    EXPECT_EQ(static_cast<uint64_t>(random.state() >> 64), unsigned_member(golden, "state_hi"));
    EXPECT_EQ(static_cast<uint64_t>(random.state()), unsigned_member(golden, "state_lo"));
    EXPECT_EQ(static_cast<uint64_t>(random.increment() >> 64), unsigned_member(golden, "inc_hi"));
    EXPECT_EQ(static_cast<uint64_t>(random.increment()), unsigned_member(golden, "inc_lo"));
    for (const uint64_t expected : test::integers<uint64_t>(golden, "first_u64")) EXPECT_EQ(random.next64(), expected);
  }
}

TEST(Pcg64, DrawsTheUniformDoublesOfNumpy) {
  const JsonValue vectors = test::load_json("base_vectors.json");
  for (const JsonValue& golden : vectors.find("uniforms")->items()) {
    Pcg64 random(std::strtoull(golden.items()[0].text().c_str(), nullptr, 10));
    for (const JsonValue& expected : golden.items()[1].items()) {
      EXPECT_EQ(std::bit_cast<uint64_t>(random.uniform()), std::strtoull(expected.text().c_str(), nullptr, 16));
    }
  }
}

// Ranges that reject often, fill 32 or 64 bits, or need one value only; and both widths mixed in one stream.
TEST(Pcg64, DrawsTheIntegersOfNumpy) {
  const JsonValue vectors = test::load_json("base_vectors.json");
  const auto& ranges = vectors.find("ranges")->items();
  const auto bound = [](const JsonValue& range, size_t i) { return range.items()[i].integer().value(); };
  for (const JsonValue& golden : vectors.find("integers")->items()) {
    const uint64_t seed = unsigned_member(golden, "seed");
    Pcg64 random(seed);
    if (const JsonValue* mixed = golden.find("mixed")) {
      for (size_t i = 0; i < mixed->items().size(); ++i) {
        const JsonValue& range = ranges[i % ranges.size()];
        ASSERT_EQ(random.integer(bound(range, 0), bound(range, 1)), mixed->items()[i].integer().value())
            << seed << " " << i;
      }
      continue;
    }
    const int64_t low = golden.find("low")->integer().value();
    const int64_t high = golden.find("high")->integer().value();
    for (const JsonValue& expected : golden.find("draws")->items()) {
      ASSERT_EQ(random.integer(low, high), expected.integer().value()) << seed << " [" << low << ", " << high << ")";
    }
  }
}

TEST(Pcg64, ThirtyTwoBitDrawsTakeTheLowHalfFirst) {
  Pcg64 wide(9);
  Pcg64 narrow(9);
  const uint64_t first = wide.next64();
  EXPECT_EQ(narrow.next32(), static_cast<uint32_t>(first));
  EXPECT_EQ(narrow.next64(), wide.next64()) << "a wide draw leaves the spare half alone";
  EXPECT_EQ(narrow.next32(), static_cast<uint32_t>(first >> 32));
}

}  // namespace
}  // namespace ps
