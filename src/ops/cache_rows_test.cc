// Row formats and addresses of the cache views: the vectors of runtime.md 1.2 and 1.5-1.7, and the exactness of every
// format.
#include "ops/cache_rows.h"

#include <set>

#include "ops/testing/cache_kit.h"

namespace ps::ops::test {
namespace {

TEST(RowFormats, Bytes) {
  EXPECT_EQ(row_bytes(RowFormat::kBF16, 512), 1024);
  EXPECT_EQ(row_bytes(RowFormat::kMxfp8, 512), 528);
  EXPECT_EQ(row_bytes(RowFormat::kCompressed, 512), 288);
  EXPECT_EQ(index_row_bytes(IndexFormat::kFp8, 128), 132);
  EXPECT_EQ(index_row_bytes(IndexFormat::kFp4, 128), 68);
}

TEST(IndexLayout, BlocksAreBijections) {
  for (const int64_t dim : {32, 64, 128, 256}) {
    std::set<int64_t> fp8;
    std::set<int64_t> fp4;
    std::set<int64_t> scales;
    for (int64_t row = 0; row < 8; ++row) {
      for (int64_t d = 0; d < dim; ++d) fp8.insert(fp8_index_offset(row, d));
      for (int64_t b = 0; b < dim / 2; ++b) fp4.insert(fp4_index_offset(row, b, dim));
      for (int64_t g = 0; g < dim / 32; ++g) scales.insert(fp4_index_scale_offset(row, g));
    }
    EXPECT_EQ(static_cast<int64_t>(fp8.size()), 8 * dim);
    EXPECT_EQ(*fp8.begin(), 0);
    EXPECT_EQ(*fp8.rbegin(), 8 * dim - 1);
    EXPECT_EQ(static_cast<int64_t>(fp4.size()), 4 * dim);
    EXPECT_EQ(*fp4.begin(), 0);
    EXPECT_EQ(*fp4.rbegin(), 4 * dim - 1);
    EXPECT_EQ(static_cast<int64_t>(scales.size()), dim / 4);
    EXPECT_EQ(*scales.rbegin(), dim / 4 - 1);
  }
}

TEST(IndexLayout, Fp4Vectors) {
  EXPECT_EQ(fp4_index_offset(5, 17, 128), 177);
  EXPECT_EQ(fp4_index_offset(7, 63, 128), 511);
  EXPECT_EQ(fp4_index_offset(2, 40, 128), 328);
  EXPECT_EQ(fp4_index_scale_offset(5, 17 / 16), 13);
  EXPECT_EQ(fp4_index_scale_offset(7, 63 / 16), 31);
  EXPECT_EQ(fp4_index_scale_offset(2, 40 / 16), 18);
}

// The pool of runtime.md 1.7: BF16 and FP8 index, B = 128, 10 PAGEs, 40 layers, no draft, request table [7, 2, 9].
struct Pool {
  static constexpr int64_t kPageBytes = 327680;
  static constexpr int64_t kStateStart = 3700736;
  static constexpr int64_t kStateBytes = 5276672;
  static constexpr int32_t kTable[] = {7, 2, 9};

  std::vector<std::byte> bytes = std::vector<std::byte>(kStateStart, std::byte{0});

