#include "base/number_formats.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "base/pcg64.h"
#include "base/testing.h"
#include "base/thread_pool.h"

namespace ps {
namespace {

uint32_t bits(float value) { return std::bit_cast<uint32_t>(value); }
float from_bits(uint32_t value) { return std::bit_cast<float>(value); }

// The code of the nearest of the 127 finite magnitudes, ties to the even code, found by trying all of them in double.
uint8_t nearest_e4m3(float value) {
  const double magnitude = std::fabs(static_cast<double>(value));
  int best = 0;
  for (int code = 1; code <= 0x7E; ++code) {
    const double distance = std::fabs(static_cast<double>(e4m3_to_float(static_cast<uint8_t>(code))) - magnitude);
    const double best_distance = std::fabs(static_cast<double>(e4m3_to_float(static_cast<uint8_t>(best))) - magnitude);
    if (distance < best_distance || (distance == best_distance && code % 2 == 0)) best = code;
  }
  return static_cast<uint8_t>(best | (std::signbit(value) ? 0x80 : 0));
}

TEST(E4m3, DecodesEveryCodeAsTheGoldenTable) {
  const JsonValue vectors = test::load_json("test_vectors.json");
  const auto& golden = vectors.find("e4m3fn_decode")->items();
  ASSERT_EQ(golden.size(), 256u);
  for (size_t code = 0; code < 256; ++code) {
    const float value = e4m3_to_float(static_cast<uint8_t>(code));
    if (golden[code].is_null()) {
      EXPECT_TRUE(std::isnan(value)) << code;
    } else {
      EXPECT_EQ(bits(value), bits(std::strtof(golden[code].text().c_str(), nullptr))) << code;
    }
  }
}

TEST(E4m3, EveryCodeSurvivesARoundTrip) {
  for (int code = 0; code < 256; ++code) {
    EXPECT_EQ(float_to_e4m3(e4m3_to_float(static_cast<uint8_t>(code))), code) << code;
  }
}

TEST(E4m3, EncodesToTheNearestCodeWithTiesToEven) {
  for (int code = 0; code < 0x7E; ++code) {  // each value, each midpoint and their neighbours
    const float low = e4m3_to_float(static_cast<uint8_t>(code));
    const float high = e4m3_to_float(static_cast<uint8_t>(code + 1));
    const float middle = low + (high - low) / 2;
    for (const float anchor : {low, middle, high}) {
      for (int32_t step = -2; step <= 2; ++step) {
        if (anchor == 0 && step < 0) continue;
        const float value = from_bits(bits(anchor) + static_cast<uint32_t>(step));
        ASSERT_EQ(float_to_e4m3(value), nearest_e4m3(value)) << value;
        ASSERT_EQ(float_to_e4m3(-value), nearest_e4m3(-value)) << -value;
      }
    }
  }
}

TEST(E4m3, EncodesRandomFloatsToTheNearestCode) {
  Pcg64 random(1);
  for (int i = 0; i < 200000; ++i) {
    const auto mantissa_and_sign = static_cast<uint32_t>(random.next64()) & 0x807FFFFFu;
    const auto exponent = static_cast<uint32_t>(random.integer(110, 138));  // 2^-17 .. 2^10
    const float value = from_bits(mantissa_and_sign | (exponent << 23));
    ASSERT_EQ(float_to_e4m3(value), nearest_e4m3(value)) << value;
  }
}

TEST(E4m3, EdgesSaturateOrBecomeZeroOrNaN) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(float_to_e4m3(449.0f), 0x7E);
  EXPECT_EQ(float_to_e4m3(-1e30f), 0xFE);
  EXPECT_EQ(float_to_e4m3(infinity), 0x7E);
  EXPECT_EQ(float_to_e4m3(-infinity), 0xFE);
  EXPECT_EQ(float_to_e4m3(from_bits(0x7FC00000u)), 0x7F);
  EXPECT_EQ(float_to_e4m3(from_bits(0xFF800001u)), 0xFF);
  EXPECT_EQ(float_to_e4m3(0x1p-10f), 0x00);  // half of the smallest step, tie to even
  EXPECT_EQ(float_to_e4m3(std::nextafter(0x1p-10f, 1.0f)), 1);
  EXPECT_EQ(float_to_e4m3(0x1.8p-9f), 2);        // tie between 1 and 2
  EXPECT_EQ(float_to_e4m3(from_bits(1)), 0x00);  // a float subnormal
  EXPECT_EQ(float_to_e4m3(-0.0f), 0x80);
}

TEST(E4m3, DoesNotDependOnTheFloatingPointEnvironment) {
  Pcg64 random(2);
  for (int i = 0; i < 100000; ++i) {
    const float value = from_bits(static_cast<uint32_t>(random.next64()));
    const uint8_t plain = float_to_e4m3(value);
    const FlushSubnormals flush;
    ASSERT_EQ(float_to_e4m3(value), plain) << bits(value);
  }
}

TEST(E2m1, DecodesEveryNibbleAsTheGoldenTable) {
  const JsonValue vectors = test::load_json("test_vectors.json");
  const auto& golden = vectors.find("e2m1_decode")->items();
  ASSERT_EQ(golden.size(), 16u);
  for (size_t code = 0; code < 16; ++code) {
    const float value = e2m1_to_float(static_cast<uint8_t>(code));
    EXPECT_EQ(bits(value), bits(std::strtof(golden[code].text().c_str(), nullptr))) << code;
    EXPECT_EQ(float_to_e2m1(value), code);
    EXPECT_EQ(bits(e2m1_to_float(static_cast<uint8_t>(code | 0xF0))), bits(value)) << "only the low nibble counts";
  }
}

TEST(E2m1, TiesGoToTheEvenCode) {
  const std::pair<float, uint8_t> ties[] = {{0.25f, 0}, {0.75f, 2}, {1.25f, 2}, {1.75f, 4},
                                            {2.5f, 4},  {3.5f, 6},  {5.0f, 6}};
  for (const auto& [tie, code] : ties) {
    EXPECT_EQ(float_to_e2m1(tie), code) << tie;
    EXPECT_EQ(float_to_e2m1(-tie), code | 8) << tie;
    // One step off a tie goes to the neighbour on that side.
    const float below = e2m1_to_float(float_to_e2m1(std::nextafter(tie, 0.0f)));
    const float above = e2m1_to_float(float_to_e2m1(std::nextafter(tie, 9.0f)));
    EXPECT_LT(below, tie);
    EXPECT_GT(above, tie);
    EXPECT_EQ((below + above) / 2, tie);
  }
  EXPECT_EQ(float_to_e2m1(1e30f), 7);
  EXPECT_EQ(float_to_e2m1(-std::numeric_limits<float>::infinity()), 15);
  EXPECT_EQ(float_to_e2m1(-0.0f), 8);
  EXPECT_EQ(float_to_e2m1(from_bits(0x80000001u)), 8);
}

TEST(E2m1, NibblesArePackedLowFirst) {
  const uint8_t packed[] = {0x21, 0x43};
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(fp4_nibble(packed, i), i + 1);
}

TEST(E8m0, EveryCodeIsAPowerOfTwo) {
  for (int code = 0; code < 255; ++code) {
    EXPECT_EQ(static_cast<double>(e8m0_to_float(static_cast<uint8_t>(code))), std::ldexp(1.0, code - 127)) << code;
  }
  EXPECT_TRUE(std::isnan(e8m0_to_float(255)));
  EXPECT_EQ(bits(e8m0_to_float(0)), 0x00400000u) << "2^-127 is a subnormal float, not zero";
}

TEST(E8m0, CeilIsTheSmallestPowerOfTwoNotBelow) {
  for (int code = 1; code < 254; ++code) {
    const float power = e8m0_to_float(static_cast<uint8_t>(code));
    EXPECT_EQ(e8m0_ceil(power), code);
    EXPECT_EQ(e8m0_ceil(std::nextafter(power, std::numeric_limits<float>::infinity())), code + 1);
  }
  EXPECT_EQ(e8m0_ceil(std::numeric_limits<float>::infinity()), 255);
  EXPECT_EQ(e8m0_ceil(std::numeric_limits<float>::max()), 255);
  EXPECT_EQ(e8m0_ceil(from_bits(0x7FC00000u)), 255);
  EXPECT_EQ(e8m0_ceil(from_bits(0xFFC00001u)), 255);
}

TEST(E8m0, ScalingIsExactInEveryEnvironment) {
  for (const bool flushes : {false, true}) {
    for (int code = 0; code < 255; ++code) {
      for (int element = 0; element < 0x7F; ++element) {
        const float value = e4m3_to_float(static_cast<uint8_t>(element));
        const double exact = std::ldexp(static_cast<double>(value), code - 127);
        // Beyond the largest float the product is infinite, below the smallest normal one it is zero.
        const float expected = exact > 0x1.fffffep127 ? std::numeric_limits<float>::infinity()
                               : exact < 0x1p-126     ? 0.0f
                                                      : static_cast<float>(exact);
        float scaled = 0;
        if (flushes) {
          const FlushSubnormals flush;
          scaled = scale_by_e8m0(value, static_cast<uint8_t>(code));
        } else {
          scaled = scale_by_e8m0(value, static_cast<uint8_t>(code));
        }
        ASSERT_EQ(bits(scaled), bits(expected)) << value << " code " << code;
      }
    }
  }
  EXPECT_TRUE(std::isnan(scale_by_e8m0(1.0f, 255)));
}

TEST(FlushSubnormal, KeepsTheSignAndEveryNormalValue) {
  EXPECT_EQ(bits(flush_subnormal(from_bits(0x007FFFFFu))), 0u);
  EXPECT_EQ(bits(flush_subnormal(from_bits(0x80000001u))), 0x80000000u);
  for (const uint32_t kept : {0x00800000u, 0x80800000u, 0x3F800000u, 0x7F800000u, 0x7FC00001u, 0u, 0x80000000u}) {
    EXPECT_EQ(bits(flush_subnormal(from_bits(kept))), kept);
  }
}

TEST(Bf16, EveryCodeSurvivesARoundTrip) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const bf16 value{static_cast<uint16_t>(code)};
    const bf16 back = to_bf16(to_float(value));
    if ((code & 0x7FFFu) > 0x7F80u) {
      EXPECT_EQ(back.bits, code | 0x40u) << "NaN becomes quiet and keeps its sign and payload";
    } else {
      EXPECT_EQ(back.bits, code);
    }
  }
}

