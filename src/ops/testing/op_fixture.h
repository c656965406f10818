// The kit of the op suites: which tables are tested, what an op runs on, owning test buffers, generators and
// comparators. Test programs only.
//
// A suite (ops/testing/*_suite.h) is a list of cases and the expectations of one contract header. It runs on every
// table that the including program returns from tables_under_test(), and is included by one source file of that
// program. Expected bits come from a second transcription of the contract inside the suite, never from the reference
// table, so the reference is tested by the same suite. REQUIRES: expectations that compute are made under
// FlushSubnormals.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/macros.h"
#include "base/number_formats.h"
#include "base/pcg64.h"
#include "base/thread_pool.h"
#include "ops/table.h"

namespace ps::ops::test {

struct TableUnderTest {
  const OpTable* table = nullptr;
  bool is_bitwise = true;  // computes in the canonical orders; otherwise results are compared by bound
};
// Defined once by each test program.
[[nodiscard]] std::vector<TableUnderTest> tables_under_test();

inline std::string table_name(const testing::TestParamInfo<TableUnderTest>& info) { return info.param.table->name; }

inline std::ostream& operator<<(std::ostream& out, const TableUnderTest& under_test) {
  return out << under_test.table->name;
}

// Scratch of exactly this size, NaN everywhere: what an op does not write, it must not use. The memory of the last few
// sizes is kept for the next call: fresh pages would cost more than most ops under test.
inline Arena& fresh_scratch(int64_t size_bytes) {
  static std::map<int64_t, Arena> kept;
  auto found = kept.find(size_bytes);
  if (found == kept.end()) {
    if (kept.size() == 16) kept.clear();
    found = kept.emplace(size_bytes, HostBuffer::allocate(size_bytes).value()).first;
  }
  Arena& arena = found->second;
  arena.reset();
  std::memset(arena.take_bytes(size_bytes), 0xFF, static_cast<size_t>(size_bytes));
  arena.reset();
  return arena;
}

// A fixture parameterised over the tables.
class OpSuite : public testing::TestWithParam<TableUnderTest> {
 protected:
  [[nodiscard]] const OpTable& table() const { return *GetParam().table; }
  [[nodiscard]] bool is_bitwise() const { return GetParam().is_bitwise; }

  // Checks the arguments, then runs the op on `threads` threads with exactly the scratch that the table asks for.
  template <typename Args>
  void run_op(Op<Args> op, const Args& args, ScratchBounds bounds, int threads = 1) const {
    const Status status = check(args);
    ASSERT_TRUE(status.ok()) << status.to_string();
    bounds.threads = threads;
    ThreadPool pool(threads);
    Arena& arena = fresh_scratch(table().scratch_bytes(bounds));
    Exec exec{pool, arena};
    op(args, exec);
    EXPECT_EQ(arena.used_bytes(), 0) << "scratch was not given back";
  }
};

// Thread counts that every op must agree on.
inline constexpr int kThreadCounts[] = {1, 3};

// An owned activation matrix. Rows lie `gap` elements further apart than they are long; the gaps hold a pattern that no
// op may change.
class Rows {
 public:
  Rows() = default;
  Rows(int64_t rows, int64_t columns, DType dtype, int64_t gap = 3)
      : rows_(rows),
        columns_(columns),
        stride_(columns + gap),
        dtype_(dtype),
        words_(static_cast<size_t>(rows * (columns + gap)), kPattern) {}

  [[nodiscard]] int64_t rows() const { return rows_; }
  [[nodiscard]] int64_t columns() const { return columns_; }
  [[nodiscard]] DType dtype() const { return dtype_; }

  // Views of this buffer. NOTE: BF16 elements lie in the first half of the storage.
  [[nodiscard]] Activations view(Grid grid = Grid::kNone) {
    return {rows_ == 0 ? nullptr : words_.data(), dtype_, grid, rows_, columns_, stride_};
  }
  [[nodiscard]] ConstActivations view(Grid grid = Grid::kNone) const {
    return {rows_ == 0 ? nullptr : words_.data(), dtype_, grid, rows_, columns_, stride_};
  }