  [[nodiscard]] MainPlane main(int ordinal) {
    constexpr int64_t kOffsets[] = {0, 64, 128, 192};
    return {bytes.data() + kOffsets[ordinal] * 1024,
            kPageBytes,
            ordinal == 3 ? 128 : 64,
            ordinal == 3 ? 1 : 2,
            512,
            RowFormat::kBF16};
  }
  [[nodiscard]] IndexPlane index(int ordinal) {
    constexpr int64_t kStarts[] = {3276800, 3361792, 3446784, 3531776};
    return {bytes.data() + kStarts[ordinal],
            nullptr,
            ordinal == 3 ? 128 : 64,
            ordinal == 3 ? 1 : 2,
            128,
            IndexFormat::kFp8};
  }
};

TEST(Addresses, MainRowsAndIndexBytes) {
  struct Vector {
    int owner;
    int32_t position;
    int64_t main_byte, block, row, dim37_byte, scale_byte;
  };
  for (const Vector& v :
       {Vector{0, 0, 2293760, 56, 0, 3336197, 3336960}, Vector{1, 301, 3037184, 74, 6, 3440293, 3440984},
        Vector{2, 255, 850944, 23, 7, 3471445, 3472124}, Vector{3, 128, 851968, 32, 0, 3565829, 3566592},
        Vector{3, 300, 3190784, 149, 4, 3689445, 3690160}}) {
    Pool pool;
    const MainPlane main = pool.main(v.owner);
    EXPECT_EQ(main.row(Pool::kTable, v.position / main.ratio) - pool.bytes.data(), v.main_byte);
    const IndexPlane index = pool.index(v.owner);
    const int64_t flat = index.flat_row(Pool::kTable, v.position / index.ratio);
    EXPECT_EQ(flat / 8, v.block);
    EXPECT_EQ(flat % 8, v.row);
    // A key that is zero but for dim 37 touches that byte and the scale, 448 / 448 = 1.
    Row key(128, 0.0f);
    key[37] = 448.0f;
    encode_index_key(index, flat, key.data());
    for (int64_t byte = 0; byte < Pool::kStateStart; ++byte) {
      const bool is_data = byte == v.dim37_byte;
      const bool is_scale = byte == v.scale_byte + 2 || byte == v.scale_byte + 3;  // 1.0f = 00 00 80 3F
      ASSERT_EQ(pool.bytes[static_cast<size_t>(byte)] != std::byte{0}, is_data || is_scale) << byte;
    }
    EXPECT_EQ(pool.bytes[static_cast<size_t>(v.dim37_byte)], std::byte{0x7E});
    float scale = 0;
    std::memcpy(&scale, pool.bytes.data() + v.scale_byte, sizeof scale);
    EXPECT_EQ(scale, 1.0f);
  }
}

// Pure arithmetic on a base that is never read.
TEST(Addresses, WindowRowsAndHighPages) {
  const auto address = [](const std::byte* pointer) { return reinterpret_cast<intptr_t>(pointer); };
  const auto ring = [](int64_t layer) {
    return WindowRing{reinterpret_cast<std::byte*>(Pool::kStateStart + layer * 128 * 1024), Pool::kStateBytes, 128, 512,
                      RowFormat::kBF16};
  };
  EXPECT_EQ(address(ring(0).row(0, 0)), int64_t{3614} * 1024);
  EXPECT_EQ(address(ring(3).row(5, 300)), int64_t{29807} * 1024);
  EXPECT_EQ(address(ring(39).row(1, 127)), int64_t{13886} * 1024);
  EXPECT_EQ(address(ring(0).row(1000, 0)), Pool::kStateStart + int64_t{1000} * Pool::kStateBytes);
  const MainPlane main{reinterpret_cast<std::byte*>(int64_t{1024}), Pool::kPageBytes, 64, 2, 512, RowFormat::kBF16};
  const int32_t table[] = {0, 2000000000};
  EXPECT_EQ(address(main.row(table, 65)), 1024 + int64_t{2000000000} * Pool::kPageBytes + 1024);
  const IndexPlane index{nullptr, nullptr, 64, 2, 128, IndexFormat::kFp8};
  EXPECT_EQ(index.flat_row(table, 65), int64_t{2000000000} * 64 + 1);
  const CompressorRing compressor{reinterpret_cast<std::byte*>(int64_t{4096}), nullptr, Pool::kStateBytes, 7, 512};
  EXPECT_EQ(reinterpret_cast<intptr_t>(compressor.kv_row(1000, 20)),
            4096 + int64_t{1000} * Pool::kStateBytes + 6 * 2048);
}

Row round_trip(RowFormat format, const Row& values) {
  std::vector<std::byte> row(static_cast<size_t>(row_bytes(format, static_cast<int64_t>(values.size()))));
  encode_row(format, values.data(), static_cast<int64_t>(values.size()), row.data());
  Row back(values.size());
  decode_row(format, row.data(), static_cast<int64_t>(values.size()), back.data());
  return back;
}

// A window row is quantized by the model and again by a packed pool: the second time loses nothing, whatever the first
// scale was. Magnitudes run over the smallest scale (amax floor 1e-4), over group maxima that round across a power of
// two (224 and 448 times one), and up to the largest BF16 values.
TEST(RowFormats, RequantizingAWindowRowIsLossless) {
  for (const float edge : {223.9f, 224.0f, 224.1f, 232.0f, 447.9f, 448.0f, 448.1f, 464.0f, 1.0f, 1.75f, 1.8125f}) {
    for (int exponent = -40; exponent <= 100; ++exponent) {
      Row group = random_row(static_cast<uint64_t>(exponent + 100), 32, std::ldexp(edge, exponent));
      group[5] = std::ldexp(edge, exponent);
      group[6] = -0.0f;
      const Row grid = on_mxfp8_grid(group);
      expect_same_floats("mxfp8", round_trip(RowFormat::kMxfp8, grid), grid);
      expect_same_floats("bf16", round_trip(RowFormat::kBF16, grid), grid);
    }
  }
  for (uint64_t seed = 0; seed < 20000; ++seed) {
    Pcg64 random(seed);
    const Row grid =
        on_mxfp8_grid(random_row(seed + 1, 32, std::ldexp(1.0f, static_cast<int>(random.integer(-30, 60)))));
    expect_same_floats("mxfp8", round_trip(RowFormat::kMxfp8, grid), grid);
  }
  // Every code under every maximum.
  for (int largest = 0; largest < 0x7F; ++largest) {
    for (int first = 0; first <= largest; first += 31) {
      Row group(32, 0.0f);
      for (int i = 0; i < 31; ++i) {
        const int code = std::min(first + i, largest);
        group[static_cast<size_t>(i)] =
            (i % 2 == 0 ? 1.0f : -1.0f) * e4m3_to_float(static_cast<uint8_t>(code)) * 0x1p-3f;
      }
      group[31] = e4m3_to_float(static_cast<uint8_t>(largest)) * 0x1p-3f;
      const Row grid = on_mxfp8_grid(group);
      expect_same_floats("mxfp8", round_trip(RowFormat::kMxfp8, grid), grid);
    }
  }
}

TEST(RowFormats, CompressedRowsAreEqualInBothPools) {
  for (uint64_t seed = 0; seed < 20000; ++seed) {
    Pcg64 random(seed);
    Row row = random_row(seed + 1, 32, std::ldexp(1.0f, static_cast<int>(random.integer(-20, 16))));
    if (seed % 7 == 0) row[3] = 3000.0f;  // beyond 6 * 448: saturates
    if (seed % 11 == 0) std::fill(row.begin(), row.begin() + 16, 0.0f);
    const Row grid = on_compressed_grid(row);
    expect_same_floats("packed", round_trip(RowFormat::kCompressed, row), grid);
    expect_same_floats("bf16", round_trip(RowFormat::kBF16, grid), grid);
    expect_same_floats("packed twice", round_trip(RowFormat::kCompressed, grid), grid);
  }
}

TEST(RowFormats, NanStaysNan) {
  for (const RowFormat format : {RowFormat::kBF16, RowFormat::kMxfp8, RowFormat::kCompressed}) {
    Row row(64, 6.0f);
    row[40] = std::numeric_limits<float>::quiet_NaN();
    const Row back = round_trip(format, row);
    EXPECT_TRUE(std::isnan(back[40]));
    EXPECT_EQ(back[0], 6.0f);
    std::vector<std::byte> poison(static_cast<size_t>(row_bytes(format, 64)), kPoison);
    Row values(64);
    decode_row(format, poison.data(), 64, values.data());
    for (const float value : values) EXPECT_TRUE(std::isnan(value));
  }
}

TEST(IndexKeys, Fp8ScaleIsTheNextPowerOfTwo) {
  const auto scale = [](float amax) {
    Row key(32, 0.0f);
    key[9] = -amax;
    return fp8_index_scale(key.data(), 32);
  };
  EXPECT_EQ(scale(0.0f), 0x1p-22f);  // 1e-4 / 448
  EXPECT_EQ(scale(1e-4f), 0x1p-22f);
  EXPECT_EQ(scale(448.0f), 1.0f);
  EXPECT_EQ(scale(450.0f), 2.0f);
  EXPECT_EQ(scale(224.0f), 0.5f);
  EXPECT_EQ(scale(225.0f), 1.0f);
  EXPECT_EQ(scale(448.0f * 0x1p60f), 0x1p60f);
  EXPECT_TRUE(std::isnan(scale(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_TRUE(std::isnan(scale(std::numeric_limits<float>::infinity())));
  for (int step = 0; step < 4000; ++step) {
    const float amax = std::ldexp(1.0f + static_cast<float>(step % 97) / 97.0f, step % 60 - 20);
    const double want = std::exp2(std::ceil(std::log2(std::max(double{amax}, double{1e-4f}) / 448.0)));
    EXPECT_EQ(double{scale(amax)}, want) << amax;
  }
}

// The bytes of one key, restated: FP8 codes of key / scale in interleaved chunks; FP4 codes in strips, scales in their
// plane.
TEST(IndexKeys, RowsKeepToTheirBytesAndComeBackRounded) {
  for (const IndexFormat format : {IndexFormat::kFp4, IndexFormat::kFp8}) {
    for (const int32_t dim : {32, 64, 128, 256}) {
      CacheShape shape;
      shape.index_format = format;
      shape.index_dim = dim;
      shape.ratio = 1;
      TestCache cache(shape);
      std::vector<Row> keys;
      for (int64_t flat = 0; flat < 40; ++flat) {
        Row key = random_row(static_cast<uint64_t>(flat), dim, std::ldexp(3.0f, static_cast<int>(flat % 9) * 4 - 16));
        if (flat % 10 == 9) key[0] = std::numeric_limits<float>::quiet_NaN();
        encode_index_key(cache.index, flat, key.data());
        keys.push_back(on_index_grid(format, key));
      }
      for (int64_t flat = 0; flat < 40; ++flat) {
        Row got(static_cast<size_t>(dim));
        decode_index_key(cache.index, flat, got.data());
        expect_same_floats("flat " + std::to_string(flat), got, keys[static_cast<size_t>(flat)]);
        if (flat % 10 != 9) {
          TestCache again(shape);
          encode_index_key(again.index, flat, got.data());  // on the grid: lossless
          decode_index_key(again.index, flat, got.data());
          expect_same_floats("again", got, keys[static_cast<size_t>(flat)]);
        }
      }
      Row beyond(static_cast<size_t>(dim));
      decode_index_key(cache.index, 40, beyond.data());
      for (const float value : beyond) EXPECT_TRUE(std::isnan(value));
    }
  }
}

TEST(IndexKeys, Fp4BytesLieWhereTheLayoutSays) {
  CacheShape shape;
  shape.index_dim = 128;
  shape.ratio = 1;
  TestCache cache(shape);
  Row key(128);
  for (size_t d = 0; d < 128; ++d) key[d] = (d % 2 == 0 ? 1.0f : -6.0f) * (d / 32 == 2 ? 4.0f : 1.0f);
  encode_index_key(cache.index, 8 + 5, key.data());
  for (int64_t b = 0; b < 64; ++b) {
    EXPECT_EQ(cache.index.values[512 + fp4_index_offset(5, b, 128)], std::byte{0xF2}) << b;  // 1 low, -6 high
  }
  for (int64_t g = 0; g < 4; ++g) {
    EXPECT_EQ(cache.index.scales[32 + g * 8 + 5], static_cast<std::byte>(g == 2 ? 129 : 127)) << g;
  }
}

}  // namespace
}  // namespace ps::ops::test
