#include "server/http_server.h"

#include <fmt/format.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <array>
#include <charconv>
#include <chrono>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/macros.h"

namespace ps::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr size_t kReadAheadBytes = 64 << 10;   // of later requests while one runs, and of unsent replies before a pause
constexpr size_t kKeptBufferBytes = 16 << 10;  // a connection's buffers shrink to nothing above this
constexpr int kReadsPerWake = 16;
constexpr int64_t kRefusalsAtOnce = 256;  // connections beyond the limit that are told so
constexpr int kClientGone = 499;
constexpr std::chrono::milliseconds kSweepInterval{50};
constexpr std::chrono::milliseconds kLingerTime{2000};
constexpr std::chrono::milliseconds kFarewellTime{3000};  // for the last bytes, when the time to drain is over
constexpr std::chrono::milliseconds kAcceptPause{100};

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

ApiError stopping() { return ApiError::unavailable("the server stops", "stopping"); }

}  // namespace

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
  Connection(HttpServer& server, tcp::socket socket)
      : server_(server), socket_(std::move(socket)), parser_(server.options_.limits) {
    error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
    socket_.non_blocking(true, ignored);
    const tcp::endpoint peer = socket_.remote_endpoint(ignored);
    client_ = fmt::format("{}:{}", peer.address().to_string(), peer.port());
  }

  void start() { wait_for_bytes(); }
  // Answers without having read anything, then closes.
  void refuse(const ApiError& error) {
    answer_fault(error);
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
  void abandon(HttpServer& server) {
    if (std::exchange(is_done_, true)) return;
    stopped_ = nullptr;
    report(server, kClientGone);
    if (const auto function = std::exchange(gone_, nullptr)) function();
  }
  // Ends with an error, whoever is at work on the answer.
  void stop(const ApiError& error) {
    if (const auto function = std::exchange(stopped_, nullptr)) function(error);
    if (is_stream_) send(data_event(error_body(error)));
    is_stream_ ? end_stream() : reply(error_reply(error));
  }
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
  void report(HttpServer& server, int status) const {
    server.handler_.finished({request_.get(), request_->client, status, sent_bytes_, seconds_since(start_)});
  }
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

std::string HttpServer::Exchange::head(const Connection& connection, int status, std::string_view type,
                                       std::span<const HttpHeader> more) const {
  std::vector<HttpHeader> headers;
  if (!type.empty()) headers.push_back({"Content-Type", std::string(type)});
  headers.push_back({"X-Request-Id", request_->id});
  if (!keeps_alive(connection)) {
    headers.push_back({"Connection", "close"});
  } else if (request_->version_minor == 0) {
    headers.push_back({"Connection", "keep-alive"});
  }
  headers.insert(headers.end(), more.begin(), more.end());
  connection.server_.handler_.add_headers(*request_, headers);
  return reply_head(status, headers);
}

void HttpServer::Exchange::reply(HttpReply reply) {
  const auto connection = connection_.lock();
  if (is_done_ || is_stream_ || connection == nullptr) return;
  status_ = reply.status;
  const bool is_bare = reply.status == 204 || reply.status == 304;  // has no body by definition
  std::string text = head(*connection, reply.status, is_bare ? "" : reply.content_type, reply.headers);
  if (!is_bare) text += fmt::format("Content-Length: {}\r\n", reply.body.size());
  text += "\r\n";
  const bool has_body = request_->method != "HEAD" && !is_bare;
  sent_bytes_ = has_body ? std::ssize(reply.body) : 0;
  connection->queue(text, has_body ? std::string_view(reply.body) : std::string_view());
  finish(*connection, keeps_alive(*connection));
}

void HttpServer::Exchange::start_stream(std::function<std::string()> comment) {
  const auto connection = connection_.lock();
  if (is_done_ || is_stream_ || connection == nullptr) return;
  is_stream_ = true;
  comment_ = std::move(comment);
  const HttpHeader uncached[] = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
  std::string text = head(*connection, 200, "text/event-stream", uncached);
  if (request_->version_minor > 0) text += "Transfer-Encoding: chunked\r\n";
  connection->queue(text, "\r\n");
  last_sent_ = Clock::now();
}

void HttpServer::Exchange::on_gone(std::function<void()> function) {
  gone_ = std::move(function);
  const auto connection = connection_.lock();
  if (gone_ == nullptr || is_done_ || connection == nullptr || !connection->has_ended_) return;
  // The client ended while nobody listened.
  asio::post(connection->server_.loop_->context, [connection] { connection->lose(); });
}

void HttpServer::Exchange::send(std::string_view events) {
  const auto connection = connection_.lock();
  if (is_done_ || !is_stream_ || connection == nullptr || events.empty()) return;
  // Asked before the new bytes join: one large event is no sign of a slow reader.
  if (static_cast<int64_t>(connection->pending_bytes()) > connection->server_.options_.max_pending_bytes) {
    return connection->drop_slow_reader();
  }
  sent_bytes_ += std::ssize(events);
  last_sent_ = Clock::now();
  if (request_->version_minor == 0) {
    connection->queue(events, {});
  } else {
    std::array<char, 20> size;
    char* const end = std::to_chars(size.data(), size.data() + size.size() - 2, events.size(), 16).ptr;
    end[0] = '\r';
    end[1] = '\n';
    connection->queue({size.data(), end + 2}, events, "\r\n");
  }
}

void HttpServer::Exchange::end_stream() {
  const auto connection = connection_.lock();
  if (is_done_ || !is_stream_ || connection == nullptr) return;
  if (request_->version_minor > 0) connection->queue("0\r\n\r\n", {});
  finish(*connection, keeps_alive(*connection));
}

void HttpServer::Exchange::finish(Connection& connection, bool keeps) {
  is_done_ = true;
  gone_ = nullptr;
  stopped_ = nullptr;
  comment_ = nullptr;
  report(connection.server_, status_);
  connection.finish_exchange(keeps);
}

void HttpServer::Connection::wait_for_bytes() {
  const bool is_full = mode_ == Mode::kServing && input_.size() >= kReadAheadBytes;
  if (waits_ || has_ended_ || is_full || mode_ == Mode::kClosed) return;
  waits_ = true;
  socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](error_code error) {
    self->waits_ = false;
    if (self->mode_ == Mode::kClosed) return;
    if (error) return self->lose();
    self->read();
  });
}

