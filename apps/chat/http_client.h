// Requests to one server, by libcurl: a small reply as a whole, or a stream that can be left at any time.
//
// Knows addresses, status codes and bytes; no JSON but that of the API's error body. Threading: one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace ps::apps::chat {

class HttpClient {
 public:
  // `url` as given: "http://host:port", with or without a path in front of "/v1". `key`: sent as a bearer token; may be
  // empty. invalid for another kind of address.
  [[nodiscard]] static Result<HttpClient> create(std::string_view url, std::string key);
  ~HttpClient();
  HttpClient(HttpClient&&) noexcept;
  HttpClient& operator=(HttpClient&&) noexcept;

  // The body of GET <url><path>, at most 1 MiB. unavailable: nobody answers, or not with success; the message says what
  // the server said.
  [[nodiscard]] Result<std::string> get(std::string_view path);

  // POSTs JSON and hands on the body as it comes. Ends early, and ok, when `is_stopped` says so: the connection is
  // closed, which tells the server. An error of `on_bytes` ends it too and is returned.
  [[nodiscard]] Status post(std::string_view path, const std::string& json,
                            const std::function<Status(std::string_view)>& on_bytes,
                            const std::function<bool()>& is_stopped);

  [[nodiscard]] const std::string& url() const noexcept;

 private:
  struct State;
  explicit HttpClient(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace ps::apps::chat
