#include "server/api_context.h"

#include <fmt/format.h>

#include <algorithm>

namespace ps::server {

std::optional<ApiError> check_model(const ApiContext& context, const std::string& name) {
  const std::vector<std::string>& names = context.model.names;
  if (name.empty() || std::find(names.begin(), names.end(), name) != names.end()) return std::nullopt;
  return ApiError::not_found(fmt::format("the model {} does not exist; this server has {}", name, names.front()),
                             "model_not_found", "model");
}

std::optional<ApiError> check_json_request(const HttpRequest& request) {
  const std::string encoding = lower_ascii(request.header("content-encoding"));
  if (!encoding.empty() && encoding != "identity") {
    return ApiError::http(415, fmt::format("Content-Encoding is {}; the legal value is identity", encoding));
  }
  const std::string type = lower_ascii(request.header("content-type"));
  if (type.empty()) return std::nullopt;
  const std::string_view essence = trim_spaces(std::string_view(type).substr(0, type.find(';')));
  const size_t charset = type.find("charset=");
  const bool is_utf8 = charset == std::string::npos || type.find("utf-8", charset) != std::string::npos ||
                       type.find("utf8", charset) != std::string::npos;
  if ((essence == "application/json" || essence.ends_with("+json")) && is_utf8) return std::nullopt;
  return ApiError::http(415, fmt::format("Content-Type is {}; the legal value is application/json in UTF-8", type));
}

}  // namespace ps::server