void HttpServer::Connection::read() {
  std::vector<char>& buffer = server_.loop_->buffer;
  for (int i = 0; i < kReadsPerWake && mode_ != Mode::kClosed && input_.size() < kReadAheadBytes; ++i) {
    error_code error;
    const size_t count = socket_.read_some(asio::buffer(buffer), error);
    if (error == asio::error::would_block || error == asio::error::try_again) break;
    if (error == asio::error::eof) return take_end();
    if (error) return lose();
    take_bytes({buffer.data(), count});
  }
  wait_for_bytes();
}

void HttpServer::Connection::take_bytes(std::string_view bytes) {
  if (mode_ != Mode::kServing) return;
  input_.append(bytes);
  feed();
}

// The client has sent all it will send.
void HttpServer::Connection::take_end() {
  has_ended_ = true;
  if (mode_ == Mode::kLingering) return close();
  if (exchange_ != nullptr && exchange_->has_listener()) return lose();
  const auto state = parser_.state();
  if (exchange_ == nullptr && input_.empty() &&
      (state == RequestParser::State::kHeader || state == RequestParser::State::kBody)) {
    return answer_fault(ApiError::http(400, "the request ended before it was complete"));
  }
  close_if_idle();
}

// Takes requests out of input_ as long as none runs and the client reads its answers.
void HttpServer::Connection::feed() {
  if (is_feeding_) return;
  is_feeding_ = true;
  size_t used = 0;
  while (used < input_.size() && exchange_ == nullptr && mode_ == Mode::kServing && !closes_ &&
         pending_bytes() < kReadAheadBytes) {
    const auto before = parser_.state();
    const size_t taken = parser_.push(std::string_view(input_).substr(used));
    used += taken;
    const auto state = parser_.state();
    // The time for the head runs from its first byte, the time for the body from its latest.
    if (state != before || state == RequestParser::State::kBody) mark_ = Clock::now();
    if (state == RequestParser::State::kBody) {
      body_bytes_ = before == state ? body_bytes_ + static_cast<int64_t>(taken) : 0;
      if (before != state) body_start_ = mark_;
    }
    if (state == RequestParser::State::kDone) {
      begin_request();
    } else if (state == RequestParser::State::kFailed) {
      answer_fault(parser_.error());
    } else if (state == RequestParser::State::kBody && parser_.take_expectation()) {
      queue("HTTP/1.1 100 Continue\r\n\r\n", {});
    }
  }
  input_.erase(0, used);
  if (input_.empty() && input_.capacity() > kKeptBufferBytes) input_.shrink_to_fit();
  is_feeding_ = false;
  close_if_idle();
}

