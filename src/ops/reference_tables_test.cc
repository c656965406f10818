// The tables that this program's suites run on: the reference.
#include "ops/testing/op_fixture.h"

namespace ps::ops::test {

std::vector<TableUnderTest> tables_under_test() { return {{&reference_table()}}; }

TEST(ReferenceTable, HasEveryOp) {
  const OpTable& table = reference_table();
  EXPECT_STREQ(table.name, "ref");
  // Every member after the name is a pointer to a function.
  const void* const* members = reinterpret_cast<const void* const*>(&table);
  for (size_t i = 0; i < sizeof table / sizeof(void*); ++i) EXPECT_NE(members[i], nullptr) << "member " << i;
}

}  // namespace ps::ops::test
