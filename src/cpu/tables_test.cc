// The tables that this program's suites run on: every instruction set that the machine has.
#include "cpu/table.h"

#include "ops/testing/op_fixture.h"

namespace ps::ops::test {

std::vector<TableUnderTest> tables_under_test() {
  std::vector<TableUnderTest> tables;
  for (const cpu::Isa isa : cpu::kIsas) {
    if (cpu::supported(isa).ok()) tables.push_back({cpu::table_for(isa).value()});
  }
  return tables;
}

}  // namespace ps::ops::test

namespace ps::cpu {
namespace {

TEST(CpuTables, AreNamedAfterTheirInstructionSetAndHaveEveryOp) {
  for (const Isa isa : kIsas) {
    const Status status = supported(isa);
    const Result<const ops::OpTable*> table = table_for(isa);
    EXPECT_EQ(table.ok(), status.ok());
    if (!table.ok()) {
      EXPECT_EQ(table.status().code(), Code::kUnsupported);
      EXPECT_FALSE(table.status().message().empty());
      continue;
    }
    EXPECT_EQ(std::string(table.value()->name), isa_name(isa));
    const void* const* members = reinterpret_cast<const void* const*>(table.value());
    for (size_t i = 0; i < sizeof(ops::OpTable) / sizeof(void*); ++i) EXPECT_NE(members[i], nullptr) << isa_name(isa);
  }
}

TEST(CpuTables, EachSetHasItsOwnKernels) {
  std::vector<const ops::OpTable*> seen = {&ops::reference_table()};
  for (const Isa isa : kIsas) {
    if (!supported(isa).ok()) continue;
    const ops::OpTable* table = table_for(isa).value();
    for (const ops::OpTable* other : seen) {
      EXPECT_NE(table->linear, other->linear) << table->name << " " << other->name;
      EXPECT_NE(table->moe, other->moe) << table->name << " " << other->name;
    }
    seen.push_back(table);
  }
}

TEST(CpuTables, TheBestIsTheWidest) {
  std::string widest = "avx2";
  for (const Isa isa : kIsas) {
    if (supported(isa).ok()) widest = isa_name(isa);
  }
  EXPECT_EQ(std::string(table().name), widest);
}

}  // namespace
}  // namespace ps::cpu
