// Requests to one server, by libcurl: a small reply as a whole, a stream that can be left at any time, or many streams
// at once.
//
// Knows addresses, status codes and bytes; no JSON but that of the API's error body. Threading: one thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace ps::apps {

class HttpClient {
 public:
  // Takes the next bytes of a body; an error ends the request.
  using OnBytes = std::function<Status(std::string_view)>;
  // How a request ended: ok, what `on_bytes` said, or unavailable or invalid with what the server said.
  using OnEnd = std::function<void(Status)>;

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
  [[nodiscard]] Status post(std::string_view path, const std::string& json, const OnBytes& on_bytes,
                            const std::function<bool()>& is_stopped);

  // Begins a POST. Any number may run at once, each on a connection of its own that a later one takes over. Bytes come,
  // and `on_end` at last, inside advance(); both may start further ones.
  [[nodiscard]] Status start(std::string_view path, std::string json, OnBytes on_bytes, OnEnd on_end);
  // Takes what has come for the requests that run and ends those that are through; if none was, waits for more bytes,
  // at most so long.
  [[nodiscard]] Status advance(std::chrono::milliseconds wait);

  [[nodiscard]] const std::string& url() const noexcept;

 private:
  struct State;
  explicit HttpClient(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace ps::apps
