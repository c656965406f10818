// Reads members of a JSON object into typed values, for requests of outside clients: a failure names the path of the
// field, what is expected there and what was found. An absent member and null are the same and leave the target alone.
// Threading: a view; the object must outlive it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"

namespace ps {

class JsonFields {
 public:
  // invalid unless `object` is an object. An empty path is the root.
  static Result<JsonFields> of(const JsonValue& object, std::string path);

  // The member, or nullptr where it is absent or null.
  [[nodiscard]] const JsonValue* find(std::string_view key) const noexcept;
  // Of the object itself.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  // "path.key", or "key" at the root.
  [[nodiscard]] std::string path_of(std::string_view key) const;

  Status read(std::string_view key, bool& out) const;
  Status read(std::string_view key, int64_t& out) const;
  Status read(std::string_view key, double& out) const;
  Status read(std::string_view key, std::string& out) const;
  template <typename T>
  Status read(std::string_view key, std::optional<T>& out) const {
    if (find(key) == nullptr) return {};
    return read(key, out.emplace());
  }
  // invalid where the member is absent or null.
  [[nodiscard]] Status require(std::string_view key) const;
  [[nodiscard]] Result<const JsonValue*> array(std::string_view key) const;   // nullptr where absent
  [[nodiscard]] Result<const JsonValue*> object(std::string_view key) const;  // nullptr where absent

  // "path: expected a string, found a number".
  static Status mismatch(std::string_view path, std::string_view expected, const JsonValue& found);

 private:
  JsonFields(const JsonValue& object, std::string path) : object_(&object), path_(std::move(path)) {}

  const JsonValue* object_;
  std::string path_;
};

}  // namespace ps
