#include "base/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "base/macros.h"

namespace ps {
namespace {

Result<int> half(int x) {
  if (x % 2 != 0) return Status::invalid(std::to_string(x) + " is odd");
  return x / 2;
}

Result<int> quarter(int x) {
  PS_TRY(const int once, half(x));
  PS_TRY(const int twice, half(once));
  return twice;
}

Status must_be_even(int x) {
  PS_RETURN_IF_ERROR(half(x).status());
  return {};
}

TEST(Status, OkIsOnePointerAndHasNoMessage) {
  static_assert(sizeof(Status) == sizeof(void*));
  const Status ok;
  EXPECT_TRUE(ok.ok());
  EXPECT_EQ(ok.message(), "");
  EXPECT_EQ(ok.to_string(), "ok");
  EXPECT_TRUE(Status().with("context").ok());
}

TEST(Status, EveryFactoryCarriesItsCode) {
  const std::pair<Status (*)(std::string), const char*> all[] = {
      {Status::invalid, "invalid"},         {Status::not_found, "not found"}, {Status::corrupt, "corrupt"},
      {Status::unsupported, "unsupported"}, {Status::exhausted, "exhausted"}, {Status::cancelled, "cancelled"},
      {Status::unavailable, "unavailable"}, {Status::internal, "internal"}};
  for (const auto& [make, name] : all) {
    const Status status = make("why");
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(code_name(status.code()), name);
    EXPECT_EQ(status.to_string(), std::string(name) + ": why");
  }
}

TEST(Status, ContextIsPutInFront) {
  const Status status = Status::corrupt("expected 3").with("wq_b").with("layer 14");
  EXPECT_EQ(status.to_string(), "corrupt: layer 14: wq_b: expected 3");
  EXPECT_EQ(status.code(), Code::kCorrupt);
}

TEST(Result, CarriesAValueOrAReason) {
  EXPECT_EQ(half(6).value(), 3);
  EXPECT_TRUE(half(6).status().ok());
  EXPECT_EQ(half(5).status().message(), "5 is odd");
  EXPECT_EQ(half(5).with("half").status().message(), "half: 5 is odd");
  EXPECT_EQ(half(4).with("half").value(), 2);
}

TEST(Result, MacrosReturnTheFirstFailure) {
  EXPECT_EQ(quarter(12).value(), 3);
  EXPECT_EQ(quarter(6).status().message(), "3 is odd");
  EXPECT_EQ(quarter(7).status().message(), "7 is odd");
  EXPECT_TRUE(must_be_even(2).ok());
  EXPECT_FALSE(must_be_even(3).ok());
}

TEST(Result, HoldsTypesThatOnlyMove) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(7);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(*result.value(), 7);
  const std::unique_ptr<int> taken = std::move(result).value();
  EXPECT_EQ(*taken, 7);
}

TEST(CheckDeathTest, PrintsTheExpressionAndTheValues) {
  const int pages = -3;
  EXPECT_DEATH(PS_CHECK(pages >= 0, "pages", pages, std::string("of"), 2), "check failed: pages >= 0: pages -3 of 2");
  EXPECT_DEATH(PS_CHECK(pages > 0), "check failed: pages > 0");
}

}  // namespace
}  // namespace ps
