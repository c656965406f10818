// A client of raw sockets: sends any bytes, reads replies and streams, and can be as impolite as a test needs.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"

namespace ps::tests {

struct Reply {
  int status = 0;  // 0: the connection ended before a whole reply
  std::string head;
  std::string body;  // without chunk framing
  [[nodiscard]] std::string header(const std::string& name) const {
    const size_t at = head.find("\r\n" + name + ": ");
    if (at == std::string::npos) return "";
    const size_t start = at + name.size() + 4;
    return head.substr(start, head.find("\r\n", start) - start);
  }
  [[nodiscard]] JsonValue json() const {
    auto parsed = JsonValue::parse(body);
    EXPECT_TRUE(parsed.ok()) << head << body;
    return parsed.ok() ? std::move(parsed).value() : JsonValue();
  }
  // error.<key> of an error body, which has all four members.
  [[nodiscard]] std::string error(const std::string& key) const {
    const JsonValue value = json();
    const JsonValue* error = value.find("error");
    if (error == nullptr) {
      ADD_FAILURE() << "no error object: " << body;
      return "";
    }
    for (const char* name : {"message", "type", "param", "code"}) EXPECT_NE(error->find(name), nullptr) << body;
    const JsonValue* found = error->find(key);
    return found == nullptr || !found->is_string() ? "" : found->text();
  }
};

inline std::string get(const std::string& path, const std::string& headers = {}) {
  return "GET " + path + " HTTP/1.1\r\nHost: t\r\n" + headers + "\r\n";
}
inline std::string post(const std::string& path, const std::string& body, const std::string& headers = {}) {
  return "POST " + path +
         " HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n" + headers + "\r\n" + body;
}

class Client {
 public:
  static constexpr int kWaitMs = 60000;

  explicit Client(int port, int receive_buffer = 0) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_buffer > 0) setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    is_connected_ = ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  ~Client() { close(); }
  Client(Client&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)),
        is_connected_(other.is_connected_),
        input_(std::move(other.input_)) {}
  Client& operator=(Client&& other) noexcept {
    std::swap(socket_, other.socket_);
    std::swap(is_connected_, other.is_connected_);
    std::swap(input_, other.input_);
    return *this;
  }

  [[nodiscard]] bool is_connected() const { return is_connected_; }

  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count <= 0) return;  // the server has closed: the reply tells
      bytes.remove_prefix(static_cast<size_t>(count));
    }
  }
  void end_sending() { ::shutdown(socket_, SHUT_WR); }
  void close() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }
  // Closes with a reset, as a killed client does.
  void reset() {
    const linger abort{1, 0};
    setsockopt(socket_, SOL_SOCKET, SO_LINGER, &abort, sizeof abort);
    close();
  }

  // Until the pattern has come in; what came up to its end. Empty at the end of the connection.
  std::string read_until(std::string_view pattern) {
    while (true) {
      const size_t at = input_.find(pattern);
      if (at != std::string::npos) return take(at + pattern.size());
      if (!receive()) return "";
    }
  }
  // Everything until the server closes.
  std::string read_to_end() {
    while (receive()) {
    }
    return std::exchange(input_, {});
  }
  // Whether the server has closed, within the time.
  bool sees_end(int wait_ms = kWaitMs) {
    while (receive(wait_ms)) {
    }
    return has_ended_;
  }
  // Whether a byte comes in within the time.
  bool sees_bytes(int wait_ms) { return !input_.empty() || receive(wait_ms); }

  Reply read_reply(bool has_body = true) {
    Reply reply;
    reply.head = read_until("\r\n\r\n");
    if (reply.head.empty()) return reply;
    const int status = std::atoi(reply.head.c_str() + sizeof("HTTP/1.1"));
    if (!has_body || status == 204 || status == 304 || status == 100) {
      reply.status = status;
      return reply;
    }
    if (reply.header("Transfer-Encoding") == "chunked") {
      while (auto chunk = read_chunk()) {
        if (chunk->empty()) {
          reply.status = status;
          return reply;
        }
        reply.body += *chunk;
      }
      return reply;  // cut off
    }
    const std::string length = reply.header("Content-Length");
    if (length.empty()) {
      reply.body = read_to_end();
    } else {
      const auto wanted = static_cast<size_t>(std::atoll(length.c_str()));
      while (input_.size() < wanted) {
        if (!receive()) return reply;
      }
      reply.body = take(wanted);
    }
    reply.status = status;
    return reply;
  }
  // The next chunk; empty the last one; nothing at the end of the connection.
  std::optional<std::string> read_chunk() {
    const std::string line = read_until("\r\n");
    if (line.empty()) return std::nullopt;
    const auto size = static_cast<size_t>(std::strtoull(line.c_str(), nullptr, 16));
    while (input_.size() < size + 2) {
      if (!receive()) return std::nullopt;
    }
    std::string chunk = take(size + 2);
    EXPECT_TRUE(chunk.ends_with("\r\n"));
    chunk.resize(size);
    return chunk;
  }

  Reply ask(std::string_view request) {
    send(request);
    return read_reply();
  }

 private:
  std::string take(size_t count) {
    std::string taken = input_.substr(0, count);
    input_.erase(0, count);
    return taken;
  }
  bool receive(int wait_ms = kWaitMs) {
    pollfd wait{socket_, POLLIN, 0};
    if (::poll(&wait, 1, wait_ms) <= 0) return false;
    char buffer[65536];
    const ssize_t count = ::recv(socket_, buffer, sizeof buffer, 0);
    if (count <= 0) {
      has_ended_ = true;
      return false;
    }
    input_.append(buffer, static_cast<size_t>(count));
    return true;
  }

  int socket_;
  bool is_connected_ = false;
  bool has_ended_ = false;
  std::string input_;
};

// The JSON objects of a stream of "data: " events; "[DONE]" ends it.
inline std::vector<JsonValue> stream_objects(const std::string& body) {
  std::vector<JsonValue> objects;
  size_t at = 0;
  bool is_done = false;
  while (at < body.size()) {
    const size_t end = body.find("\n\n", at);
    if (end == std::string::npos) {
      ADD_FAILURE() << "an event is cut off: " << body.substr(at);
      break;
    }
    const std::string event = body.substr(at, end - at);
    at = end + 2;
    if (event.starts_with(":")) continue;
    EXPECT_TRUE(event.starts_with("data: ")) << event;
    EXPECT_FALSE(is_done) << "an event after [DONE]";
    if (event == "data: [DONE]") {
      is_done = true;
      continue;
    }
    auto parsed = JsonValue::parse(std::string_view(event).substr(6));
    EXPECT_TRUE(parsed.ok()) << event;
    if (parsed.ok()) objects.push_back(std::move(parsed).value());
  }
  EXPECT_TRUE(is_done) << body;
  return objects;
}

}  // namespace ps::tests
