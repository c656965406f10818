#include "server/http_parser.h"

#include <gtest/gtest.h>

namespace ps::server {
namespace {

using State = RequestParser::State;

constexpr const char* kPost =
    "POST /v1/completions?x=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nX-Request-Id:  abc \r\n\r\nhello";
constexpr const char* kChunked =
    "POST /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4;ext=1\r\ndefg\r\n0\r\nTrailer: "
    "x\r\n\r\n";

// Pushes `text` in pieces of `size`; returns what was not taken.
std::string push_all(RequestParser& parser, std::string_view text, size_t size) {
  while (!text.empty() && parser.state() != State::kDone && parser.state() != State::kFailed) {
    const size_t used = parser.push(text.substr(0, size));
    text.remove_prefix(used);
  }
  return std::string(text);
}

int failure(std::string_view text, const HttpLimits& limits = {}) {
  int status = -1;
  for (const size_t size : {size_t{1}, size_t{7}, size_t{100000}}) {
    RequestParser parser(limits);
    push_all(parser, text, size);
    const int found = parser.state() == State::kFailed ? parser.error().status : 0;
    EXPECT_TRUE(status == -1 || status == found) << "depends on the pieces: " << status << " and " << found;
    status = found;
  }
  return status;
}

TEST(RequestParser, ReadsARequestInAnyPieces) {
  for (size_t size = 1; size < 100; ++size) {
    RequestParser parser({});
    ASSERT_EQ(push_all(parser, kPost, size), "") << size;
    ASSERT_EQ(parser.state(), State::kDone) << size;
    const HttpRequest request = parser.take();
    EXPECT_EQ(request.method, "POST");
    EXPECT_EQ(request.path, "/v1/completions");
    EXPECT_EQ(request.query, "x=1");
    EXPECT_EQ(request.header("x-request-id"), "abc");
    EXPECT_EQ(request.body, "hello");
    EXPECT_TRUE(request.keeps_alive);
    EXPECT_EQ(parser.state(), State::kNothing);
  }
}

TEST(RequestParser, ReadsTheTargetsThatProxiesSend) {
  const auto path = [](const std::string& target) {
    RequestParser parser({});
    push_all(parser, "GET " + target + " HTTP/1.1\r\nHost: a\r\n\r\n", 5);
    return parser.state() == State::kDone ? parser.take().path : "refused";
  };
  EXPECT_EQ(path("http://a:80/health?x=1"), "/health");
  EXPECT_EQ(path("http://a"), "/");
  EXPECT_EQ(path("HTTP://a/health"), "/health");
  EXPECT_EQ(path("http://a?x=/metrics"), "/");
  EXPECT_EQ(path("https://a/health"), "refused");
  EXPECT_EQ(path("a:80"), "refused");
}

TEST(RequestParser, ReadsChunksInAnyPieces) {
  for (size_t size = 1; size < 120; ++size) {
    RequestParser parser({});
    ASSERT_EQ(push_all(parser, kChunked, size), "") << size;
    ASSERT_EQ(parser.state(), State::kDone) << size;
    EXPECT_EQ(parser.take().body, "abcdefg") << size;
  }
}

TEST(RequestParser, LeavesTheNextRequestAlone) {
  const std::string two = std::string(kPost) + kChunked;
  for (size_t size = 1; size < two.size() + 1; ++size) {
    RequestParser parser({});
    const std::string rest = push_all(parser, two, size);
    ASSERT_EQ(parser.state(), State::kDone) << size;
    EXPECT_EQ(parser.take().body, "hello");
    EXPECT_EQ(push_all(parser, rest, size), "") << size;
    ASSERT_EQ(parser.state(), State::kDone) << size;
    EXPECT_EQ(parser.take().body, "abcdefg");
  }
}

TEST(RequestParser, SkipsEmptyLinesBeforeARequest) {
  RequestParser parser({});
  EXPECT_EQ(push_all(parser, "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 3), "");
  EXPECT_EQ(parser.state(), State::kDone);
}

TEST(RequestParser, KnowsWhoKeepsTheConnection) {
  const auto keeps = [](std::string_view head) {
    RequestParser parser({});
    push_all(parser, head, 1000);
    EXPECT_EQ(parser.state(), State::kDone) << head;
    return parser.take().keeps_alive;
  };
  EXPECT_TRUE(keeps("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
  EXPECT_FALSE(keeps("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
  EXPECT_FALSE(keeps("GET / HTTP/1.0\r\n\r\n"));
  EXPECT_TRUE(keeps("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
}

TEST(RequestParser, RefusesMalformedRequests) {
  EXPECT_EQ(failure("\x16\x03\x01\x02 tls hello\r\n\r\n"), 400);
  EXPECT_EQ(failure("GET\r\n\r\n"), 400);
  EXPECT_EQ(failure("GET /\r\n\r\n"), 400);
  EXPECT_EQ(failure("GET / HTTP/2.0\r\nHost: a\r\n\r\n"), 505);
  EXPECT_EQ(failure("GET / HTTP/0.9\r\nHost: a\r\n\r\n"), 505);
  EXPECT_EQ(failure("GET / HTTP/1.1\nHost: a\n\n"), 400) << "a bare line feed";
  EXPECT_EQ(failure("GET / HTTP/2.0\nHost: a\r\n\r\n"), 400) << "a bare line feed";
  EXPECT_EQ(failure("GET / HTTP/1.1\rHost: a\r\n\r\n"), 400) << "a bare carriage return";
  EXPECT_EQ(failure("GET / HTTP/x.y\r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(failure("GET / HTTP/1.1 \r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(failure("GET / HTTP/1.1\r\nno colon\r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(failure("GET / HTTP/1.1\r\n\r\n"), 400) << "no host";
  EXPECT_EQ(failure("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), 400);
  EXPECT_EQ(failure("GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(failure("GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(failure("GET x HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(failure("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n"), 400);
  EXPECT_EQ(failure("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), 400);
}

TEST(RequestParser, RefusesWhatASecondServerCouldReadDifferently) {
  EXPECT_EQ(failure("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
  EXPECT_EQ(failure("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"), 400);
  EXPECT_EQ(failure("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\nContent-Length: 1\r\n\r\n"), 501);
}

TEST(RequestParser, EveryLimitHasItsStatus) {
  HttpLimits limits{.header_bytes = 1024, .target_bytes = 100, .body_bytes = 10};
  const std::string long_target = "GET /" + std::string(200, 'a') + " HTTP/1.1\r\nHost: a\r\n\r\n";
  EXPECT_EQ(failure(long_target, limits), 414);
  EXPECT_EQ(failure("GET /" + std::string(5000, 'a'), limits), 414);
  EXPECT_EQ(failure("GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(5000, 'a') + "\r\n\r\n", limits), 431);
  std::string many = "GET / HTTP/1.1\r\nHost: a\r\n";
  for (int i = 0; i < 200; ++i) many += "X-A: bbbbbbb\r\n";
  EXPECT_EQ(failure(many + "\r\n", limits), 431);
  EXPECT_EQ(failure("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n", limits), 413);
  EXPECT_EQ(
      failure("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nabcdef\r\n6\r\nabcdef\r\n", limits),
      413);
  EXPECT_EQ(failure("POST / HTTP/1.1\r\nHost: a\r\n\r\n", limits), 411);
  EXPECT_EQ(failure("POST / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\nContent-Length: 1\r\n\r\n", limits), 417);
  const std::string endless =
      "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;" + std::string(9000, 'e');
  EXPECT_EQ(failure(endless, limits), 400);
}

TEST(RequestParser, BodiesUpToTheLimitPass) {
  RequestParser parser({.body_bytes = 10});
  push_all(parser, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123456789", 1000);
  EXPECT_EQ(parser.state(), State::kDone);
}

TEST(RequestParser, SaysWhenTheClientWaits) {
  RequestParser parser({});
  push_all(parser, "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n", 1000);
  EXPECT_EQ(parser.state(), State::kBody);
  EXPECT_TRUE(parser.take_expectation());
  EXPECT_FALSE(parser.take_expectation());
}

}  // namespace
}  // namespace ps::server