  [[nodiscard]] float at(int64_t row, int64_t column) const { return load(view(), row, column); }
  // Rounds to the dtype.
  void set(int64_t row, int64_t column, float value) { store(view(), row, column, value); }
  [[nodiscard]] std::vector<float> row(int64_t row) const {
    std::vector<float> values(static_cast<size_t>(columns_));
    for (int64_t k = 0; k < columns_; ++k) values[static_cast<size_t>(k)] = at(row, k);
    return values;
  }

  // A matrix of this one's row alone.
  [[nodiscard]] Rows only(int64_t row) const {
    Rows alone(1, columns_, dtype_, stride_ - columns_);
    for (int64_t k = 0; k < columns_; ++k) alone.set(0, k, at(row, k));
    return alone;
  }
  [[nodiscard]] Rows converted(DType dtype) const {
    Rows other(rows_, columns_, dtype, stride_ - columns_);
    for (int64_t t = 0; t < rows_; ++t) {
      for (int64_t k = 0; k < columns_; ++k) other.set(t, k, at(t, k));
    }
    return other;
  }

  [[nodiscard]] bool gaps_intact() const {
    for (int64_t t = 0; t < rows_; ++t) {
      for (int64_t k = columns_; k < stride_; ++k) {
        const auto at = static_cast<size_t>(t * stride_ + k);
        if (dtype_ == DType::kF32 && words_[at] != kPattern) return false;
        if (dtype_ == DType::kBF16 && half(at) != half_pattern(at)) return false;
      }
    }
    return true;
  }

 private:
  static constexpr uint32_t kPattern = 0x7FA5C35Au;  // a NaN in both dtypes
  [[nodiscard]] uint16_t half(size_t index) const {
    uint16_t value;
    std::memcpy(&value, reinterpret_cast<const std::byte*>(words_.data()) + index * 2, 2);
    return value;
  }
  static uint16_t half_pattern(size_t index) {
    return static_cast<uint16_t>(index % 2 == 0 ? kPattern : kPattern >> 16);
  }

  int64_t rows_ = 0;
  int64_t columns_ = 0;
  int64_t stride_ = 0;
  DType dtype_ = DType::kF32;
  std::vector<uint32_t> words_;
};

// What the values of a test buffer look like.
enum class Data {
  kNormal,    // standard normal
  kWide,      // normal times 2^(-10 .. 10): cancellation and absorbed terms
  kPositive,  // no cancellation
  kSpecial,   // +-0, subnormals, the smallest normals, +-30, large values
};

inline float random_value(Pcg64& random, Data data) {
  const double u = 1.0 - random.uniform();
  const double normal = std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * random.uniform());
  switch (data) {
    case Data::kNormal: return static_cast<float>(normal);
    case Data::kWide: return static_cast<float>(std::ldexp(normal, static_cast<int>(random.integer(-10, 11))));
    case Data::kPositive: return static_cast<float>(std::fabs(normal));
    case Data::kSpecial: break;
  }
  constexpr float kValues[] = {0.0f, -0.0f, 0x1p-130f, -0x1p-133f, 0x1p-126f, -0x1p-120f,
                               1.0f, -1.0f, 30.0f,     -30.0f,     0x1p40f,   -0x1.8p50f};
  return kValues[random.integer(0, std::size(kValues))];
}

inline Rows random_rows(Pcg64& random, int64_t rows, int64_t columns, DType dtype, Data data = Data::kNormal,
                        int64_t gap = 3) {
  Rows result(rows, columns, dtype, gap);
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t k = 0; k < columns; ++k) result.set(t, k, random_value(random, data));
  }
  return result;
}

// Any bits: every code of a grid, its ties and its end, subnormals, and here and there a NaN or an infinity.
inline Rows random_bits(Pcg64& random, int64_t rows, int64_t columns, DType dtype) {
  Rows result(rows, columns, dtype);
  for (int64_t t = 0; t < rows; ++t) {
    const auto exponent = static_cast<uint32_t>(random.integer(0, 250));
    for (int64_t k = 0; k < columns; ++k) {
      auto bits = static_cast<uint32_t>(random.integer(0, int64_t{1} << 32));
      if (random.integer(0, 400) != 0) {
        bits = (bits & 0x80700000u) | (exponent + static_cast<uint32_t>(random.integer(0, 5))) << 23;
      }
      result.set(t, k, std::bit_cast<float>(bits));
    }
  }
  return result;
}

