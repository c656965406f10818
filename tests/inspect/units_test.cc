#include "apps/units.h"

#include <gtest/gtest.h>

#include "apps/text_table.h"

namespace ps::apps {
namespace {

TEST(Units, Grouped) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(510'286'023'000), "510,286,023,000");
  EXPECT_EQ(grouped(-123'456), "-123,456");
  EXPECT_EQ(grouped(-12'345), "-12,345");
  EXPECT_EQ(grouped(INT64_MIN), "-9,223,372,036,854,775,808");
}

TEST(Units, HumanSizes) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1536), "1.50 KiB");
  EXPECT_EQ(human_bytes(510'286'023'000), "475.24 GiB");
  EXPECT_EQ(human_bytes(INT64_MAX), "8.00 EiB");
  EXPECT_EQ(human_count(763'205'315'794), "763.21 B");
  EXPECT_EQ(human_count(1'048'576), "1.05 M");
  EXPECT_EQ(human_count(999'999), "999,999");
}

TEST(Units, ParseBytes) {
  EXPECT_EQ(parse_bytes("0").value(), 0);
  EXPECT_EQ(parse_bytes("1000000").value(), 1'000'000);
  EXPECT_EQ(parse_bytes("17B").value(), 17);
  EXPECT_EQ(parse_bytes("64GiB").value(), int64_t{64} << 30);
  EXPECT_EQ(parse_bytes("64 gib").value(), int64_t{64} << 30);
  EXPECT_EQ(parse_bytes("64g").value(), int64_t{64} << 30);
  EXPECT_EQ(parse_bytes("1.5TB").value(), 1'500'000'000'000);
  EXPECT_EQ(parse_bytes("2KiB").value(), 2048);
  for (const char* text : {"", "GiB", "-1", "1x", "1GiBs", "nan", "inf", "1e30", "1 G B C", "0x10"}) {
    EXPECT_EQ(parse_bytes(text).status().code(), Code::kInvalid) << text;
  }
}

TEST(TextTable, AlignsColumns) {
  TextTable table({{"name", TextTable::Align::kLeft}, {"bytes"}, {"", TextTable::Align::kLeft}});
  table.add_row({"a", "12", "note"});
  table.add_row({"longer", "3", ""});
  EXPECT_EQ(table.to_string(),
            "  name    bytes\n"
            "  a          12  note\n"
            "  longer      3\n");
}

}  // namespace
}  // namespace ps::apps
