// The page at "/" and what it polls: static files, and GET /v1/engine.
//
// The JSON of /v1/engine is described at the head of page/page.js. Threading: routes run on the I/O thread; the rest is
// a pure function.
#pragma once

#include <string>

#include "engine/view.h"
#include "server/api_context.h"
#include "server/metrics.h"
#include "server/router.h"

namespace ps::server {

// "/" and "/page/...": with the page's security policy, and 304 for a browser that has the file already.
void add_page_routes(Router& router);

void add_engine_route(Router& router, ApiContext& context);

struct EngineReport {
  std::string model;
  double uptime_seconds = 0;
  int64_t requests = 0;  // total
  EngineStatus status;
  engine::MemoryPlan memory;
  engine::EngineView view;
};
[[nodiscard]] std::string engine_report_json(const EngineReport& report);

}  // namespace ps::server
