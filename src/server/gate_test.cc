#include "server/gate.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "server/testing.h"

namespace ps::server {
namespace {

using test::RecordingResponder;

class GateTest : public testing::Test {
 protected:
  GateTest() {
    router_.add("GET", "/health", [](const RoutedRequest&, auto responder) { responder->reply(json_reply("health")); });
    router_.add("GET", "/v1/models/{id}",
                [](const RoutedRequest& request, auto responder) { responder->reply(json_reply(request.rest)); });
    router_.add("POST", "/t", [](const RoutedRequest&, auto responder) { responder->reply(json_reply("t")); });
    router_.add("GET", "/t", [](const RoutedRequest&, auto responder) { responder->reply(json_reply("got")); });
  }

  HttpReply ask(const std::string& method, const std::string& path, std::vector<HttpHeader> headers = {}) {
    auto request = std::make_shared<HttpRequest>();
    request->method = method;
    request->path = path;
    request->headers = std::move(headers);
    const auto responder = std::make_shared<RecordingResponder>();
    Gate(router_, metrics_, options_).handle(request, responder);
    return responder->last;
  }

  static std::string header(const HttpReply& reply, std::string_view name) {
    for (const HttpHeader& one : reply.headers) {
      if (one.name == name) return one.value;
    }
    return "";
  }

  Router router_;
  Metrics metrics_;
  GateOptions options_;
};

TEST_F(GateTest, FindsRoutes) {
  EXPECT_EQ(ask("GET", "/health").body, "health");
  EXPECT_EQ(ask("HEAD", "/health").body, "health");
  EXPECT_EQ(ask("POST", "/t").body, "t");
  EXPECT_EQ(ask("GET", "/v1/models/a/b").body, "a/b");
}

TEST_F(GateTest, AnswersUnknownPathsAndMethodsInJson) {
  const HttpReply unknown = ask("GET", "/nowhere");
  EXPECT_EQ(unknown.status, 404);
  const auto json = JsonValue::parse(unknown.body);
  ASSERT_TRUE(json.ok()) << unknown.body;
  const JsonValue* error = json.value().find("error");
  ASSERT_NE(error, nullptr);
  for (const char* key : {"message", "type", "param", "code"}) EXPECT_NE(error->find(key), nullptr) << key;
  EXPECT_TRUE(JsonValue::parse(ask("GET", "/\xE2(").body).ok()) << "what a client sent need not be UTF-8";
  EXPECT_EQ(ask("GET", "/v1/models/").status, 404);
  const HttpReply wrong = ask("DELETE", "/t");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(header(wrong, "Allow"), "POST, GET, HEAD");
}

TEST_F(GateTest, AsksForTheKey) {
  options_.api_key = "secret";
  EXPECT_EQ(ask("GET", "/t").status, 401);
  EXPECT_EQ(ask("GET", "/t", {{"authorization", "Bearer secret2"}}).status, 401);
  EXPECT_EQ(ask("GET", "/t", {{"authorization", "Bearer secre"}}).status, 401);
  EXPECT_EQ(ask("GET", "/t", {{"authorization", "secret"}}).status, 401);
  EXPECT_EQ(ask("GET", "/t", {{"authorization", "Bearer "}}).status, 401);
  EXPECT_EQ(ask("GET", "/nowhere").status, 401) << "routes are not told to strangers";
  EXPECT_EQ(ask("GET", "/t", {{"authorization", "Bearer secret"}}).status, 200);
  EXPECT_EQ(ask("GET", "/t", {{"authorization", "bearer  secret"}}).status, 200);
  EXPECT_EQ(ask("GET", "/t", {{"x-api-key", "secret"}}).status, 200);
  EXPECT_EQ(ask("GET", "/health").status, 200);
  EXPECT_EQ(ask("GET", "/").status, 404) << "the page is for everybody, where there is one";
  EXPECT_EQ(ask("GET", "/page/page.js").status, 404);
  EXPECT_EQ(ask("GET", "/page/other").status, 401);
}

TEST_F(GateTest, HasNoCorsUnlessAsked) {
  std::vector<HttpHeader> headers;
  Gate(router_, metrics_, options_).add_headers({}, headers);
  EXPECT_TRUE(headers.empty());
  EXPECT_EQ(ask("OPTIONS", "/t").status, 405);

  options_.cors_origin = "https://example.org";
  options_.api_key = "secret";
  const HttpReply preflight = ask("OPTIONS", "/t");
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(header(preflight, "Access-Control-Allow-Methods"), "POST, GET, HEAD, OPTIONS");
  Gate(router_, metrics_, options_).add_headers({}, headers);
  ASSERT_FALSE(headers.empty());
  EXPECT_EQ(headers.front().value, "https://example.org");
}

TEST(EqualSecrets, ComparesWholeStrings) {
  EXPECT_TRUE(equal_secrets("abc", "abc"));
  EXPECT_FALSE(equal_secrets("abcabc", "abc"));
  EXPECT_FALSE(equal_secrets("ab", "abc"));
  EXPECT_FALSE(equal_secrets("", "abc"));
}

}  // namespace
}  // namespace ps::server
