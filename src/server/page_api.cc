#include "server/page_api.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/json.h"
#include "server/page_files.h"

namespace ps::server {
namespace {

// Whether a list of entity tags, as If-None-Match has it, names this one. Weak tags count: they compare weakly.
bool names_tag(std::string_view list, std::string_view tag) {
  while (!list.empty()) {
    const size_t comma = list.find(',');
    std::string_view one = trim_spaces(list.substr(0, comma));
    if (one.starts_with("W/")) one.remove_prefix(2);
    if (one == tag || one == "*") return true;
    list.remove_prefix(comma == std::string_view::npos ? list.size() : comma + 1);
  }
  return false;
}

HttpReply file_reply(const PageFile& file, const HttpRequest& request) {
  HttpReply reply;
  reply.content_type = file.content_type;
  reply.headers = {{"ETag", std::string(file.etag)},
                   {"Cache-Control", "no-cache"},
                   {"Content-Security-Policy", std::string(kPageSecurityPolicy)},
                   {"X-Content-Type-Options", "nosniff"},
                   {"Referrer-Policy", "no-referrer"}};
  if (names_tag(request.header("if-none-match"), file.etag)) {
    reply.status = 304;
  } else {
    reply.body = file.bytes;
  }
  return reply;
}

void write_running(JsonWriter& json, const engine::SequenceView& sequence) {
  const bool is_answering = sequence.computed_tokens >= sequence.prompt_tokens;
  json.begin_object().key("id").integer(static_cast<int64_t>(sequence.id));
  json.key("state").string(is_answering ? "answer" : "prompt");
  json.key("prompt_tokens").integer(sequence.prompt_tokens).key("cached_tokens").integer(sequence.cached_tokens);
  json.key("computed_tokens").integer(sequence.computed_tokens);
  json.key("answer_tokens").integer(sequence.answer_tokens).end_object();
}

void write_pages(JsonWriter& json, const EngineReport& report) {
  const EngineStatus& status = report.status;
  json.key("page_tokens").integer(report.memory.geometry.options.page_tokens);
  json.key("pages").begin_object().key("total").integer(report.memory.pages).key("used").integer(status.pages_used);
  json.key("cached").integer(status.pages_cached).key("images").integer(status.pages_image);
  json.key("free").integer(status.pages_vacant).end_object();
  json.key("page_map").begin_object().key("pages_per_cell").integer(report.view.pages.pages_per_cell);
  json.key("cells").string(report.view.pages.cells).end_object();
}

void write_totals(JsonWriter& json, const EngineReport& report) {
  const EngineStatus& status = report.status;
  json.key("totals").begin_object().key("requests").integer(report.requests);
  json.key("prompt_tokens").integer(status.lookup_tokens).key("cached_tokens").integer(status.hit_tokens);
  json.key("computed_tokens").integer(status.prompt_rows).key("answer_tokens").integer(status.answer_tokens);
  json.key("steps").integer(status.steps).key("preemptions").integer(status.preemptions);
  json.key("evictions").integer(status.evictions).end_object();
}

void write_memory(JsonWriter& json, const engine::MemoryPlan& memory) {
  std::vector<std::pair<int64_t, const char*>> parts = {{memory.page_bytes, "PAGEs"},
                                                        {memory.state_bytes, "STATE"},
                                                        {memory.scratch_bytes, "scratch"},
                                                        {memory.logit_bytes, "logits"}};
  std::ranges::stable_sort(parts, std::greater(), &std::pair<int64_t, const char*>::first);
  json.key("memory").begin_array();
  for (const auto& [bytes, name] : parts) {
    json.begin_object().key("name").string(name).key("bytes").integer(bytes).end_object();
  }
  json.end_array();
}

}  // namespace

std::string engine_report_json(const EngineReport& report) {
  JsonWriter json(JsonWriter::Style::kCompact);
  json.begin_object().key("model").string(report.model).key("uptime_seconds").real(report.uptime_seconds);
  json.key("max_context").integer(report.memory.max_context);
  write_pages(json, report);
  json.key("running").begin_array();
  for (const engine::SequenceView& sequence : report.view.running) write_running(json, sequence);
  json.end_array().key("waiting").integer(report.status.waiting);
  write_totals(json, report);
  write_memory(json, report.memory);
  json.end_object();
  return std::move(json).text();
}

void add_page_routes(Router& router) {
  for (const PageFile& file : page_files()) {
    router.add("GET", std::string(file.path),
               [&file](const RoutedRequest& request, const std::shared_ptr<Responder>& responder) {
                 responder->reply(file_reply(file, *request.http));
               });
  }
}

void add_engine_route(Router& router, ApiContext& context) {
  using Clock = std::chrono::steady_clock;
  router.add("GET", "/v1/engine",
             [&context, start = Clock::now()](const RoutedRequest&, const std::shared_ptr<Responder>& responder) {
               EngineReport report;
               report.model = context.model.names.front();
               report.uptime_seconds = std::chrono::duration<double>(Clock::now() - start).count();
               report.requests = context.engine.submissions();
               report.status = context.engine.status();
               report.memory = context.engine.memory();
               report.view = *context.engine.view();
               HttpReply reply = json_reply(engine_report_json(report));
               reply.headers.push_back({"Cache-Control", "no-store"});
               responder->reply(std::move(reply));
             });
}

}  // namespace ps::server
