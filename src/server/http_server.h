// Event-driven HTTP/1.1 over TCP: one thread, any number of connections. Only its sources see Asio.
//
// Owns sockets, time limits, keep-alive and pipelining (requests of a connection are answered one after the other, in
// order), chunked streams with keep-alive comments, back-pressure, and the orderly end. Knows no route and no model: a
// complete request goes to the HttpHandler, malformed and oversized ones are answered here.
// The end of a client's bytes while its request runs counts as the client's end: the request's on_gone is called. What
// needs no generation is still answered. A read is pending all the while, until 64 KiB of further requests have come.
// Threading: run() is the I/O thread, and calls the handler there. stop(), drain(), post() from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "server/executor.h"
#include "server/http_message.h"
#include "server/http_options.h"
#include "server/responder.h"

namespace ps::server {

// One answered request, for the log and the metrics.
struct AccessRecord {
  const HttpRequest* request = nullptr;  // nullptr: it was never complete
  std::string client;
  int status = 0;  // 499: the client went away before the answer was complete
  int64_t sent_bytes = 0;
  double seconds = 0;
};

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // Before the answer: sets what a reply carries besides its own headers. Called for malformed requests too.
  virtual void add_headers(const HttpRequest& request, std::vector<HttpHeader>& headers) = 0;
  // May move the body out, which else lives as long as the answer.
  virtual void handle(std::shared_ptr<HttpRequest> request, std::shared_ptr<Responder> responder) = 0;
  virtual void finished(const AccessRecord& record) = 0;
};

class HttpServer final : public Executor {
 public:
  // Binds and listens. unavailable when the address cannot be had, invalid when it is none. The handler outlives it.
  [[nodiscard]] static Result<std::unique_ptr<HttpServer>> create(const HttpOptions& options, HttpHandler& handler);
  ~HttpServer() override;

  [[nodiscard]] int port() const noexcept;
  // "http://127.0.0.1:8000".
  [[nodiscard]] std::string address() const;

  // Serves until stop(), or until drain() is through.
  void run();
  void post(std::function<void()> work) override;
  // Takes no more connections, closes idle ones, and lets running requests finish for `seconds`. What runs then ends
  // with 503 `stopping`, or with that error as the last event of its stream, and has a few seconds to take its last
  // bytes. A second call shortens the time.
  void drain(double seconds);
  void stop();

  [[nodiscard]] bool is_draining() const noexcept { return is_draining_; }
  [[nodiscard]] int64_t connections() const noexcept { return connections_; }
  // Clients that read too slowly.
  [[nodiscard]] int64_t dropped() const noexcept { return dropped_; }

 private:
  struct Loop;
  class Connection;
  class Exchange;
  HttpServer(const HttpOptions& options, HttpHandler& handler);
  Status listen();
  void accept();
  void sweep();
  void leave(const std::shared_ptr<Connection>& connection);

  HttpOptions options_;
  HttpHandler& handler_;
  std::atomic<bool> is_draining_ = false;
  std::atomic<int64_t> connections_ = 0;
  std::atomic<int64_t> dropped_ = 0;
  std::unique_ptr<Loop> loop_;
};

}  // namespace ps::server