void HttpServer::Connection::begin_request() {
  auto request = std::make_shared<HttpRequest>(parser_.take());
  const std::string_view named = request->header("x-request-id");
  request->id = is_echoable_id(named) ? std::string(named) : make_request_id();
  request->client = client_;
  exchange_ = std::make_shared<Exchange>(weak_from_this(), request);
  const std::shared_ptr<Exchange> exchange = exchange_;
  if (server_.is_draining_) return exchange->reply(error_reply(stopping()));
  try {
    server_.handler_.handle(request, exchange);
  } catch (const std::exception& error) {
    log_error(fmt::format("event=handler_exception request={} what=\"{}\"", request->id, error.what()));
    exchange->reply(error_reply(ApiError::internal("the request could not be handled")));
  }
}

// What came is no request: answers and closes.
void HttpServer::Connection::answer_fault(const ApiError& error) {
  const HttpReply reply = error_reply(error);
  std::vector<HttpHeader> headers = {{"Content-Type", reply.content_type},
                                     {"X-Request-Id", make_request_id()},
                                     {"Connection", "close"},
                                     {"Content-Length", std::to_string(reply.body.size())}};
  headers.insert(headers.end(), reply.headers.begin(), reply.headers.end());
  server_.handler_.add_headers(HttpRequest{}, headers);
  queue(reply_head(reply.status, headers) + "\r\n", reply.body);
  server_.handler_.finished({nullptr, client_, reply.status, std::ssize(reply.body), 0});
  closes_ = true;
  close_if_idle();
}

void HttpServer::Connection::finish_exchange(bool keeps_alive) {
  exchange_.reset();
  mark_ = Clock::now();
  if (!keeps_alive) closes_ = true;
  if (is_feeding_) return;
  // Not from here: the caller may be in the middle of something.
  asio::post(server_.loop_->context, [self = shared_from_this()] {
    self->feed();
    self->wait_for_bytes();
  });
}

void HttpServer::Connection::queue(std::string_view head, std::string_view body, std::string_view tail) {
  if (mode_ != Mode::kServing || is_dropped_) return;
  if (pending_bytes() == 0) progress_ = Clock::now();
  out_.append(head).append(body).append(tail);
  if (!is_sending_) write_at_once();
  flush();
}

// What fits into the socket's buffer goes without the round through the event loop: for a token of a stream that round
// costs as much as all the rest of it. An error shows again, and is dealt with, in the write that waits.
void HttpServer::Connection::write_at_once() {
  error_code error;
  const size_t count = socket_.write_some(asio::buffer(out_), error);
  if (!error) out_.erase(0, count);
  if (out_.empty() && out_.capacity() > kKeptBufferBytes) std::string().swap(out_);
}

void HttpServer::Connection::drop_slow_reader() {
  if (std::exchange(is_dropped_, true)) return;
  ++server_.dropped_;
  log_warning(fmt::format("event=slow_reader_dropped client={} pending_bytes={}", client_, pending_bytes()));
  asio::post(server_.loop_->context, [self = shared_from_this()] { self->lose(); });
}

void HttpServer::Connection::flush() {
  if (is_sending_ || mode_ == Mode::kClosed) return;
  if (sent_ == sending_.size()) {
    sending_.clear();
    sent_ = 0;
    sending_.swap(out_);
    if (sending_.empty()) return;
  }
  is_sending_ = true;
  socket_.async_write_some(asio::buffer(sending_.data() + sent_, sending_.size() - sent_),
                           [self = shared_from_this()](error_code error, size_t count) {
                             self->is_sending_ = false;
                             if (self->mode_ == Mode::kClosed) return;
                             if (error) return self->lose();
                             self->sent_ += count;
                             self->progress_ = Clock::now();
                             self->after_write();
                           });
}

