#include "base/buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

namespace ps {
namespace {

TEST(HostBuffer, IsPageAlignedAndZeroFilled) {
  HostBuffer buffer = HostBuffer::allocate(10000).value();
  EXPECT_EQ(buffer.size_bytes(), 10000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 4096, 0u);
  const auto words = buffer.as<uint32_t>();
  EXPECT_EQ(words.size(), 2500u);
  EXPECT_TRUE(std::all_of(words.begin(), words.end(), [](uint32_t word) { return word == 0; }));
}

TEST(HostBuffer, AnEmptyOneNeedsNoMemory) {
  HostBuffer buffer = HostBuffer::allocate(0).value();
  EXPECT_EQ(buffer.data(), nullptr);
  EXPECT_EQ(buffer.size_bytes(), 0);
  EXPECT_TRUE(buffer.as<float>().empty());
}

TEST(HostBuffer, RefusesWhatTheSystemCannotGive) {
  const auto refused = HostBuffer::allocate(std::numeric_limits<int64_t>::max() / 2);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kExhausted);
  EXPECT_NE(refused.status().message().find("4611686018427387903 bytes"), std::string_view::npos);
}

TEST(HostBuffer, MovesItsOwnership) {
  HostBuffer first = HostBuffer::allocate(64).value();
  std::byte* data = first.data();
  HostBuffer second = std::move(first);
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(first.data(), nullptr);  // NOLINT(bugprone-use-after-move): the moved-from state is part of the contract
  HostBuffer third;
  third = std::move(second);
  EXPECT_EQ(third.data(), data);
  EXPECT_EQ(third.size_bytes(), 64);
}

TEST(Arena, GivesAlignedPiecesThatDoNotOverlap) {
  Arena arena(HostBuffer::allocate(4096).value());
  auto* bytes = arena.take<uint8_t>(3);
  auto* floats = arena.take<float>(17);
  auto* none = arena.take<double>(0);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes) % Arena::kAlignment, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(floats) % Arena::kAlignment, 0u);
  EXPECT_EQ(reinterpret_cast<std::byte*>(floats) - reinterpret_cast<std::byte*>(bytes), 64);
  EXPECT_EQ(reinterpret_cast<std::byte*>(none) - reinterpret_cast<std::byte*>(floats), 128);
  EXPECT_EQ(arena.used_bytes(), 192);
  EXPECT_EQ(arena.capacity_bytes(), 4096);
}

TEST(Arena, ReleasesToAMarkAndRemembersItsPeak) {
  Arena arena(HostBuffer::allocate(1024).value());
  (void)arena.take_bytes(64);
  const int64_t mark = arena.mark();
  std::byte* piece = arena.take_bytes(512);
  arena.release(mark);
  EXPECT_EQ(arena.take_bytes(1), piece);
  arena.reset();
  EXPECT_EQ(arena.used_bytes(), 0);
  EXPECT_EQ(arena.peak_bytes(), 576);
}

TEST(Arena, CanBeUsedUpToItsLastByte) {
  Arena arena(HostBuffer::allocate(100).value());
  (void)arena.take_bytes(64);
  std::memset(arena.take_bytes(36), 1, 36);
  EXPECT_EQ(arena.used_bytes(), 100);
}

TEST(ArenaDeathTest, RunningOutIsABug) {
  Arena arena(HostBuffer::allocate(128).value());
  (void)arena.take_bytes(64);
  EXPECT_DEATH((void)arena.take_bytes(65), "arena of 128 bytes, left 64 wanted 65");
  EXPECT_DEATH((void)arena.take_bytes(-1), "wanted -1");
  EXPECT_DEATH((void)arena.take_bytes(std::numeric_limits<int64_t>::max()), "check failed");
}

}  // namespace
}  // namespace ps
