#include "server/http_connection.h"

#include <fmt/format.h>

#include <array>
#include <boost/asio/post.hpp>
#include <charconv>

#include "base/log.h"

namespace ps::server {
namespace {

constexpr size_t kReadAheadBytes = 64 << 10;   // of later requests while one runs, and of unsent replies before a pause
constexpr size_t kKeptBufferBytes = 16 << 10;  // a connection's buffers shrink to nothing above this
constexpr int kReadsPerWake = 16;
constexpr int kClientGone = 499;
constexpr std::chrono::milliseconds kLingerTime{2000};

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

ApiError stopping() { return ApiError::unavailable("the server stops", "stopping"); }

}  // namespace

void HttpServer::Exchange::abandon(HttpServer& server) {
  if (std::exchange(is_done_, true)) return;
  stopped_ = nullptr;
  report(server, kClientGone);
  if (const auto function = std::exchange(gone_, nullptr)) function();
}

void HttpServer::Exchange::stop(const ApiError& error) {
  if (const auto function = std::exchange(stopped_, nullptr)) function(error);
  if (is_stream_) send(data_event(error_body(error)));
  is_stream_ ? end_stream() : reply(error_reply(error));
}

void HttpServer::Exchange::report(HttpServer& server, int status) const {
  server.handler_.finished({request_.get(), request_->client, status, sent_bytes_, seconds_since(start_)});
}

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
  if (connection->is_dropped_) return;  // it is about to be lost, and that is how the answer ended
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

HttpServer::Connection::Connection(HttpServer& server, tcp::socket socket)
    : server_(server), socket_(std::move(socket)), parser_(server.options_.limits) {
  error_code error;
  const tcp::endpoint peer = socket_.remote_endpoint(error);
  client_ = error ? "gone" : fmt::format("{}:{}", peer.address().to_string(), peer.port());
  note("no_delay", socket_.set_option(tcp::no_delay(true), error));
  // Reads and writes of a socket that blocks would hold up every client.
  can_serve_ = !socket_.non_blocking(true, error);
  if (!can_serve_) note("non_blocking", error);
}

void HttpServer::Connection::note(std::string_view step, const error_code& error) const {
  if (error) log_debug(fmt::format("event=socket client={} step={} what=\"{}\"", client_, step, error.message()));
}

void HttpServer::Connection::start() { can_serve_ ? wait_for_bytes() : close(); }

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
  if (exchange_ == nullptr && input_.empty() && !closes_ &&
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
      body_bytes_ = (before == state ? body_bytes_ : 0) + static_cast<int64_t>(taken);  // a head's bytes add a little
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
  if (std::exchange(closes_, true)) return;
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
  error_code error;
  note("shutdown", socket_.shutdown(tcp::socket::shutdown_send, error));
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
  error_code error;
  note("close", socket_.close(error));
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

}  // namespace ps::server
