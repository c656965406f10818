// The inside of HttpServer: its event loop, one client's connection and one request's exchange. For http_server.cc and
// http_connection.cc alone; everything here runs on the server's own thread.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "server/http_parser.h"
#include "server/http_server.h"

namespace ps::server {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

[[nodiscard]] inline Clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

struct HttpServer::Loop {
  asio::io_context context{1};
  tcp::acceptor acceptor{context};
  asio::steady_timer sweep{context};
  asio::steady_timer accept_pause{context};
  tcp::endpoint endpoint;
  std::unordered_set<std::shared_ptr<Connection>> connections;
  std::vector<std::shared_ptr<Connection>> swept;
  Clock::time_point drain_end = Clock::time_point::max();
  Clock::time_point farewell_end = Clock::time_point::max();
  std::vector<char> buffer = std::vector<char>(64 << 10);  // every connection reads through it
};

// One client. Callbacks of the socket hold it alive; after close() they find nothing to do.
class HttpServer::Connection final : public std::enable_shared_from_this<Connection> {
 public:
  Connection(HttpServer& server, tcp::socket socket);

  void start();
  // Answers without having read anything, then closes.
  void refuse(const ApiError& error) {
    if (can_serve_) answer_fault(error);
    start();
  }
  // Called twenty times a second.
  void check_time(Clock::time_point now);
  // The server drains: closes now if nothing is going on, else after the running request. One that has not come in
  // whole is refused.
  void wind_down();
  // The time to drain is over: the running request ends with an error.
  void stop_exchange();
  // The running request has no reader any more; closes.
  void lose();

 private:
  friend class HttpServer::Exchange;
  enum class Mode { kServing, kLingering, kClosed };

  // What a socket's call came to, where the way goes on all the same.
  void note(std::string_view step, const error_code& error) const;
  void wait_for_bytes();
  void read();
  void take_bytes(std::string_view bytes);
  void take_end();
  void feed();
  void begin_request();
  void answer_fault(const ApiError& error);
  void finish_exchange(bool keeps_alive);
  void queue(std::string_view head, std::string_view body, std::string_view tail = {});
  void drop_slow_reader();
  void write_at_once();
  void flush();
  void after_write();
  void close_if_idle();
  void linger();
  void close();
  [[nodiscard]] size_t pending_bytes() const noexcept { return out_.size() + sending_.size() - sent_; }

  HttpServer& server_;
  tcp::socket socket_;
  RequestParser parser_;
  std::string client_;
  std::shared_ptr<Exchange> exchange_;  // the request that runs
  std::string input_;                   // bytes of later requests
  std::string out_;                     // waits behind sending_
  std::string sending_;
  size_t sent_ = 0;  // of sending_
  Mode mode_ = Mode::kServing;
  bool can_serve_ = false;
  bool waits_ = false;  // for bytes
  bool is_sending_ = false;
  bool is_feeding_ = false;
  bool is_dropped_ = false;
  bool has_ended_ = false;                 // the client's side
  bool closes_ = false;                    // after what is queued
  Clock::time_point mark_ = Clock::now();  // when the present phase of reading began, or last moved
  Clock::time_point body_start_ = mark_;
  int64_t body_bytes_ = 0;                     // of the body, framing included, since then
  Clock::time_point progress_ = Clock::now();  // of writing
};

// One request's way to its answer.
class HttpServer::Exchange final : public Responder {
 public:
  Exchange(std::weak_ptr<Connection> connection, std::shared_ptr<const HttpRequest> request)
      : connection_(std::move(connection)), request_(std::move(request)) {}

  void reply(HttpReply reply) override;
  void start_stream(std::function<std::string()> comment) override;
  void send(std::string_view events) override;
  void end_stream() override;
  void on_gone(std::function<void()> function) override;
  void on_stop(std::function<void(const ApiError& error)> function) override {
    if (!is_done_) stopped_ = std::move(function);
  }
  [[nodiscard]] bool is_open() const override { return !is_done_; }

  [[nodiscard]] bool has_listener() const { return gone_ != nullptr; }
  // Ends without an answer.
  void abandon(HttpServer& server);
  // Ends with an error, whoever is at work on the answer.
  void stop(const ApiError& error);
  void keep_alive() {
    if (is_stream_ && !is_done_) send(": " + (comment_ ? comment_() : std::string()) + "\n\n");
  }
  [[nodiscard]] bool is_silent(Clock::time_point now, double seconds) const {
    return is_stream_ && now - last_sent_ >= duration_of(seconds);
  }

 private:
  [[nodiscard]] bool keeps_alive(const Connection& connection) const {
    return request_->keeps_alive && !connection.closes_ && !(is_stream_ && request_->version_minor == 0);
  }
  [[nodiscard]] std::string head(const Connection& connection, int status, std::string_view type,
                                 std::span<const HttpHeader> more) const;
  void report(HttpServer& server, int status) const;
  void finish(Connection& connection, bool keeps);

  std::weak_ptr<Connection> connection_;
  std::shared_ptr<const HttpRequest> request_;
  std::function<void()> gone_;
  std::function<void(const ApiError& error)> stopped_;
  std::function<std::string()> comment_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_sent_ = start_;
  int64_t sent_bytes_ = 0;
  int status_ = 200;
  bool is_stream_ = false;
  bool is_done_ = false;
};

}  // namespace ps::server
