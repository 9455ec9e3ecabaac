// SPDX-License-Identifier: Apache-2.0
#include "board/http/message.h"

#include <gtest/gtest.h>

#include <random>

namespace trireme::board {
namespace {

TEST(MessageTest, a_head_of_a_browser_is_parsed) {
  const std::string head =
      "GET /api/run/0/series?tag=loss%2Fa&tag=b+c&px=10&empty&=x HTTP/1.1\r\nHost: "
      "localhost:1\r\nCookie: a=b\r\nX-Other:\t spaced \r\nCookie: c=d\r\n\r\n";
  EXPECT_EQ(head_size(head + "GET"), head.size());
  EXPECT_EQ(head_size(head.substr(0, head.size() - 1)), 0U);
  const ParsedHead parsed = parse_head(head);
  ASSERT_EQ(parsed.status, 200);
  EXPECT_EQ(parsed.request.path, "/api/run/0/series");
  EXPECT_EQ(parsed.request.query.size(), 5U);
  EXPECT_EQ(parsed.request.query[0].second, "loss/a");
  EXPECT_EQ(parsed.request.query[1].second, "b c");
  EXPECT_EQ(parsed.request.header("cookie"), "a=b; c=d");
  EXPECT_EQ(parsed.request.header("x-other"), "spaced");
  EXPECT_TRUE(parsed.keeps_alive);
}

TEST(MessageTest, what_is_not_supported_is_refused) {
  const auto status = [](const std::string& head) { return parse_head(head + "\r\n").status; };
  EXPECT_EQ(status("GET / HTTP/1.1\r\n"), 200);
  EXPECT_EQ(status("GET / HTTP/2.0\r\n"), 505);
  EXPECT_EQ(status("GET /\r\n"), 400);
  EXPECT_EQ(status("GET  / HTTP/1.1\r\n"), 400);
  EXPECT_EQ(status("GET http://other/ HTTP/1.1\r\n"), 400);
  EXPECT_EQ(status("GET /\x01 HTTP/1.1\r\n"), 400);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nno colon\r\n"), 400);
  EXPECT_EQ(status("GET / HTTP/1.1\r\n folded: x\r\n"), 400);
  EXPECT_EQ(status("GET / HTTP/1.1\r\na: b\nc: d\r\n"), 400);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n"), 400);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nContent-Length: 5\r\n"), 413);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n"), 501);
  EXPECT_EQ(status("GET /" + std::string(9000, 'a') + " HTTP/1.1\r\n"), 414);
  std::string many = "GET / HTTP/1.1\r\n";
  for (int i = 0; i < 200; ++i) many += "a: b\r\n";
  EXPECT_EQ(status(many), 400);
}

TEST(MessageTest, values_cannot_begin_another_header) {
  Response response{.status = 200, .body = "x"};
  response.headers.emplace_back("ETag", "a\r\nSet-Cookie: b");
  const std::string head = response_head(response, {.keeps_alive = true});
  EXPECT_EQ(head.find("\r\nSet-Cookie"), std::string::npos);
  EXPECT_NE(head.find("Content-Length: 1\r\n"), std::string::npos);
}

TEST(MessageTest, random_heads_do_no_harm) {
  std::mt19937_64 random(5);
  const std::string good =
      "GET /api/run/0/series?tag=a&px=10 HTTP/1.1\r\nHost: localhost:1\r\nCookie: a=b\r\n\r\n";
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string head = good;
    const int changes = static_cast<int>(1 + random() % 6);
    for (int i = 0; i < changes && !head.empty(); ++i) {
      const size_t at = random() % head.size();
      switch (random() % 4) {
        case 0:
          head[at] = static_cast<char>(random());
          break;
        case 1:
          head.erase(at, random() % 10);
          break;
        case 2:
          head.insert(at, std::string(random() % 20, static_cast<char>(random())));
          break;
        default:
          head.insert(at, head.substr(random() % head.size(), random() % 30));
          break;
      }
    }
    const size_t size = head_size(head);
    if (size == 0) continue;
    const ParsedHead parsed = parse_head(std::string_view(head).substr(0, size));
    if (parsed.status == 200) {
      ++accepted;
      EXPECT_TRUE(parsed.request.path.starts_with('/') || head.find('%') != std::string::npos);
    }
  }
  EXPECT_GT(accepted, 0);
}

}  // namespace
}  // namespace trireme::board
