#include "text/tool_call_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace ps::text {
namespace {

ToolCall call(std::string id, std::string arguments = "{}") { return {std::move(id), "f", std::move(arguments)}; }

std::string found(ToolCallMemory& memory, std::vector<ToolCall> calls) {
  const auto block = memory.find(calls);
  return block == nullptr ? "" : *block;
}

TEST(ToolCallMemory, GivesABlockForTheSameCallsOnly) {
  ToolCallMemory memory;
  const std::vector<ToolCall> calls = {call("a", R"({"x": [1, 2.50], "y": "s"})"), call("b")};
  memory.remember(calls, "BLOCK");
  EXPECT_EQ(found(memory, calls), "BLOCK");
  EXPECT_EQ(found(memory, {call("a", R"({"y":"\u0073","x":[1,2.5]})"), call("b", " { } ")}), "BLOCK");
  EXPECT_EQ(found(memory, {call("b"), calls[0]}), "") << "other order";
  EXPECT_EQ(found(memory, {calls[0]}), "") << "one call less";
  EXPECT_EQ(found(memory, {calls[0], call("b", R"({"z": 0})")}), "") << "other arguments";
  EXPECT_EQ(found(memory, {calls[0], call("b", "[]")}), "") << "other kind of arguments";
  EXPECT_EQ(found(memory, {calls[0], call("b", "{")}), "") << "no JSON";
  EXPECT_EQ(found(memory, {calls[0], {"b", "g", "{}"}}), "") << "other name";
  EXPECT_EQ(found(memory, {calls[0], call("c")}), "") << "other id";
  EXPECT_EQ(found(memory, {}), "");
}

TEST(ToolCallMemory, KeepsArgumentsThatAreNoJsonByTheirBytes) {
  ToolCallMemory memory;
  memory.remember(std::vector{call("a", R"({"n": 01.50})")}, "BLOCK");
  EXPECT_EQ(found(memory, {call("a", R"({"n": 01.50})")}), "BLOCK");
  EXPECT_EQ(found(memory, {call("a", R"({"n": 1.50})")}), "");
}

TEST(ToolCallMemory, DropsTheLeastRecentlyUsedFirst) {
  ToolCallMemory memory({.bytes = 1 << 20, .blocks = 2});
  memory.remember(std::vector{call("a")}, "A");
  memory.remember(std::vector{call("b")}, "B");
  EXPECT_EQ(found(memory, {call("a")}), "A");  // now b is the oldest
  memory.remember(std::vector{call("c"), call("d")}, "CD");
  EXPECT_EQ(found(memory, {call("b")}), "");
  EXPECT_EQ(found(memory, {call("a")}), "A");
  EXPECT_EQ(found(memory, {call("c"), call("d")}), "CD");
  EXPECT_EQ(memory.blocks(), 2);
}

TEST(ToolCallMemory, StaysWithinItsBytes) {
  ToolCallMemory memory({.bytes = 5000, .blocks = 1000});
  for (int i = 0; i < 100; ++i) {
    memory.remember(std::vector{call(std::to_string(i))}, std::string(1000, 'x'));
    EXPECT_LE(memory.bytes(), 5000);
  }
  EXPECT_GE(memory.blocks(), 3);
  memory.remember(std::vector{call("big")}, std::string(6000, 'x'));
  EXPECT_EQ(found(memory, {call("big")}), "");
  EXPECT_GE(memory.blocks(), 3) << "what does not fit displaces nothing";
}

TEST(ToolCallMemory, ReplacesAKnownIdAndIgnoresCallsWithoutOne) {
  ToolCallMemory memory;
  memory.remember(std::vector{call("a"), call("b")}, "OLD");
  memory.remember(std::vector{call("b")}, "NEW");
  EXPECT_EQ(found(memory, {call("a"), call("b")}), "");
  EXPECT_EQ(found(memory, {call("b")}), "NEW");
  memory.remember(std::vector{call("")}, "NONE");
  EXPECT_EQ(found(memory, {call("")}), "");
  memory.remember(std::vector{call("same"), call("same")}, "TWICE");
  EXPECT_EQ(found(memory, {call("same"), call("same")}), "TWICE");
  memory.remember(std::vector{call("same")}, "ONCE");
  EXPECT_EQ(found(memory, {call("same")}), "ONCE");
  EXPECT_EQ(memory.blocks(), 2);
}

TEST(ToolCallMemoryThreads, ServesManyAtOnce) {
  ToolCallMemory memory({.bytes = 1 << 16, .blocks = 50});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&memory, t] {
      for (int i = 0; i < 2000; ++i) {
        const std::string id = std::to_string((i * 7 + t) % 90);
        memory.remember(std::vector{call(id)}, "block of " + id);
        const std::string other = std::to_string(i % 90);
        const auto block = memory.find(std::vector{call(other)});
        if (block != nullptr) {
          EXPECT_EQ(*block, "block of " + other);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(memory.blocks(), 50);
}

}  // namespace
}  // namespace ps::text