TEST(Bf16, RoundsToNearestEven) {
  Pcg64 random(3);
  for (int i = 0; i < 200000; ++i) {
    uint32_t pattern = static_cast<uint32_t>(random.next64());
    if (i % 4 == 0) pattern = (pattern & 0xFFFF0000u) | 0x8000u;  // exact ties
    const float value = from_bits(pattern);
    if (!std::isfinite(value)) continue;
    const auto low = static_cast<uint16_t>(pattern >> 16);  // toward zero
    const double below = to_float({low});
    const bool overflows = (low & 0x7FFFu) == 0x7F7Fu;
    const double above = overflows ? std::copysign(0x1p128, below) : to_float({static_cast<uint16_t>(low + 1)});
    const double to_below = std::fabs(value - below);
    const double to_above = std::fabs(above - value);
    const uint16_t expected =
        static_cast<uint16_t>(low + (to_above < to_below || (to_above == to_below && low % 2 == 1) ? 1 : 0));
    ASSERT_EQ(to_bf16(value).bits, expected) << value;
  }
  EXPECT_EQ(round_bf16(1.00390625f), 1.0f);
  EXPECT_EQ(round_bf16(1.01171875f), 1.015625f);
}

TEST(DTypes, HaveTheNamesAndSizesOfSafetensors) {
  const std::tuple<DType, const char*, int64_t> all[] = {{DType::kF32, "F32", 4},        {DType::kBF16, "BF16", 2},
                                                         {DType::kF8E4M3, "F8_E4M3", 1}, {DType::kF8E8M0, "F8_E8M0", 1},
                                                         {DType::kI8, "I8", 1},          {DType::kI32, "I32", 4},
                                                         {DType::kI64, "I64", 8}};
  for (const auto& [type, name, size] : all) {
    EXPECT_EQ(dtype_name(type), name);
    EXPECT_EQ(dtype_bytes(type), size);
  }
}

}  // namespace
}  // namespace ps
