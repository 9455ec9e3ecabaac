// SPDX-License-Identifier: Apache-2.0
#include "board/gate.h"

#include <gtest/gtest.h>

namespace trireme::board {
namespace {

constexpr const char* token = "0123456789abcdef0123456789abcdef";

class GateTest : public testing::Test {
 protected:
  Gate gate{{.token = token, .port = 4711, .hosts = {"Node7"}}};

  Request good(std::string_view url = "/api/runs") const {
    Request request = request_of(url);
    request.headers = {{"host", "127.0.0.1:4711"}, {"cookie", gate.cookie_name() + "=" + token}};
    return request;
  }
  int status(const Request& request) const {
    const std::optional<Response> refused = gate.check(request);
    return refused ? refused->status : 200;
  }
  int with_header(const char* name, const char* value) const {
    Request request = good();
    request.headers[name] = value;
    return status(request);
  }
};

TEST_F(GateTest, the_host_must_be_this_server) {
  for (const char* host : {"127.0.0.1:4711", "localhost:4711", "LOCALHOST:4711", "[::1]:4711",
                           "10.1.2.3:4711", "node7:4711"}) {
    EXPECT_EQ(with_header("host", host), 200) << host;
  }
  for (const char* host : {"evil.example:4711", "127.0.0.1", "127.0.0.1:80", "localhost:4712",
                           "localhost.evil:4711", "127.0.0.1.evil:4711", "127.0.0.1:4711x", "",
                           ":4711", "node8:4711", "[::1:4711", "0x7f.1:4711"}) {
    EXPECT_EQ(with_header("host", host), 421) << host;
  }
  Request without = good();
  without.headers.erase("host");
  EXPECT_EQ(status(without), 421);
}

TEST_F(GateTest, only_its_own_pages_may_ask) {
  EXPECT_EQ(with_header("origin", "http://127.0.0.1:4711"), 200);
  for (const char* origin : {"http://evil.example", "http://127.0.0.1:4712", "null",
                             "http://127.0.0.1:4711.evil.example"}) {
    EXPECT_EQ(with_header("origin", origin), 403) << origin;
  }
  EXPECT_EQ(with_header("sec-fetch-site", "same-origin"), 200);
  EXPECT_EQ(with_header("sec-fetch-site", "none"), 200);
  EXPECT_EQ(with_header("sec-fetch-site", "cross-site"), 403);
  EXPECT_EQ(with_header("sec-fetch-site", "same-site"), 403);
}

TEST_F(GateTest, methods_that_change_are_refused) {
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "get", ""}) {
    Request request = good();
    request.method = method;
    EXPECT_EQ(status(request), 405) << method;
  }
  Request head = good();
  head.method = "HEAD";
  EXPECT_EQ(status(head), 200);
}

TEST_F(GateTest, every_path_needs_the_token) {
  for (const char* path : {"/", "/app/main.js", "/api/runs", "/metrics", "/healthz", "/nothing"}) {
    Request request = good(path);
    EXPECT_EQ(status(request), 200) << path;
    request.headers.erase("cookie");
    EXPECT_EQ(status(request), 401) << path;
    request.headers["cookie"] = gate.cookie_name() + "=" + std::string(token).substr(1);
    EXPECT_EQ(status(request), 401) << path;
    request.headers["cookie"] = "a=b; " + gate.cookie_name() + "=" + token;
    EXPECT_EQ(status(request), 200) << path;
  }
  Request request = good();
  request.headers.erase("cookie");
  request.headers["authorization"] = std::string("Bearer ") + token;
  EXPECT_EQ(status(request), 200);
  request.headers["authorization"] = "Bearer ";
  EXPECT_EQ(status(request), 401);
}

TEST_F(GateTest, the_token_moves_from_the_address_to_a_cookie) {
  Request request = good(std::string("/?token=") + token);
  request.headers.erase("cookie");
  const std::optional<Response> moved = gate.check(request);
  ASSERT_TRUE(moved.has_value());
  EXPECT_EQ(moved->status, 303);
  std::string location, cookie;
  for (const auto& [name, value] : moved->headers) {
    if (name == "Location") location = value;
    if (name == "Set-Cookie") cookie = value;
  }
  EXPECT_EQ(location, "/");
  EXPECT_NE(cookie.find("HttpOnly; SameSite=Strict"), std::string::npos);
  request.query = {{"token", "0123456789abcdef0123456789abcdeX"}};
  EXPECT_EQ(status(request), 401);
}

TEST_F(GateTest, metrics_can_be_opened_and_nothing_else) {
  const Gate open({.token = token, .port = 4711, .hosts = {}, .metrics_are_open = true});
  for (const char* path : {"/metrics", "/healthz", "/api/runs", "/"}) {
    Request request = good(path);
    request.headers.erase("cookie");
    const bool is_open = std::string(path) == "/metrics" || std::string(path) == "/healthz";
    EXPECT_EQ(open.check(request).has_value(), !is_open) << path;
    request.headers["host"] = "evil.example:4711";
    EXPECT_EQ(open.check(request)->status, 421);
  }
}

TEST_F(GateTest, responses_forbid_foreign_content) {
  Response response;
  Gate::add_headers(good(), response);
  std::string all;
  for (const auto& [name, value] : response.headers) all += name + ": " + value + "\n";
  for (const char* part :
       {"Content-Security-Policy: default-src 'none'; script-src 'self'", "frame-ancestors 'none'",
        "require-trusted-types-for 'script'", "X-Content-Type-Options: nosniff",
        "Referrer-Policy: no-referrer", "Cache-Control: no-store"}) {
    EXPECT_NE(all.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(all.find("Access-Control"), std::string::npos);
}

TEST(TokenTest, tokens_have_128_random_bits) {
  const std::string a = random_token(), b = random_token();
  EXPECT_EQ(a.size(), 32U);
  EXPECT_NE(a, b);
}

}  // namespace
}  // namespace trireme::board
