// The page and its view of the engine, over the wire, on the synthetic checkpoint.
#include <gmock/gmock.h>

#include "server/page_files.h"
#include "tests/server/server_fixture.h"

namespace ps::tests {
namespace {

using testing::HasSubstr;

int64_t number(const JsonValue& report, std::string_view group, std::string_view name) {
  const JsonValue* parent = group.empty() ? &report : report.find(group);
  const JsonValue* value = parent != nullptr ? parent->find(name) : nullptr;
  if (value == nullptr) {
    ADD_FAILURE() << "no " << group << "." << name;
    return -1;
  }
  return value->integer().value();
}

TEST(Page, IsServedWithItsPolicyAndOnce) {
  NanoServer server;
  const Reply page = server.ask(get("/"));
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.body, server::find_page_file("/")->bytes);
  EXPECT_EQ(page.header("Content-Security-Policy"), server::kPageSecurityPolicy);
  EXPECT_EQ(page.header("X-Content-Type-Options"), "nosniff");

  // A 304 has no body, and the connection goes on behind it.
  Client client = server.client();
  client.send(get("/", "If-None-Match: " + std::string(page.header("ETag")) + "\r\n"));
  const Reply again = client.read_reply();
  EXPECT_EQ(again.status, 304);
  EXPECT_EQ(again.body, "");
  client.send(get("/page/page.css"));
  const Reply style = client.read_reply();
  EXPECT_EQ(style.status, 200);
  EXPECT_EQ(style.body, server::find_page_file("/page/page.css")->bytes);
}

TEST(Page, NeedsNoKeyButItsDataDo) {
  server::ServerOptions options;
  options.gate.api_key = "secret";
  NanoServer server(options);
  EXPECT_EQ(server.ask(get("/")).status, 200);
  EXPECT_EQ(server.ask(get("/page/page.js")).status, 200);
  EXPECT_EQ(server.ask(get("/v1/engine")).status, 401);
  EXPECT_EQ(server.ask(get("/v1/engine", "Authorization: Bearer secret\r\n")).status, 200);
}

TEST(EngineView, ShowsWhatRunsAndWhatIsLeft) {
  NanoServer server;
  const JsonValue before = server.ask(get("/v1/engine")).json();
  EXPECT_EQ(before.find("model")->text(), "test-model");
  EXPECT_EQ(number(before, "", "page_tokens"), 64);
  EXPECT_EQ(number(before, "pages", "total"), server.pages());
  EXPECT_EQ(number(before, "pages", "free"), server.pages());
  EXPECT_EQ(before.find("page_map")->find("cells")->text(), std::string(static_cast<size_t>(server.pages()), 'f'));
  EXPECT_EQ(number(before, "totals", "requests"), 0);

  // A long answer is seen while it runs.
  std::string ids = "5";
  for (int i = 0; i < 149; ++i) ids += ",6";
  Client client = server.client();
  client.send(post("/v1/completions",
                   "{\"prompt\":[" + ids + R"(],"max_tokens":1500,"ignore_eos":true,"temperature":0,"stream":true})"));
  JsonValue during;
  ASSERT_TRUE(wait_until([&] {
    during = server.ask(get("/v1/engine")).json();
    const auto& running = during.find("running")->items();
    return !running.empty() && running.front().find("state")->text() == "answer";
  }));
  const JsonValue& running = during.find("running")->items().front();
  EXPECT_EQ(number(running, "", "prompt_tokens"), 150);
  EXPECT_EQ(number(running, "", "computed_tokens"), 150);
  EXPECT_GT(number(during, "pages", "used"), 0);
  EXPECT_THAT(during.find("page_map")->find("cells")->text(), HasSubstr("u"));
  client.close();

  // What it leaves behind is cached.
  ASSERT_TRUE(wait_until([&] { return server.is_at_rest(); }));
  JsonValue after;
  ASSERT_TRUE(wait_until([&] {
    after = server.ask(get("/v1/engine")).json();
    return after.find("running")->items().empty();
  }));
  EXPECT_EQ(number(after, "totals", "requests"), 1);
  EXPECT_EQ(number(after, "totals", "prompt_tokens"), 149);  // looked up: the last one is computed in any case
  EXPECT_GT(number(after, "totals", "answer_tokens"), 0);
  EXPECT_GT(number(after, "pages", "cached"), 0);
  EXPECT_EQ(number(after, "pages", "used"), 0);
  EXPECT_THAT(after.find("page_map")->find("cells")->text(), HasSubstr("c"));
  EXPECT_EQ(number(after, "pages", "free") + number(after, "pages", "cached") + number(after, "pages", "images"),
            server.pages());
}

}  // namespace
}  // namespace ps::tests