void HttpServer::Connection::after_write() {
  if (pending_bytes() > 0) return flush();
  if (sending_.capacity() > kKeptBufferBytes) std::string().swap(sending_);
  if (out_.capacity() > kKeptBufferBytes) std::string().swap(out_);
  sending_.clear();
  sent_ = 0;
  feed();
  wait_for_bytes();
}

// Closes when nothing more will happen here.
void HttpServer::Connection::close_if_idle() {
  if (mode_ != Mode::kServing || exchange_ != nullptr || pending_bytes() > 0) return;
  if (closes_) return linger();
  if (has_ended_ && input_.empty()) close();
}

void HttpServer::Connection::wind_down() {
  closes_ = true;
  const auto state = parser_.state();
  if (exchange_ != nullptr || mode_ != Mode::kServing) return;
  if (state == RequestParser::State::kHeader || state == RequestParser::State::kBody) return answer_fault(stopping());
  input_.empty() && pending_bytes() == 0 ? close() : close_if_idle();
}

void HttpServer::Connection::stop_exchange() {
  // A copy: the end of an answer lets go of its exchange.
  if (const std::shared_ptr<Exchange> exchange = exchange_) exchange->stop(stopping());
}

// The answer is out, but a close with unread input would reset the connection and may take the answer with it: reads on
// for a while, until the client closes.
void HttpServer::Connection::linger() {
  if (has_ended_) return close();
  mode_ = Mode::kLingering;
  mark_ = Clock::now();
  input_.clear();
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  wait_for_bytes();
}

void HttpServer::Connection::lose() {
  const std::shared_ptr<Exchange> exchange = std::exchange(exchange_, nullptr);
  close();
  if (exchange != nullptr) exchange->abandon(server_);
}

void HttpServer::Connection::close() {
  if (mode_ == Mode::kClosed) return;
  mode_ = Mode::kClosed;
  error_code ignored;
  socket_.close(ignored);
  server_.leave(shared_from_this());
}

void HttpServer::Connection::check_time(Clock::time_point now) {
  const HttpOptions& options = server_.options_;
  if (mode_ == Mode::kLingering) {
    if (now - mark_ > kLingerTime) close();
    return;
  }
  if (mode_ == Mode::kClosed) return;
  if (pending_bytes() > 0) {
    if (now - progress_ > duration_of(options.write_seconds)) drop_slow_reader();
    mark_ = body_start_ = now;  // the next request may have to wait for that
    return;
  }
  if (exchange_ != nullptr) {
    if (exchange_->is_silent(now, options.keep_alive_seconds)) exchange_->keep_alive();
    return;
  }
  const Clock::duration waited = now - mark_;
  switch (parser_.state()) {
    case RequestParser::State::kHeader:
      if (waited > duration_of(options.header_seconds)) {
        answer_fault(ApiError::http(408, fmt::format("the headers took longer than {} s", options.header_seconds)));
      }
      break;
    case RequestParser::State::kBody:
      if (waited > duration_of(options.body_seconds)) {
        answer_fault(ApiError::http(408, fmt::format("no byte of the body came for {} s", options.body_seconds)));
      } else if (const double grace = options.body_seconds + static_cast<double>(body_bytes_) / options.body_rate;
                 now - body_start_ > duration_of(grace)) {
        answer_fault(
            ApiError::http(408, fmt::format("the body came slower than {} bytes per second allow", options.body_rate)));
      }
      break;
    default:
      if (waited > duration_of(options.idle_seconds)) close();
  }
}

HttpServer::HttpServer(const HttpOptions& options, HttpHandler& handler)
    : options_(options), handler_(handler), loop_(std::make_unique<Loop>()) {}

HttpServer::~HttpServer() = default;

