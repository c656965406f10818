// The lowest free id always goes first, whatever came back in what order; a slot is never given or taken twice.
#include "cache/id_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/pcg64.h"
#include "cache/state_slots.h"

namespace ps::cache {
namespace {

TEST(IdSet, HoldsEveryIdAndGivesTheLowest) {
  for (const int32_t capacity : {0, 1, 63, 64, 65, 4096, 4097, 262'145}) {
    IdSet set(capacity);
    EXPECT_EQ(set.size(), capacity);
    for (int32_t id = 0; id < capacity; ++id) {
      ASSERT_TRUE(set.contains(id));
      ASSERT_EQ(set.take_lowest(), id);
      ASSERT_FALSE(set.contains(id));
    }
    EXPECT_TRUE(set.empty());
    for (int32_t id = capacity; id-- > 0;) set.insert(id);
    EXPECT_EQ(set.size(), capacity);
    EXPECT_TRUE(capacity == 0 || set.take_lowest() == 0);
  }
}

TEST(IdSet, FollowsAnOrderedSet) {
  for (const int32_t capacity : {3, 200, 5000}) {
    SCOPED_TRACE(capacity);
    Pcg64 random(static_cast<uint64_t>(capacity));
    IdSet set(capacity);
    std::set<int32_t> model;
    for (int32_t id = 0; id < capacity; ++id) model.insert(id);
    for (int step = 0; step < 20'000; ++step) {
      const auto id = static_cast<int32_t>(random.integer(0, capacity));
      ASSERT_EQ(set.contains(id), model.contains(id));
      if (random.integer(0, 2) == 0 && !model.contains(id)) {
        set.insert(id);
        model.insert(id);
      } else if (!model.empty()) {
        ASSERT_EQ(set.take_lowest(), *model.begin());
        model.erase(model.begin());
      }
      ASSERT_EQ(set.size(), std::ssize(model));
    }
  }
}

TEST(StateSlots, LowestFirst) {
  StateSlots slots(4);
  for (int32_t id = 0; id < 4; ++id) EXPECT_EQ(slots.take(), SlotId{id});
  EXPECT_EQ(slots.take(), std::nullopt);
  for (const int32_t id : {2, 0, 3}) slots.release(SlotId{id});
  EXPECT_EQ(slots.available(), 3);
  for (const int32_t id : {0, 2, 3}) EXPECT_EQ(slots.take(), SlotId{id});
  EXPECT_EQ(StateSlots(0).take(), std::nullopt);
}

TEST(StateSlotsDeathTest, RefusesWhatIsFreeOrForeign) {
  StateSlots slots(2);
  EXPECT_DEATH(slots.release(SlotId{0}), "is free");
  EXPECT_DEATH(slots.release(SlotId{2}), "of 2");
  EXPECT_DEATH(slots.release(SlotId{-1}), "of 2");
}

}  // namespace
}  // namespace ps::cache
