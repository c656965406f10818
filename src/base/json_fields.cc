#include "base/json_fields.h"

#include "base/macros.h"

namespace ps {

Status JsonFields::mismatch(std::string_view path, std::string_view expected, const JsonValue& found) {
  std::string message;
  if (!path.empty()) message.append(path).append(": ");
  return Status::invalid(message.append("expected ").append(expected).append(", found ").append(found.kind_name()));
}

Result<JsonFields> JsonFields::of(const JsonValue& object, std::string path) {
  if (!object.is_object()) return mismatch(path, "an object", object);
  return JsonFields(object, std::move(path));
}

const JsonValue* JsonFields::find(std::string_view key) const noexcept {
  const JsonValue* member = object_->find(key);
  return member == nullptr || member->is_null() ? nullptr : member;
}

std::string JsonFields::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : (path_ + '.').append(key);
}

Status JsonFields::read(std::string_view key, bool& out) const {
  const JsonValue* member = find(key);
  if (member == nullptr) return {};
  if (!member->is_bool()) return mismatch(path_of(key), "true or false", *member);
  out = member->boolean();
  return {};
}

Status JsonFields::read(std::string_view key, int64_t& out) const {
  const JsonValue* member = find(key);
  if (member == nullptr) return {};
  PS_TRY(out, member->integer().with(path_of(key)));
  return {};
}

Status JsonFields::read(std::string_view key, double& out) const {
  const JsonValue* member = find(key);
  if (member == nullptr) return {};
  PS_TRY(out, member->real().with(path_of(key)));
  return {};
}

Status JsonFields::read(std::string_view key, std::string& out) const {
  const JsonValue* member = find(key);
  if (member == nullptr) return {};
  if (!member->is_string()) return mismatch(path_of(key), "a string", *member);
  out = member->text();
  return {};
}

Status JsonFields::require(std::string_view key) const {
  return find(key) == nullptr ? Status::invalid(path_of(key) + ": missing field") : Status();
}

Result<const JsonValue*> JsonFields::array(std::string_view key) const {
  const JsonValue* member = find(key);
  if (member != nullptr && !member->is_array()) return mismatch(path_of(key), "an array", *member);
  return member;
}

Result<const JsonValue*> JsonFields::object(std::string_view key) const {
  const JsonValue* member = find(key);
  if (member != nullptr && !member->is_object()) return mismatch(path_of(key), "an object", *member);
  return member;
}

}  // namespace ps