Result<std::unique_ptr<HttpServer>> HttpServer::create(const HttpOptions& options, HttpHandler& handler) {
  PS_RETURN_IF_ERROR(check(options));
  std::unique_ptr<HttpServer> server(new HttpServer(options, handler));
  PS_RETURN_IF_ERROR(server->listen());
  return server;
}

Status HttpServer::listen() {
  error_code error;
  tcp::resolver resolver(loop_->context);
  const auto found = resolver.resolve(options_.host, std::to_string(options_.port),
                                      tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (error || found.empty()) return Status::invalid(fmt::format("host {}: {}", options_.host, error.message()));
  const tcp::endpoint wanted = *found.begin();
  tcp::acceptor& acceptor = loop_->acceptor;
  acceptor.open(wanted.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(wanted, error);
  if (!error) acceptor.listen(tcp::acceptor::max_listen_connections, error);
  if (!error) loop_->endpoint = acceptor.local_endpoint(error);
  if (error) return Status::unavailable(fmt::format("{}:{}: {}", options_.host, options_.port, error.message()));
  return {};
}

int HttpServer::port() const noexcept { return loop_->endpoint.port(); }

std::string HttpServer::address() const {
  const auto address = loop_->endpoint.address();
  const std::string host = address.is_v6() ? "[" + address.to_string() + "]" : address.to_string();
  return fmt::format("http://{}:{}", host, port());
}

void HttpServer::run() {
  accept();
  sweep();
  while (true) {
    try {
      loop_->context.run();
      break;
    } catch (const std::exception& error) {
      log_error(fmt::format("event=io_exception what=\"{}\"", error.what()));
    }
  }
  const auto left = std::exchange(loop_->connections, {});
  for (const auto& connection : left) connection->lose();
}

void HttpServer::accept() {
  loop_->acceptor.async_accept([this](error_code error, tcp::socket socket) {
    if (error == asio::error::operation_aborted || is_draining_) return;
    if (error) {  // out of file handles: others must close first
      loop_->accept_pause.expires_after(kAcceptPause);
      loop_->accept_pause.async_wait([this](error_code cancelled) {
        if (!cancelled) accept();
      });
      return;
    }
    const int64_t limit = options_.max_connections;
    if (connections_ < limit + kRefusalsAtOnce) {
      const auto connection = std::make_shared<Connection>(*this, std::move(socket));
      loop_->connections.insert(connection);
      if (++connections_ <= limit) {
        connection->start();
      } else {
        connection->refuse(ApiError::http(503, fmt::format("{} connections are open, the most allowed", limit)));
      }
    }
    accept();
  });
}

void HttpServer::sweep() {
  const Clock::time_point now = Clock::now();
  const bool is_farewell = now >= loop_->drain_end && loop_->farewell_end == Clock::time_point::max();
  if (is_farewell) loop_->farewell_end = now + kFarewellTime;
  const bool is_late = now >= loop_->farewell_end;
  loop_->swept.assign(loop_->connections.begin(), loop_->connections.end());
  if (is_farewell) {
    for (const auto& connection : loop_->swept) connection->stop_exchange();
  }
  for (const auto& connection : loop_->swept) is_late ? connection->lose() : connection->check_time(now);
  loop_->swept.clear();
  if (is_draining_ && loop_->connections.empty()) return loop_->context.stop();
  loop_->sweep.expires_after(kSweepInterval);
  loop_->sweep.async_wait([this](error_code cancelled) {
    if (!cancelled) sweep();
  });
}

void HttpServer::leave(const std::shared_ptr<Connection>& connection) {
  loop_->connections.erase(connection);
  --connections_;
}

void HttpServer::post(std::function<void()> work) { asio::post(loop_->context, std::move(work)); }

void HttpServer::drain(double seconds) {
  is_draining_ = true;
  post([this, end = Clock::now() + duration_of(seconds)] {
    loop_->drain_end = std::min(loop_->drain_end, end);
    error_code ignored;
    loop_->acceptor.close(ignored);
    const std::vector<std::shared_ptr<Connection>> all(loop_->connections.begin(), loop_->connections.end());
    for (const auto& connection : all) connection->wind_down();
  });
}

void HttpServer::stop() { loop_->context.stop(); }

}  // namespace ps::server
