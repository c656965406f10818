#include "base/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "base/number_formats.h"
#include "base/pcg64.h"
#include "base/testing.h"
#include "base/thread_pool.h"

namespace ps {
namespace {

uint32_t bits(float value) { return std::bit_cast<uint32_t>(value); }

// One quantizer in a shape that the tests can share: a group in, its scale code, element codes and values out.
struct Quantized {
  uint8_t scale = 0;
  std::vector<uint8_t> codes;  // one per element, unpacked
  std::vector<float> values;
  friend bool operator==(const Quantized& a, const Quantized& b) {
    return a.scale == b.scale && a.codes == b.codes &&
           std::equal(a.values.begin(), a.values.end(), b.values.begin(), b.values.end(),
                      [](float x, float y) { return bits(x) == bits(y); });
  }
};
struct Quantizer {
  const char* name;
  const char* golden;
  size_t group;
  uint8_t zero_scale;  // of an all-zero group
  float largest;       // of the element format
  std::function<Quantized(const float*)> run;
};

std::vector<uint8_t> unpack(const uint8_t* packed, size_t count) {
  std::vector<uint8_t> codes;
  for (size_t i = 0; i < count; ++i) codes.push_back(fp4_nibble(packed, static_cast<int64_t>(i)));
  return codes;
}

Quantized mxfp8(const float* x) {
  Quantized result{0, std::vector<uint8_t>(kMxGroup), std::vector<float>(kMxGroup)};
  result.scale = quantize_mxfp8(x, result.codes.data());
  dequantize_mxfp8(result.codes.data(), result.scale, result.values.data());
  return result;
}
Quantized mxfp4(const float* x) {
  std::array<uint8_t, kMxGroup / 2> packed{};
  Quantized result{quantize_mxfp4(x, packed.data()), unpack(packed.data(), kMxGroup), std::vector<float>(kMxGroup)};
  dequantize_mxfp4(packed.data(), result.scale, result.values.data());
  return result;
}
Quantized compressed(const float* x) {
  std::array<uint8_t, kCompressedGroup / 2> packed{};
  Quantized result{quantize_compressed(x, packed.data()), unpack(packed.data(), kCompressedGroup),
                   std::vector<float>(kCompressedGroup)};
  dequantize_compressed(packed.data(), result.scale, result.values.data());
  return result;
}

class EveryQuantizer : public testing::TestWithParam<Quantizer> {};
INSTANTIATE_TEST_SUITE_P(Base, EveryQuantizer,
                         testing::Values(Quantizer{"mxfp8", "act_quant_e4m3_block32", kMxGroup, 105, 448.0f, mxfp8},
                                         Quantizer{"mxfp4", "fp4_e8m0_group32", kMxGroup, 1, 6.0f, mxfp4},
                                         Quantizer{"compressed", "fp4_e4m3_group16", kCompressedGroup, 1, 6.0f,
                                                   compressed}),
                         [](const auto& quantizer) { return std::string(quantizer.param.name); });

TEST_P(EveryQuantizer, MatchesTheGoldenVectors) {
  const JsonValue vectors = test::load_json("test_vectors.json");
  const size_t group = GetParam().group;
  for (const JsonValue& golden : vectors.find(GetParam().golden)->items()) {
    const auto x = test::integers<uint16_t>(golden, "x_bf16");
    const auto scales = test::integers<uint8_t>(golden, "scale_code");
    const auto codes = test::integers<uint8_t>(golden, "codes");
    const auto values = test::integers<uint16_t>(golden, "dequant_bf16");
    ASSERT_EQ(scales.size(), x.size() / group);
    for (size_t at = 0; at < x.size(); at += group) {
      std::vector<float> row(group);
      for (size_t i = 0; i < group; ++i) row[i] = to_float(bf16{x[at + i]});
      const Quantized result = GetParam().run(row.data());
      EXPECT_EQ(result.scale, scales[at / group]);
      for (size_t i = 0; i < group; ++i) {
        EXPECT_EQ(result.codes[i], codes[at + i]) << at + i;
        EXPECT_EQ(bits(result.values[i]), bits(to_float(bf16{values[at + i]}))) << at + i;
      }
    }
  }
}

TEST_P(EveryQuantizer, AnAllZeroGroupHasTheFloorScale) {
  std::vector<float> zero(GetParam().group, 0.0f);
  zero[1] = -0.0f;
  const Quantized result = GetParam().run(zero.data());
  EXPECT_EQ(result.scale, GetParam().zero_scale);
  for (size_t i = 0; i < zero.size(); ++i) EXPECT_EQ(bits(result.values[i]), bits(zero[i]));
}

TEST_P(EveryQuantizer, GivesTheSameBitsWhenSubnormalsAreFlushed) {
  Pcg64 random(5);
  for (int round = 0; round < 20000; ++round) {
    std::vector<float> row(GetParam().group);
    // Exponents from the subnormals to the largest; every fourth round stays near the smallest scales.
    const int64_t top = round % 4 == 0 ? 6 : 254;
    for (float& x : row) {
      const uint32_t exponent = static_cast<uint32_t>(random.integer(0, top + 1));
      x = to_float(bf16{static_cast<uint16_t>((random.next64() & 0x807Fu) | (exponent << 7))});
    }
    const Quantized plain = GetParam().run(row.data());
    const FlushSubnormals flush;
    ASSERT_EQ(GetParam().run(row.data()), plain) << round;
  }
}

TEST_P(EveryQuantizer, ValuesAreExactInBf16AndQuantizeToThemselves) {
  Pcg64 random(6);
  for (int round = 0; round < 5000; ++round) {
    std::vector<float> row(GetParam().group);
    for (float& x : row)
      x = round_bf16(static_cast<float>(std::ldexp(random.uniform() - 0.5, static_cast<int>(random.integer(-12, 9)))));
    const Quantized once = GetParam().run(row.data());
    for (const float value : once.values) ASSERT_EQ(bits(round_bf16(value)), bits(value));
    if (GetParam().group == kCompressedGroup) continue;  // its scale is no power of two: amax may move off the top code
    EXPECT_EQ(GetParam().run(once.values.data()).values, once.values);
  }
}

TEST_P(EveryQuantizer, ANaNMakesItsWholeGroupNaN) {
  for (const uint32_t nan : {0x7FC00000u, 0xFFC00000u, 0x7F810000u}) {
    for (size_t at = 0; at < GetParam().group; ++at) {
      std::vector<float> row(GetParam().group, 1.0f);
      row[at] = std::bit_cast<float>(nan);
      const Quantized result = GetParam().run(row.data());
      for (size_t i = 0; i < row.size(); ++i) {
        // The code of zero times a NaN scale is NaN too.
        ASSERT_TRUE(std::isnan(result.values[i])) << at << " " << i;
      }
    }
  }
}

TEST(Quantize, TheFirstPowerOfTwoBoundaryKeepsTheTightScale) {
  for (int k = -22; k <= 119; ++k) {  // 448 * 2^119 is the largest that a float holds
    std::vector<float> row(kMxGroup, 0.0f);
    row[3] = -std::ldexp(448.0f, k);
    const Quantized tight = mxfp8(row.data());
    EXPECT_EQ(tight.scale, 127 + k);
    EXPECT_EQ(tight.codes[3], 0xFE);
    row[3] = std::nextafter(row[3], -std::numeric_limits<float>::infinity());
    if (std::isfinite(row[3])) {
      EXPECT_EQ(mxfp8(row.data()).scale, 127 + k + 1) << k;
    }
  }
  for (int k = -126; k <= 125; ++k) {
    std::vector<float> row(kMxGroup, 0.0f);
    row[0] = std::ldexp(6.0f, k);
    const Quantized tight = mxfp4(row.data());
    EXPECT_EQ(tight.scale, 127 + k);
    EXPECT_EQ(tight.codes[0], 7);
    EXPECT_EQ(tight.values[0], row[0]);
  }
}

TEST(Quantize, TheCompressedScaleIsNoPowerOfTwoAndSaturates) {
  std::vector<float> row(kCompressedGroup, 0.0f);
  row[0] = 9.0f;  // 9 / 6 = 1.5
  Quantized result = compressed(row.data());
  EXPECT_EQ(e4m3_to_float(result.scale), 1.5f);
  EXPECT_EQ(result.values[0], 9.0f);
  row[0] = 1e6f;
  result = compressed(row.data());
  EXPECT_EQ(result.scale, 0x7E);
  EXPECT_EQ(result.values[0], 448.0f * 6.0f);
}

TEST(Quantize, AnInfinityMakesItsGroupNaN) {
  for (const auto& run : {mxfp8, mxfp4}) {
    std::vector<float> row(kMxGroup, 1.0f);
    row[7] = -std::numeric_limits<float>::infinity();
    const Quantized result = run(row.data());
    EXPECT_EQ(result.scale, 255);
    for (const float value : result.values) EXPECT_TRUE(std::isnan(value));
  }
}

TEST(Quantize, FakeQuantizingARowEqualsGroupByGroup) {
  Pcg64 random(7);
  std::vector<float> row(96);
  for (float& x : row) x = round_bf16(static_cast<float>(random.uniform() * 20 - 10));
  const auto expect = [&row](void (*fake)(float*, int64_t), Quantized (*run)(const float*), size_t group) {
    std::vector<float> faked = row;
    fake(faked.data(), static_cast<int64_t>(faked.size()));
    for (size_t at = 0; at < row.size(); at += group) {
      const Quantized result = run(row.data() + at);
      for (size_t i = 0; i < group; ++i) EXPECT_EQ(bits(faked[at + i]), bits(result.values[i])) << at + i;
    }
  };
  expect(fake_quantize_mxfp8, mxfp8, kMxGroup);
  expect(fake_quantize_mxfp4, mxfp4, kMxGroup);
  expect(fake_quantize_compressed, compressed, kCompressedGroup);
}

}  // namespace
}  // namespace ps
