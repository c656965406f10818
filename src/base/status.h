// Status and Result<T>: how bad data and a bad environment travel upward.
//
// OK is one null pointer, so success costs nothing; a message is built only on failure.
// with("layer 14") prefixes context at each level: "layer 14: wq_b: expected [32768, 1280]".
// Threading: values are independent; a Status may be moved between threads.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace ps {

enum class Code {
  kInvalid,      // the request, option or file says something illegal
  kNotFound,     // a named thing does not exist
  kCorrupt,      // a file contradicts itself or its checksum
  kUnsupported,  // legal, but not in this build or on this machine
  kExhausted,    // memory, PAGEs, slots or disk ran out
  kCancelled,    // the caller asked for it
  kUnavailable,  // a peer or device is gone
  kInternal,     // a third party threw where it must not
};

[[nodiscard]] std::string_view code_name(Code code) noexcept;

class [[nodiscard]] Status {
 public:
  Status() noexcept = default;
  Status(Code code, std::string message);

  static Status invalid(std::string message) { return {Code::kInvalid, std::move(message)}; }
  static Status not_found(std::string message) { return {Code::kNotFound, std::move(message)}; }
  static Status corrupt(std::string message) { return {Code::kCorrupt, std::move(message)}; }
  static Status unsupported(std::string message) { return {Code::kUnsupported, std::move(message)}; }
  static Status exhausted(std::string message) { return {Code::kExhausted, std::move(message)}; }
  static Status cancelled(std::string message) { return {Code::kCancelled, std::move(message)}; }
  static Status unavailable(std::string message) { return {Code::kUnavailable, std::move(message)}; }
  static Status internal(std::string message) { return {Code::kInternal, std::move(message)}; }

  [[nodiscard]] bool ok() const noexcept { return state_ == nullptr; }
  // REQUIRES: !ok()
  [[nodiscard]] Code code() const noexcept { return state_->code; }
  // Empty when ok.
  [[nodiscard]] std::string_view message() const noexcept { return state_ ? std::string_view(state_->message) : ""; }
  // "invalid: layer 14: wq_b: ..." or "ok".
  [[nodiscard]] std::string to_string() const;

  // Puts "context: " in front of the message of a failure; ok stays ok.
  [[nodiscard]] Status with(std::string_view context) &&;

 private:
  struct State {
    Code code;
    std::string message;
  };
  std::unique_ptr<State> state_;
};

// A value, or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: REQUIRES !status.ok()

  [[nodiscard]] bool ok() const noexcept { return value_.has_value(); }
  // REQUIRES: ok()
  [[nodiscard]] T& value() & noexcept { return *value_; }
  [[nodiscard]] const T& value() const& noexcept { return *value_; }
  [[nodiscard]] T&& value() && noexcept { return *std::move(value_); }
  [[nodiscard]] T* operator->() noexcept { return &*value_; }
  [[nodiscard]] const T* operator->() const noexcept { return &*value_; }
  // ok() gives an ok Status.
  [[nodiscard]] const Status& status() const& noexcept { return status_; }
  [[nodiscard]] Status&& status() && noexcept { return std::move(status_); }
  [[nodiscard]] Result with(std::string_view context) && {
    if (!ok()) return std::move(status_).with(context);
    return std::move(*this);
  }

 private:
  std::optional<T> value_;
  Status status_;
};

// Joins what a failed check wants to show.
[[nodiscard]] inline std::string check_detail() { return {}; }
template <typename First, typename... Rest>
[[nodiscard]] std::string check_detail(const First& first, const Rest&... rest) {
  std::string text;
  const auto append = [&text](const auto& value) {
    if (!text.empty()) text += ' ';
    if constexpr (requires { std::string_view(value); }) {
      text += std::string_view(value);
    } else {
      text += std::to_string(value);
    }
  };
  append(first);
  (append(rest), ...);
  return text;
}

}  // namespace ps