inline std::vector<float> random_floats(Pcg64& random, int64_t count, Data data = Data::kNormal) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = random_value(random, data);
  return values;
}

// A vector operand with its storage.
class VectorData {
 public:
  VectorData() = default;
  VectorData(const std::vector<float>& values, DType dtype)
      : dtype_(dtype), size_(static_cast<int64_t>(values.size())) {
    for (float value : values) {
      const uint32_t bits = std::bit_cast<uint32_t>(value);
      const uint16_t half = to_bf16(value).bits;
      const void* source = dtype == DType::kF32 ? static_cast<const void*>(&bits) : &half;
      const auto* bytes = static_cast<const std::byte*>(source);
      bytes_.insert(bytes_.end(), bytes, bytes + dtype_bytes(dtype));
    }
  }
  [[nodiscard]] Vector view() const { return {bytes_.data(), dtype_, size_}; }
  [[nodiscard]] float at(int64_t index) const { return load(view(), index); }

 private:
  DType dtype_ = DType::kF32;
  int64_t size_ = 0;
  std::vector<std::byte> bytes_;
};

// Equal bits, any NaN equal to any other.
inline bool same_bits(float left, float right) {
  if (std::isnan(left) || std::isnan(right)) return std::isnan(left) && std::isnan(right);
  return std::bit_cast<uint32_t>(left) == std::bit_cast<uint32_t>(right);
}

// Bit for bit; reports the first difference and their number.
template <typename Left, typename Right>
void expect_same_values(const std::string& what, int64_t rows, int64_t columns, const Left& actual,
                        const Right& expected) {
  int64_t differences = 0;
  std::string first;
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t k = 0; k < columns; ++k) {
      const float a = actual(t, k);
      const float e = expected(t, k);
      if (same_bits(a, e)) continue;
      if (differences++ == 0) {
        char text[160];
        std::snprintf(text, sizeof text, "[%lld, %lld] is %.9g, expected %.9g", static_cast<long long>(t),
                      static_cast<long long>(k), static_cast<double>(a), static_cast<double>(e));
        first = text;
      }
    }
  }
  EXPECT_EQ(differences, 0) << what << ": " << first;
}

inline void expect_same_rows(const std::string& what, const Rows& actual, const Rows& expected) {
  ASSERT_EQ(actual.rows(), expected.rows()) << what;
  ASSERT_EQ(actual.columns(), expected.columns()) << what;
  expect_same_values(
      what, actual.rows(), actual.columns(), [&](int64_t t, int64_t k) { return actual.at(t, k); },
      [&](int64_t t, int64_t k) { return expected.at(t, k); });
}

inline void expect_same_floats(const std::string& what, const std::vector<float>& actual,
                               const std::vector<float>& expected) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  expect_same_values(
      what, 1, static_cast<int64_t>(actual.size()), [&](int64_t, int64_t k) { return actual[static_cast<size_t>(k)]; },
      [&](int64_t, int64_t k) { return expected[static_cast<size_t>(k)]; });
}

// Row `from` of the batch equals row `to` of another run, bit for bit.
inline void expect_same_row(const std::string& what, const Rows& actual, int64_t to, const Rows& expected,
                            int64_t from) {
  ASSERT_EQ(actual.columns(), expected.columns()) << what;
  expect_same_values(
      what, 1, actual.columns(), [&](int64_t, int64_t k) { return actual.at(to, k); },
      [&](int64_t, int64_t k) { return expected.at(from, k); });
}

// A value computed in F64 and how far the op may be from it, its rounding to F32 included.
struct Bounded {
  double value = 0;
  double bound = 0;
};

// Adds what a store in `dtype` may cost: half a unit in the last place of BF16, and the smallest normal float.
inline Bounded stored(Bounded exact, DType dtype) {
  const double largest = std::fabs(exact.value) + exact.bound;
  if (dtype == DType::kBF16) exact.bound += largest * 0x1p-8;
  exact.bound += 0x1p-126;
  return exact;
}

// Infinities and NaN must be at the same positions; finite values within the bound.
inline bool within(float actual, const Bounded& expected) {
  if (std::isnan(expected.value)) return std::isnan(actual);
  if (std::isnan(actual)) return false;
  if (std::isinf(static_cast<float>(expected.value)) || std::isinf(actual)) {
    return static_cast<float>(expected.value) == actual;
  }
  return std::fabs(static_cast<double>(actual) - expected.value) <= expected.bound;
}

