#include "server/page_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "server/page_files.h"
#include "server/testing.h"

namespace ps::server {
namespace {

using test::RecordingResponder;

HttpReply ask(const std::string& path, std::vector<HttpHeader> headers = {}, const std::string& method = "GET") {
  Router router;
  add_page_routes(router);
  const auto request = std::make_shared<HttpRequest>();
  request->method = method;
  request->path = path;
  request->headers = std::move(headers);
  const Router::Match match = router.find(*request);
  if (match.handler == nullptr) return match.error;
  const auto responder = std::make_shared<RecordingResponder>();
  (*match.handler)({request, match.rest}, responder);
  return responder->last;
}

std::string header(const HttpReply& reply, std::string_view name) {
  for (const HttpHeader& one : reply.headers) {
    if (one.name == name) return one.value;
  }
  return "";
}

TEST(PageRoutes, ServeEveryFileUnderItsPolicy) {
  for (const PageFile& file : page_files()) {
    const HttpReply reply = ask(std::string(file.path));
    EXPECT_EQ(reply.status, 200) << file.path;
    EXPECT_EQ(reply.body, file.bytes) << file.path;
    EXPECT_EQ(reply.content_type, file.content_type) << file.path;
    EXPECT_EQ(header(reply, "Content-Security-Policy"), kPageSecurityPolicy) << file.path;
    EXPECT_EQ(header(reply, "X-Content-Type-Options"), "nosniff") << file.path;
    EXPECT_EQ(header(reply, "ETag"), file.etag) << file.path;
  }
  EXPECT_EQ(ask("/page/nothing.js").status, 404);
  EXPECT_EQ(ask("/", {}, "POST").status, 405);
}

TEST(PageRoutes, SendNothingThatTheBrowserHas) {
  const std::string tag(find_page_file("/")->etag);
  for (const std::string& known : {tag, "W/" + tag, "\"other\", " + tag, std::string("*")}) {
    const HttpReply reply = ask("/", {{"if-none-match", known}});
    EXPECT_EQ(reply.status, 304) << known;
    EXPECT_EQ(reply.body, "") << known;
    EXPECT_EQ(header(reply, "ETag"), tag) << known;
  }
  for (const std::string& other : {std::string("\"other\""), tag.substr(1), std::string(",, ,")}) {
    EXPECT_EQ(ask("/", {{"if-none-match", other}}).status, 200) << other;
  }
}

TEST(EngineReport, HasTheFieldsThatThePageReads) {
  EngineReport report;
  report.model = "a \"model\"";
  report.uptime_seconds = 12.5;
  report.requests = 9;
  report.status = {.waiting = 2,
                   .pages_vacant = 4,
                   .pages_cached = 3,
                   .pages_used = 2,
                   .pages_image = 1,
                   .preemptions = 11,
                   .evictions = 12,
                   .lookup_tokens = 13,
                   .hit_tokens = 14,
                   .steps = 15,
                   .prompt_rows = 16,
                   .answer_tokens = 17};
  report.memory.pages = 10;
  report.memory.max_context = 4096;
  report.memory.geometry.options.page_tokens = 256;
  report.memory.page_bytes = 30;
  report.memory.state_bytes = 40;
  report.memory.scratch_bytes = 20;
  report.memory.logit_bytes = 10;
  report.view.pages = {2, "ucf"};
  report.view.running = {{engine::SequenceId{5}, 100, 64, 80, 0}, {engine::SequenceId{6}, 100, 0, 100, 7}};
  EXPECT_EQ(
      engine_report_json(report),
      R"({"model":"a \"model\"","uptime_seconds":12.5,"max_context":4096,"page_tokens":256,)"
      R"("pages":{"total":10,"used":2,"cached":3,"images":1,"free":4},"page_map":{"pages_per_cell":2,"cells":"ucf"},)"
      R"("running":[{"id":5,"state":"prompt","prompt_tokens":100,"cached_tokens":64,"computed_tokens":80,)"
      R"("answer_tokens":0},{"id":6,"state":"answer","prompt_tokens":100,"cached_tokens":0,"computed_tokens":100,)"
      R"("answer_tokens":7}],"waiting":2,"totals":{"requests":9,"prompt_tokens":13,"cached_tokens":14,)"
      R"("computed_tokens":16,"answer_tokens":17,"steps":15,"preemptions":11,"evictions":12},)"
      R"("memory":[{"name":"STATE","bytes":40},{"name":"PAGEs","bytes":30},{"name":"scratch","bytes":20},)"
      R"({"name":"logits","bytes":10}]})");
}

}  // namespace
}  // namespace ps::server
