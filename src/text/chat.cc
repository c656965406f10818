#include "text/chat.h"

#include <array>
#include <utility>

namespace ps::text {
namespace {

constexpr std::array<std::pair<Role, std::string_view>, 6> kRoles = {{{Role::kSystem, "system"},
                                                                      {Role::kDeveloper, "developer"},
                                                                      {Role::kUser, "user"},
                                                                      {Role::kAssistant, "assistant"},
                                                                      {Role::kTool, "tool"},
                                                                      {Role::kLatestReminder, "latest_reminder"}}};
constexpr std::array<std::pair<Task, std::string_view>, 6> kTasks = {{{Task::kAction, "action"},
                                                                      {Task::kQuery, "query"},
                                                                      {Task::kAuthority, "authority"},
                                                                      {Task::kDomain, "domain"},
                                                                      {Task::kTitle, "title"},
                                                                      {Task::kReadUrl, "read_url"}}};

template <typename Table, typename Value>
std::string_view name_in(const Table& table, Value value) noexcept {
  for (const auto& [entry, name] : table) {
    if (entry == value) return name;
  }
  return "";
}

template <typename Value, size_t kSize>
std::optional<Value> find_in(const std::array<std::pair<Value, std::string_view>, kSize>& table,
                             std::string_view name) noexcept {
  for (const auto& [value, entry] : table) {
    if (entry == name) return value;
  }
  return std::nullopt;
}

}  // namespace

std::string_view role_name(Role role) noexcept { return name_in(kRoles, role); }
std::optional<Role> find_role(std::string_view name) noexcept { return find_in(kRoles, name); }
std::string_view task_name(Task task) noexcept { return name_in(kTasks, task); }
std::optional<Task> find_task(std::string_view name) noexcept { return find_in(kTasks, name); }

std::string effort_name(const ReasoningEffort& effort) {
  switch (effort.level) {
    case ReasoningEffort::Level::kLow: return "low";
    case ReasoningEffort::Level::kHigh: return "high";
    case ReasoningEffort::Level::kXhigh: return "xhigh";
    case ReasoningEffort::Level::kMax: return "max";
    case ReasoningEffort::Level::kNumber: return std::to_string(effort.number);
  }
  return "?";
}

}  // namespace ps::text
