#include "server/server.h"

#include <atomic>
#include <thread>
#include <utility>

#include "base/macros.h"
#include "base/process.h"
#include "server/chat_api.h"
#include "server/completions.h"
#include "server/models_api.h"
#include "server/page_api.h"
#include "server/tokens_api.h"
#include "server/worker_pool.h"

namespace ps::server {
namespace {

void add_health_route(Router& router, const EngineService& engine, const HttpServer& http) {
  router.add("GET", "/health", [&](const RoutedRequest&, const std::shared_ptr<Responder>& responder) {
    std::string trouble = engine.trouble();
    if (trouble.empty() && http.is_draining()) trouble = "the server stops";
    if (!trouble.empty()) return responder->reply(error_reply(ApiError::unavailable(trouble, "unhealthy")));
    responder->reply(json_reply(R"({"status":"ok"})"));
  });
}

void add_metrics_route(Router& router, Metrics& metrics, const EngineService& engine, const HttpServer& http) {
  router.add("GET", "/metrics", [&](const RoutedRequest&, const std::shared_ptr<Responder>& responder) {
    HttpReply reply;
    reply.content_type = "text/plain; version=0.0.4; charset=utf-8";
    reply.body = metrics.text({engine.status(), engine.memory(), http.connections(), http.dropped()});
    responder->reply(std::move(reply));
  });
}

}  // namespace

// In the order of construction. The end goes the other way: I/O first, so that nothing reaches the rest any more.
struct Server::Parts {
  explicit Parts(const ServerOptions& options)
      : gate(router, metrics, options.gate), workers(std::make_unique<WorkerPool>(options.workers)) {}

  Metrics metrics;
  Router router;
  Gate gate;
  std::unique_ptr<HttpServer> http;
  std::unique_ptr<WorkerPool> workers;
  std::unique_ptr<EngineService> engine;
  std::unique_ptr<ApiContext> context;
  std::unique_ptr<ChatContext> chat;
  std::thread io_thread;
  std::atomic<bool> has_ended = false;
};

Result<std::unique_ptr<Server>> Server::create(const ServerOptions& options, EnginePort& engine,
                                               std::shared_ptr<const text::Tokenizer> tokenizer, ModelInfo model) {
  if (options.workers < 1) {
    return Status::invalid("workers is " + std::to_string(options.workers) + "; legal values are 1 or more");
  }
  constexpr int64_t kMostQueued = int64_t{1} << 32;
  if (options.service.max_queue < 0 || options.service.max_queue > kMostQueued) {
    return Status::invalid("max-queue is " + std::to_string(options.service.max_queue) +
                           "; legal values are 0 to 2^32");
  }
  auto parts = std::make_unique<Parts>(options);
  PS_TRY(parts->http, HttpServer::create(options.http, parts->gate));
  parts->engine = std::make_unique<EngineService>(engine, *parts->http, parts->metrics, options.service);
  parts->context = std::make_unique<ApiContext>(
      ApiContext{std::move(tokenizer), std::move(model), *parts->engine, *parts->workers, *parts->http});
  parts->chat = std::make_unique<ChatContext>(*parts->context, options.chat);
  Router& router = parts->router;
  add_health_route(router, *parts->engine, *parts->http);
  add_metrics_route(router, parts->metrics, *parts->engine, *parts->http);
  add_models_routes(router, *parts->context);
  add_tokens_routes(router, *parts->context);
  add_completions_route(router, *parts->context);
  add_chat_routes(router, *parts->chat);
  add_page_routes(router);
  add_engine_route(router, *parts->context);
  return std::unique_ptr<Server>(new Server(std::move(parts)));
}

Server::Server(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Server::~Server() {
  parts_->http->stop();
  if (parts_->io_thread.joinable()) parts_->io_thread.join();
  parts_->engine->stop();
  parts_->workers.reset();
  // What was posted and never ran holds responders and sinks: it goes before what they refer to.
  parts_->http.reset();
}

void Server::start() {
  parts_->engine->start();
  parts_->io_thread = std::thread([parts = parts_.get()] {
    name_thread("pagestate-io");
    parts->http->run();
    parts->has_ended = true;
  });
}

std::string Server::address() const { return parts_->http->address(); }
int Server::port() const { return parts_->http->port(); }
void Server::drain(double seconds) { parts_->http->drain(seconds); }
bool Server::has_ended() const noexcept { return parts_->has_ended; }
std::string Server::fault() const { return parts_->engine->fault(); }
EngineStatus Server::status() const { return parts_->engine->status(); }

}  // namespace ps::server
