// The suites of linear.h and moe.h on every table, and every table against the reference, bit for bit, over shapes that
// meet every edge of the kernels: rows of x around the tile and group sizes, panels and blocks that are cut short, all
// formats, extreme values.
#include "cpu/drivers.h"
#include "cpu/table.h"
#include "ops/testing/linear_suite.h"
#include "ops/testing/moe_suite.h"

namespace ps::ops::test {
namespace {

template <typename Args>
void run_on(const OpTable& table, Op<Args> OpTable::* op, const Args& args, ScratchBounds bounds, int threads) {
  bounds.threads = threads;
  ThreadPool pool(threads);
  Arena& arena = fresh_scratch(table.scratch_bytes(bounds));
  Exec exec{pool, arena};
  (table.*op)(args, exec);
}

class CpuEquality : public OpSuite {
 protected:
  void expect_equal_linear(const LinearCase& c, const Rows& x, const WeightData& w, int threads = 1) const {
    const Grid grid = is_quantized(w.format()) ? Grid::kMxfp8 : Grid::kNone;
    ScratchBounds bounds;
    bounds.tokens = x.rows();
    bounds.columns = x.columns();
    Rows expected(x.rows(), w.rows(), c.y_dtype);
    Rows actual(x.rows(), w.rows(), c.y_dtype);
    run_on(reference_table(), &OpTable::linear, {x.view(grid), w.view(), expected.view()}, bounds, 1);
    run_on(table(), &OpTable::linear, {x.view(grid), w.view(), actual.view()}, bounds, threads);
    expect_same_rows(case_text(c), actual, expected);
    EXPECT_TRUE(actual.gaps_intact()) << case_text(c);
  }
};

// Any bytes: every code, NaN codes and scales and the ends of the scale range.
void fill_with_any_bytes(Pcg64& random, WeightData& w) {
  for (uint8_t& scale : w.scales()) {
    const int64_t kind = random.integer(0, 8);
    const uint8_t extremes[] = {0, 1, 2, 246, 247, 253, 254, 255};
    scale = kind == 0 ? extremes[random.integer(0, 8)] : static_cast<uint8_t>(random.integer(100, 150));
  }
  for (int64_t n = 0; n < w.rows(); ++n) {
    for (int64_t k = 0; k < w.columns(); ++k) {
      if (is_quantized(w.format())) {
        const bool any = random.integer(0, 4000) == 0;
        auto code = static_cast<uint8_t>(random.integer(0, 256));
        if (!any && (code & 0x7F) == 0x7F) code ^= 1;
        w.set_code(n, k, code);
      } else {
        w.set(n, k, random_value(random, n % 2 == 0 ? Data::kSpecial : Data::kWide));
      }
    }
  }
}

TEST_P(CpuEquality, LinearOfRandomShapes) {
  Pcg64 random(1);
  for (WeightFormat format : kAllFormats) {
    const bool fp8 = format == WeightFormat::kFp8Block32;
    for (int64_t tokens : {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 64, 65, 255}) {
      for (int repeat = 0; repeat < 2; ++repeat) {
        const int64_t rows = fp8 ? 32 * random.integer(1, 4) : random.integer(1, 80);
        const int64_t columns = is_quantized(format) ? 32 * random.integer(1, 40) : random.integer(1, 1100);
        for (DType x_dtype : {DType::kBF16, DType::kF32}) {
          const bool wide = x_dtype == DType::kF32 || (repeat == 1 && !is_quantized(format));
          const LinearCase c{format, tokens, rows, columns, x_dtype, wide ? DType::kF32 : DType::kBF16};
          Rows x = random_rows(random, tokens, columns, x_dtype, repeat == 0 ? Data::kNormal : Data::kWide);
          if (is_quantized(format)) put_on_grid(x);
          expect_equal_linear(c, x, random_weight(random, format, rows, columns), 1 + repeat * 2);
        }
      }
    }
  }
}

// Panels in groups of every size, over several chunks of K, whole and cut short, on more threads than panels.
TEST_P(CpuEquality, LinearOfManyPanels) {
  Pcg64 random(11);
  for (const WeightFormat format : kAllFormats) {
    for (const int64_t tokens : {1, 9, 17, 64, 255}) {
      const bool fp8 = format == WeightFormat::kFp8Block32;
      const int64_t rows = fp8 ? 32 * 23 : 32 * 23 + 5;
      const int64_t columns = is_quantized(format) ? 32 * 35 : 32 * 35 + 7;
      const LinearCase c{format, tokens, rows, columns, DType::kBF16, DType::kBF16};
      Rows x = random_rows(random, tokens, columns, DType::kBF16);
      if (is_quantized(format)) put_on_grid(x);
      const WeightData w = random_weight(random, format, rows, columns);
      for (const int threads : {1, 2, 3, 8}) expect_equal_linear(c, x, w, threads);
    }
  }
}

// As many pairs of groups of rows as share a panel's decoding in every way, with a group left over and without.
TEST_P(CpuEquality, LinearOfManyGroupsOfRows) {
  Pcg64 random(15);
  for (const WeightFormat format : {WeightFormat::kFp8Block32, WeightFormat::kFp4Block32, WeightFormat::kBF16}) {
    for (const int64_t tokens : {80, 96, 113, 128, 161, 192, 224, 336, 400, 512, 545}) {
      const int64_t rows = 32 * 9;
      const int64_t columns = 32 * 17;
      Rows x = random_rows(random, tokens, columns, DType::kBF16);
      if (is_quantized(format)) put_on_grid(x);
      const LinearCase c{format, tokens, rows, columns, DType::kBF16, DType::kBF16};
      expect_equal_linear(c, x, random_weight(random, format, rows, columns), 1);
    }
  }
}

// Blocks of x on the MXFP8 grid for which sums over integers take two digits, three digits, or are not exact in F32 so
// that the order counts, and zeros.
void fill_with_digits(Pcg64& random, Rows& x) {
  for (int64_t t = 0; t < x.rows(); ++t) {
    int64_t most_kinds = 1;
    for (int64_t k = 0; k < x.columns(); k += 32) {
      if (k % 128 == 0) most_kinds = random.integer(0, 2) == 0 ? 1 : 8;  // chunks of one kind, and mixed ones
      const int64_t kind = random.integer(0, most_kinds);
      const auto unit = static_cast<float>(std::ldexp(1.0, static_cast<int>(random.integer(-8, 8))));
      const auto step = static_cast<float>(std::ldexp(1.0, static_cast<int>(random.integer(-9, -5))));
      for (int64_t i = 0; i < 32 && k + i < x.columns(); ++i) {
        const auto large = static_cast<float>(random.integer(8, 16)) * 32.0f;
        const auto small = static_cast<float>(random.integer(-7, 8)) * step;
        float value = random.integer(0, 2) == 0 ? large : -large;
        if (kind == 1) value = i == 5 ? 448.0f : small;
        if (kind == 2 && i % 7 == 3) value = small;
        if (kind == 3) value = 0.0f;
        if (kind == 5) value = i % 5 != 0 ? large : std::abs(small);
        if (kind == 4) value = i == 9 ? 0x1.FEp7f : 0.0f;  // no value of the grid, exact in BF16
        x.set(t, k + i, std::min(448.0f, value) * unit);
      }
    }
  }
}

// Some rows of large values of one sign, which make large sums.
void set_large_rows(Pcg64& random, WeightData& w) {
  for (int64_t n = 20; n < 60; ++n) {
    for (int64_t k = 0; k < w.columns(); ++k) w.set_code(n, k, static_cast<uint8_t>(random.integer(1, 8)));
  }
}

// Few rows of x, so that a step takes as many panels as it may, and the streams that those read lie far apart.
TEST_P(CpuEquality, LinearOfFewRowsAndLongSteps) {
  Pcg64 random(18);
  for (const WeightFormat format : kAllFormats) {
    const int64_t rows = 32 * 400 + (format == WeightFormat::kFp8Block32 ? 0 : 7);
    const int64_t columns = is_quantized(format) ? 256 : 72;
    WeightData w = random_weight(random, format, rows, columns);
    for (const int64_t tokens : {1, 2, 5, 16}) {
      const LinearCase c{format, tokens, rows, columns, DType::kBF16, DType::kBF16};
      Rows x = random_rows(random, tokens, columns, DType::kBF16);
      if (is_quantized(format)) put_on_grid(x);
      if (format == WeightFormat::kFp4Block32) {
        fill_with_digits(random, x);  // chunks of x that take the general way
        w.scales()[static_cast<size_t>(random.integer(0, rows) * (columns / 32))] = 250;  // and a panel that does
      }
      for (const int threads : {1, 3}) expect_equal_linear(c, x, w, threads);
    }
  }
}

// Few rows of FP4 weights have a way of their own where scales and values are moderate: at and beyond both ends.
TEST_P(CpuEquality, LinearOfFewFp4Rows) {
  Pcg64 random(14);
  const auto x_values = {1.0f,     0.0f,      -0.0f,    0x1p-40f,  0x1p-41f,     0x1p40f,
                         -0x1p41f, 0x1p-120f, 0x1p100f, 0x1p-140f, std::nanf("")};
  for (const int64_t columns : {128, 96, 2304}) {
    const int64_t rows = 32 * 3 + 7;
    for (const int scale : {127, 87, 86, 167, 168, 0, 1, 254, 255}) {
      for (const float value : x_values) {
        const DType dtype = random.integer(0, 2) == 0 ? DType::kBF16 : DType::kF32;
        Rows x(random.integer(1, 10), columns, dtype);
        fill_with_digits(random, x);
        if (value != 1.0f) {
          const int64_t block = random.integer(0, columns / 32);
          if (random.integer(0, 2) == 0) {
            for (int64_t k = 0; k < 32; ++k) x.set(0, block * 32 + k, 0.0f);
          }
          x.set(0, block * 32 + 7, value);
        }
        WeightData w = random_weight(random, WeightFormat::kFp4Block32, rows, columns);
        set_large_rows(random, w);
        if (scale != 127)
          w.scales()[static_cast<size_t>(random.integer(0, rows * columns / 32))] = static_cast<uint8_t>(scale);
        expect_equal_linear({WeightFormat::kFp4Block32, x.rows(), rows, columns, dtype, DType::kF32}, x, w, 2);
      }
    }
  }
}

// The same without VNNI, which the table of the machine uses where it is present.
TEST(CpuIntegers, WithoutVnniTheSame) {
  if (!cpu::supported(cpu::Isa::kAvx512).ok()) GTEST_SKIP() << "this processor has no AVX-512";
  Pcg64 random(15);
  WeightData w = random_weight(random, WeightFormat::kFp4Block32, 72, 2304);
  set_large_rows(random, w);
  for (const int64_t tokens : {1, 2, 3, 8}) {
    Rows x(tokens, 2304, DType::kBF16);
    fill_with_digits(random, x);
    Rows expected(tokens, 72, DType::kF32);
    Rows actual(tokens, 72, DType::kF32);
    const ScratchBounds bounds{.threads = 1, .tokens = tokens, .columns = 2304};
    ThreadPool pool(1);
    Arena& arena = fresh_scratch(cpu::table().scratch_bytes(bounds));
    Exec exec{pool, arena};
    reference_table().linear({x.view(Grid::kMxfp8), w.view(), expected.view()}, exec);
    cpu::linear(cpu::avx512_kernels(), {x.view(Grid::kMxfp8), w.view(), actual.view()}, exec);
    expect_same_rows(std::to_string(tokens) + " rows", actual, expected);
  }
}

// A long prompt: several chunks of packed rows.
TEST_P(CpuEquality, LinearOfFourThousandRows) {
  Pcg64 random(13);
  for (const WeightFormat format : {WeightFormat::kFp8Block32, WeightFormat::kFp4Block32, WeightFormat::kBF16}) {
    Rows x = random_rows(random, 4096, 96, DType::kBF16);
    if (is_quantized(format)) put_on_grid(x);
    expect_equal_linear({format, 4096, 64, 96, DType::kBF16, DType::kBF16}, x, random_weight(random, format, 64, 96),
                        2);
  }
}

// All groups of few rows share a fork; many rows, and groups that are no whole blocks, go one by one.
TEST_P(CpuEquality, GroupedLinearOfFewAndManyRows) {
  Pcg64 random(12);
  for (const int64_t inputs : {96, 70, 128}) {
    const bool is_whole = inputs % 32 == 0;
    for (const WeightFormat format : {WeightFormat::kBF16, WeightFormat::kFp8Block32, WeightFormat::kFp4Block32}) {
      if (!is_whole && is_quantized(format)) continue;
      for (const int64_t tokens : {1, 2, 8, 31, 32, 33, 100}) {
        const int32_t groups = 5;
        const DType dtype = tokens % 2 == 1 ? DType::kF32 : DType::kBF16;  // on no grid, whatever the format
        const Rows x = random_rows(random, tokens, groups * inputs, dtype);
        const WeightData w = random_weight(random, format, groups * 64, inputs);
        const ScratchBounds bounds{.tokens = tokens, .columns = groups * inputs};
        Rows expected(tokens, groups * 64, dtype);
        run_on(reference_table(), &OpTable::grouped_linear, {x.view(), w.view(), expected.view(), groups}, bounds, 1);
        for (const int threads : {1, 2, 5}) {
          Rows actual(tokens, groups * 64, dtype);
          run_on(table(), &OpTable::grouped_linear, {x.view(), w.view(), actual.view(), groups}, bounds, threads);
          expect_same_rows(std::to_string(tokens) + " rows", actual, expected);
          EXPECT_TRUE(actual.gaps_intact());
        }
      }
    }
  }
}

TEST_P(CpuEquality, LinearOfExtremeValues) {
  Pcg64 random(2);
  for (WeightFormat format : kAllFormats) {
    for (int64_t tokens : {1, 3, 17, 40}) {
      for (DType x_dtype : {DType::kBF16, DType::kF32}) {
        for (int64_t columns : {96, 128}) {
          const LinearCase c{format, tokens, 64, columns, x_dtype, x_dtype};
          Rows x = random_rows(random, tokens, columns, x_dtype, Data::kSpecial);
          if (is_quantized(format)) put_on_grid(x);
          WeightData w(format, 64, columns);
          fill_with_any_bytes(random, w);
          expect_equal_linear(c, x, w);
        }
      }
    }
  }
}

TEST_P(CpuEquality, EveryCodeTimesEveryScale) {
  for (WeightFormat format : {WeightFormat::kFp8Block32, WeightFormat::kFp4Block32}) {
    const int64_t rows = 256;
    WeightData w(format, rows * 32, 256);
    for (int64_t n = 0; n < w.rows(); ++n) {
      for (int64_t k = 0; k < 256; ++k) {
        w.set_code(n, k, static_cast<uint8_t>(k));
        w.scales()[w.scale_index(n, k)] = static_cast<uint8_t>(n / 32);
      }
    }
    // One code at a time: x picks it out.
    Rows x(256, 256, DType::kF32);
    for (int64_t t = 0; t < 256; ++t) {
      for (int64_t k = 0; k < 256; ++k) x.set(t, k, t == k ? 1.0f : 0.0f);
    }
    expect_equal_linear({format, 256, w.rows(), 256, DType::kF32, DType::kF32}, x, w);
    expect_equal_linear({format, 256, w.rows(), 256}, x.converted(DType::kBF16), w);
  }
}

TEST_P(CpuEquality, MoeOfManyRowsAndExperts) {
  using enum WeightFormat;
  const MoeCase cases[] = {
      {kFp4Block32, kFp4Block32, kFp8Block32, kFp8Block32, 1, 160, 96, 12, 6},
      {kFp4Block32, kFp4Block32, kFp8Block32, kFp8Block32, 5, 160, 96, 384, 6},
      // Both products of an expert over integers.
      {kFp4Block32, kFp4Block32, kFp8Block32, kFp8Block32, 1, 128, 256, 4, 2},
      {kFp4Block32, kFp4Block32, kFp4Block32, kFp4Block32, 2, 256, 128, 4, 2},
      {kFp4Block32, kFp4Block32, kFp8Block32, kFp8Block32, 5, 128, 256, 4, 2, DType::kF32},
      {kFp4Block32, kFp4Block32, kFp4Block32, kFp8Block32, 9, 384, 2304, 3, 2},
      {kFp4Block32, kFp4Block32, kFp8Block32, kFp8Block32, 200, 96, 64, 9, 6},  // several groups of pairs
      {kFp8Block32, kBF16, kF32, kFp4Block32, 70, 64, 64, 3, 2},
      {kBF16, kBF16, kBF16, kBF16, 33, 72, 40, 4, 2},
      {kFp4Block32, kFp4Block32, kFp8Block32, kFp8Block32, 33, 96, 64, 4, 3, DType::kF32},
      {kF32, kF32, kF32, kF32, 1100, 33, 17, 2, 1},
  };
  uint64_t seed = 50;
  for (const MoeCase& c : cases) {
    MoeData data = moe_data(c, ++seed);
    if (c.inner == 2304) {  // W1 and W3 that want different layouts of x
      Pcg64 random(seed);
      data.experts[0].w3 = random_weight(random, kFp8Block32, c.inner, c.dim);
    }
    std::vector<Expert> experts;
    for (const ExpertData& expert : data.experts) experts.push_back(expert.view());
    ScratchBounds bounds{.tokens = c.tokens,
                         .hidden = c.dim,
                         .intermediate = c.inner,
                         .experts = c.experts,
                         .experts_per_token = c.top_k};
    const auto moe = [&](const OpTable& on, int threads) {
      Rows y(c.tokens, c.dim, c.dtype);
      run_on(on, &OpTable::moe,
             MoeArgs{data.input_view(data.experts[0]), data.input_view(data.shared), experts.data(), c.experts,
                     data.shared.view(), data.ids.data(), data.weights.data(), c.top_k, data.limit, y.view()},
             bounds, threads);
      return y;
    };
    const Rows expected = moe(reference_table(), 1);
    for (int threads : {1, 2, 5}) expect_same_rows(case_text(c), moe(table(), threads), expected);
  }
}

TEST_P(CpuEquality, QuantizerOfAnyBits) {
  Pcg64 random(9);
  for (DType dtype : {DType::kBF16, DType::kF32}) {
    Rows x(400, 96, dtype);
    for (int64_t t = 0; t < x.rows(); ++t) {
      const auto base = static_cast<uint32_t>(random.integer(0, 250));
      for (int64_t k = 0; k < x.columns(); ++k) {
        // Exponents near each other, all mantissas; now and then anything at all, NaN and infinity included.
        uint32_t bits = static_cast<uint32_t>(random.integer(0, int64_t{1} << 32));
        if (random.integer(0, 400) != 0) {
          bits = (bits & 0x807FFFFFu) | (base + static_cast<uint32_t>(random.integer(0, 5))) << 23;
        }
        x.set(t, k, std::bit_cast<float>(bits));
      }
    }
    ScratchBounds bounds{.tokens = x.rows(), .columns = x.columns()};
    Rows expected(x.rows(), x.columns(), dtype);
    Rows actual(x.rows(), x.columns(), dtype);
    run_on(reference_table(), &OpTable::quantize_mxfp8, {x.view(), expected.view(Grid::kMxfp8)}, bounds, 1);
    run_on(table(), &OpTable::quantize_mxfp8, {x.view(), actual.view(Grid::kMxfp8)}, bounds, 3);
    expect_same_rows("mxfp8", actual, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, CpuEquality, testing::ValuesIn(tables_under_test()), table_name);

}  // namespace
}  // namespace ps::ops::test
