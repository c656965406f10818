// The whole server over an engine: threads, surfaces, the orderly end. What `pagestate serve` and tests start.
//
// Threads: one for I/O, one that steps the engine, a few workers. The address is bound when create() returns; start()
// begins to serve. Threading: any thread, one call at a time.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "server/api_context.h"
#include "server/chat_answer.h"
#include "server/engine_port.h"
#include "server/engine_service.h"
#include "server/gate.h"
#include "server/http_server.h"

namespace ps::server {

struct ServerOptions {
  HttpOptions http;
  GateOptions gate;
  ServiceOptions service;
  ChatOptions chat;
  int workers = 2;
};

class Server {
 public:
  // REQUIRES: the engine outlives the server, and nobody else touches it until then.
  [[nodiscard]] static Result<std::unique_ptr<Server>> create(const ServerOptions& options, EnginePort& engine,
                                                              std::shared_ptr<const text::Tokenizer> tokenizer,
                                                              ModelInfo model);
  // Cancels what still runs.
  ~Server();

  void start();
  [[nodiscard]] std::string address() const;
  [[nodiscard]] int port() const;
  // Takes no more requests and lets those that run finish for `seconds`; then cancels and tells them. A second call may
  // shorten the time.
  void drain(double seconds);
  // Whether draining is through.
  [[nodiscard]] bool has_ended() const noexcept;
  // Why the engine is out of order for good; empty while it is not.
  [[nodiscard]] std::string fault() const;
  [[nodiscard]] EngineStatus status() const;

 private:
  struct Parts;
  explicit Server(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace ps::server
