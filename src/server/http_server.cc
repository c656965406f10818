#include "server/http_server.h"

#include <fmt/format.h>

#include <boost/asio/post.hpp>

#include "base/log.h"
#include "base/macros.h"
#include "server/http_connection.h"

namespace ps::server {
namespace {

constexpr int64_t kRefusalsAtOnce = 256;  // connections beyond the limit that are told so
constexpr std::chrono::milliseconds kSweepInterval{50};
constexpr std::chrono::milliseconds kFarewellTime{3000};  // for the last bytes, when the time to drain is over
constexpr std::chrono::milliseconds kAcceptPause{100};

}  // namespace

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
  const bool has_failed = acceptor.open(wanted.protocol(), error) ||
                          acceptor.set_option(tcp::acceptor::reuse_address(true), error) ||
                          acceptor.bind(wanted, error) || acceptor.listen(tcp::acceptor::max_listen_connections, error);
  if (!has_failed) loop_->endpoint = acceptor.local_endpoint(error);
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
    error_code error;
    if (loop_->acceptor.close(error)) log_warning(fmt::format("event=listener_close what=\"{}\"", error.message()));
    const std::vector<std::shared_ptr<Connection>> all(loop_->connections.begin(), loop_->connections.end());
    for (const auto& connection : all) connection->wind_down();
  });
}

void HttpServer::stop() { loop_->context.stop(); }

}  // namespace ps::server