template <typename Expected>
void expect_within(const std::string& what, const Rows& actual, const Expected& expected) {
  int64_t differences = 0;
  double worst = -1;
  std::string text;
  for (int64_t t = 0; t < actual.rows(); ++t) {
    for (int64_t k = 0; k < actual.columns(); ++k) {
      const Bounded e = expected(t, k);
      if (within(actual.at(t, k), e)) continue;
      ++differences;
      const double distance = std::fabs(static_cast<double>(actual.at(t, k)) - e.value);
      if (text.empty() || distance > worst) {
        worst = distance;
        char line[200];
        std::snprintf(line, sizeof line, "worst at [%lld, %lld]: %.9g, expected %.9g within %.3g",
                      static_cast<long long>(t), static_cast<long long>(k), static_cast<double>(actual.at(t, k)),
                      e.value, e.bound);
        text = line;
      }
    }
  }
  EXPECT_EQ(differences, 0) << what << ": " << text;
}

// Row by row |actual - expected| <= limit * |expected| in the Euclidean norm: for tables with orders of their own,
// where an intermediate may round to the neighbouring grid value.
inline void expect_near_rows(const std::string& what, const Rows& actual, const Rows& expected, double limit) {
  for (int64_t t = 0; t < actual.rows(); ++t) {
    double distance = 0;
    double size = 0;
    for (int64_t k = 0; k < actual.columns(); ++k) {
      const double e = static_cast<double>(expected.at(t, k));
      distance += std::pow(static_cast<double>(actual.at(t, k)) - e, 2);
      size += e * e;
    }
    EXPECT_LE(std::sqrt(distance), limit * std::sqrt(size) + 0x1p-126) << what << " row " << t;
  }
}

// The canonical dot product of linear.h, transcribed: values past the end count as zero.
inline float contract_dot(const std::vector<float>& a, const std::vector<float>& b) {
  const FlushSubnormals flush;
  const auto value = [](const std::vector<float>& v, size_t i) { return i < v.size() ? v[i] : 0.0f; };
  float acc = 0.0f;
  for (size_t block = 0; block < a.size(); block += 32) {
    float e = 0.0f;
    float o = 0.0f;
    for (size_t p = 0; p < 16; ++p) {
      e = std::fma(value(a, block + 2 * p), value(b, block + 2 * p), e);
      o = std::fma(value(a, block + 2 * p + 1), value(b, block + 2 * p + 1), o);
    }
    acc = acc + (e + o);
  }
  return acc;
}

// Lane-16 order of numerics.h, transcribed: 16 fma chains, folded in halves.
inline float contract_lane_dot(const std::vector<float>& a, const std::vector<float>& b) {
  const FlushSubnormals flush;
  float lanes[16] = {};
  for (size_t lane = 0; lane < 16; ++lane) {
    for (size_t i = lane; i < a.size(); i += 16) lanes[lane] = std::fma(a[i], b[i], lanes[lane]);
  }
  for (size_t lane = 0; lane < 8; ++lane) lanes[lane] = lanes[lane] + lanes[lane + 8];
  for (size_t lane = 0; lane < 4; ++lane) lanes[lane] = lanes[lane] + lanes[lane + 4];
  for (size_t lane = 0; lane < 2; ++lane) lanes[lane] = lanes[lane] + lanes[lane + 2];
  return lanes[0] + lanes[1];
}

// sum of a * b in F64 with a bound for any F32 order of at most `steps` roundings per term; subnormals may be dropped.
inline Bounded exact_dot(const std::vector<float>& a, const std::vector<float>& b, double steps) {
  double sum = 0;
  double magnitude = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double product = static_cast<double>(flush_subnormal(a[i])) * static_cast<double>(flush_subnormal(b[i]));
    sum += product;
    magnitude += std::fabs(product);
  }
  return {sum, steps * 0x1p-24 * magnitude * 1.01 + static_cast<double>(2 * a.size() + 2) * 0x1p-126};
}
// Roundings per term of the canonical order: 16 fma, the pair, and one per block.
inline double canonical_steps(int64_t columns) { return 17.0 + static_cast<double>((columns + 31) / 32); }

}  // namespace ps::ops::test
