#include <gmock/gmock.h>

#include <cmath>
#include <numbers>

#include "apps/eval/report.h"
#include "apps/eval/statistics.h"
#include "apps/eval/summary.h"
#include "base/testing.h"

namespace ps::apps::eval {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

void expect_interval(const Interval& got, double value, double low, double high, double tolerance) {
  EXPECT_NEAR(got.value, value, tolerance);
  EXPECT_NEAR(got.low, low, tolerance);
  EXPECT_NEAR(got.high, high, tolerance);
}

TEST(Statistics, WilsonGivesThePublishedIntervals) {
  // Newcombe 1998, table I, method 3.
  expect_interval(wilson(81, 263), 0.3080, 0.2553, 0.3662, 5e-5);
  expect_interval(wilson(15, 148), 0.1014, 0.0624, 0.1605, 5e-5);
  expect_interval(wilson(0, 20), 0, 0, 0.1611, 5e-5);
  expect_interval(wilson(1, 29), 0.0345, 0.0061, 0.1718, 5e-5);
  expect_interval(wilson(20, 20), 1, 0.8389, 1, 5e-5);
  expect_interval(wilson(0, 0), 0, 0, 1, 0);
}

TEST(Statistics, PairedDifferenceCountsOneMoreDiscordantCaseOnEitherSide) {
  const Interval got = paired_difference({.cases = 98, .only_first = 9, .only_second = 19});
  // By hand: p = 10/100 and 20/100, their difference 0.1, variance (0.3 - 0.01) / 100.
  expect_interval(got, 10.0 / 98, 0.1 - 1.959964 * 0.0538516, 0.1 + 1.959964 * 0.0538516, 1e-6);
  const Interval equal = paired_difference({.cases = 100});
  EXPECT_LT(equal.low, 0);
  EXPECT_NEAR(equal.low, -equal.high, 1e-15);
  expect_interval(paired_difference({}), 0, -1, 1, 0);
}

TEST(Statistics, ClustersAreTheIndependentUnits) {
  // Means 1 and 3 of equal weight: residuals of +-10, variance 2/1 * 200, over a count of 20.
  const std::vector<Cluster> two = {{10, 10}, {10, 30}};
  expect_interval(clustered_mean(two), 2, 2 - 1.959964 * 1, 2 + 1.959964 * 1, 1e-6);
  EXPECT_TRUE(std::isinf(clustered_mean(std::vector<Cluster>{{10, 10}}).high));
}

// A run with one text and answers that are right by a list.
struct Fixture {
  explicit Fixture(const std::vector<bool>& right, double loss) {
    cases.resize(right.size());
    outcomes.texts.push_back({"t0", "s", 100, 300, loss});
    outcomes.texts.push_back({"t1", "s", 100, 300, loss});
    for (size_t i = 0; i < right.size(); ++i) {
      cases[i].id = "c" + std::to_string(i);
      cases[i].skill = i < 2 ? "fact" : std::string(kNeedleSkill);
      cases[i].needle_tokens = i < 2 ? 0 : 1000;
      cases[i].needle_depth = i % 2 == 0 ? 0.25 : 0.75;
      AnswerOutcome outcome;
      outcome.asked = &cases[i];
      outcome.text = right[i] ? "yes" : "no";
      outcome.ended = outcome.is_exact = outcome.is_right = right[i];
      outcomes.answers.push_back(outcome);
    }
    outcomes.seconds = 2;
  }
  std::vector<AnswerCase> cases;
  Outcomes outcomes;
};

const ReportHead kHead{"model", "suite", "0123456789abcdef", {{"index-cache-dtype", "fp4"}}};  // NOLINT

TEST(Summary, AddsUp) {
  const Fixture run({true, false, true, true, false, true}, 200);
  const Summary summary = summarize(run.outcomes);
  EXPECT_NEAR(summary.text->perplexity.value, std::exp(2.0), 1e-12);
  EXPECT_NEAR(summary.text->bits_per_byte.value, 400 / std::numbers::ln2 / 600, 1e-12);
  ASSERT_EQ(summary.skills.size(), 1U);
  EXPECT_EQ(summary.skills[0].exact.hits, 1);
  EXPECT_EQ(summary.skills[0].exact.of, 2);
  EXPECT_FALSE(summary.tools.has_value());
  ASSERT_EQ(summary.needles.size(), 2U);
  EXPECT_EQ(summary.needles[0].depth, 0.25);
  EXPECT_EQ(summary.needles[0].exact.hits, 1);
  EXPECT_EQ(summary.needles[1].exact.hits, 2);
  const std::string text = to_text(summary);
  EXPECT_THAT(text, HasSubstr("50.0 % [9.5, 90.5]"));
  EXPECT_THAT(text, HasSubstr("25 %"));
  EXPECT_THAT(text, HasSubstr("1/2"));
}

TEST(Summary, ShowsWrongAnswersFirst) {
  const Fixture run({true, false}, 1);
  const std::string one = show_answers(run.outcomes, 1);
  EXPECT_THAT(one, HasSubstr("WRONG c1"));
  EXPECT_THAT(one, Not(HasSubstr("exact c0")));
  EXPECT_THAT(show_answers(run.outcomes, 2), HasSubstr("exact c0"));
}

TEST(Summary, DrawsACellForEveryDistanceAndDepth) {
  const Fixture run({true, false, true, true, false, true}, 1);
  const std::string svg = heat_map_svg(summarize(run.outcomes).needles, "a < b");
  EXPECT_THAT(svg, HasSubstr("a &lt; b"));
  EXPECT_THAT(svg, HasSubstr(">1/2<"));
  EXPECT_THAT(svg, HasSubstr(">2/2<"));
  EXPECT_THAT(svg, HasSubstr(">1,000<"));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
}

class Reports : public ::testing::Test {
 protected:
  Baseline written(const Fixture& run) {
    const Summary summary = summarize(run.outcomes);
    EXPECT_TRUE(write_file(path(), report_json(kHead, run.outcomes, summary, nullptr, nullptr)).ok());
    auto read = read_report(path());
    EXPECT_TRUE(read.ok()) << read.status().to_string();
    return read.ok() ? std::move(read).value() : Baseline();
  }
  std::filesystem::path path() const { return folder_.path() / "report.json"; }
  test::TemporaryFolder folder_;
};

TEST_F(Reports, ComeBackAsTheyWereWritten) {
  const Fixture run({true, false, true}, 123.25);
  const Baseline read = written(run);
  EXPECT_EQ(read.head.suite_sha256, kHead.suite_sha256);
  EXPECT_EQ(read.head.settings, kHead.settings);
  EXPECT_EQ(read.texts.at("t0").loss, 123.25);
  EXPECT_EQ(read.answers.size(), 3U);
  EXPECT_TRUE(read.answers.at("c0").is_exact);
  EXPECT_FALSE(read.answers.at("c1").is_exact);
  EXPECT_EQ(read.answers.at("c1").text, "no");
}

TEST_F(Reports, AreComparedCaseByCase) {
  const Baseline before = written(Fixture({true, false, true, true}, 200));
  const Fixture now({true, true, false, true, true}, 201);
  ReportHead head = kHead;
  head.settings[0].second = "fp8";
  const Comparison comparison = compare(before, head, now.outcomes).value();
  EXPECT_EQ(comparison.unmatched, 1);
  EXPECT_EQ(comparison.windows, 2);
  EXPECT_NEAR(comparison.loss_difference.value, 0.01, 1e-12);
  ASSERT_EQ(comparison.rows.size(), 3U);
  EXPECT_EQ(comparison.rows[0].name, "fact");
  EXPECT_EQ(comparison.rows[0].exact.only_second, 1);
  EXPECT_EQ(comparison.rows[1].name, "needle 1,000");
  EXPECT_EQ(comparison.rows[1].exact.only_first, 1);
  EXPECT_EQ(comparison.rows[2].exact.cases, 4);
  EXPECT_EQ(comparison.rows[2].same_text, 2);
  const std::string text = to_text(comparison, before, head);
  EXPECT_THAT(text, HasSubstr("index-cache-dtype fp4 -> fp8"));
  EXPECT_THAT(text, HasSubstr("+0.01000"));
  const std::string json = report_json(head, now.outcomes, summarize(now.outcomes), &comparison, &before);
  EXPECT_TRUE(JsonValue::parse(json).ok());
  EXPECT_THAT(json, HasSubstr("\"comparison\""));
}

TEST_F(Reports, OfOtherSuitesAreRefused) {
  const Baseline before = written(Fixture({true}, 1));
  const Fixture now({true}, 1);
  ReportHead other = kHead;
  other.suite_sha256 = "fedcba9876543210";
  EXPECT_THAT(compare(before, other, now.outcomes).status().to_string(), HasSubstr("another suite"));
  Outcomes nothing;
  EXPECT_THAT(compare(before, kHead, nothing).status().to_string(), HasSubstr("none of the cases"));
}

TEST_F(Reports, ThatAreNoReportsAreRefused) {
  const auto refusal = [&](std::string_view content) {
    EXPECT_TRUE(write_file(path(), content).ok());
    return read_report(path()).status().to_string();
  };
  EXPECT_THAT(refusal("{}"), HasSubstr(path().string() + ": \"model\" is missing"));
  EXPECT_THAT(refusal("[1"), HasSubstr(path().string()));
  EXPECT_THAT(refusal(R"({"model": "m", "suite": "s", "suite_sha256": 3})"), HasSubstr("a number"));
}

}  // namespace
}  // namespace ps::apps::eval
