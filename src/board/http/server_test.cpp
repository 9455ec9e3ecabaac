// SPDX-License-Identifier: Apache-2.0
// The server against clients that misbehave.
#include "board/http/server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <atomic>

#include "base/error.h"
#include "obs/scratch_folder_test.h"

namespace trireme::board {
namespace {

using std::chrono::milliseconds;

base::Descriptor connected(int port, int receive_buffer = 0) {
  base::Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (receive_buffer > 0) {
    ::setsockopt(socket.value(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int done =
      ::connect(socket.value(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  EXPECT_EQ(done, 0);
  return socket;
}

void send_text(const base::Descriptor& socket, std::string_view text) {
  EXPECT_EQ(::send(socket.value(), text.data(), text.size(), MSG_NOSIGNAL), std::ssize(text));
}

// Receives until the server closes the connection, or `enough` is in the text.
std::string received(const base::Descriptor& socket, std::string_view enough = "\n\n\n") {
  std::string text;
  char block[4096];
  while (text.find(enough) == std::string::npos) {
    pollfd one{socket.value(), POLLIN, 0};
    if (::poll(&one, 1, 20'000) <= 0) return text + "(nothing more)";
    const ssize_t got = ::recv(socket.value(), block, sizeof(block), 0);
    if (got <= 0) break;
    text.append(block, static_cast<size_t>(got));
  }
  return text;
}

std::string asked(int port, const std::string& head) {
  const base::Descriptor socket = connected(port);
  send_text(socket, head);
  return received(socket);
}

constexpr const char* plain_head = "GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

Response echo(const Request& request) {
  return {.type = "text/plain", .body = "path " + request.path};
}

TEST(ServerTest, answers_and_keeps_connections) {
  const Server server({}, {}, echo);
  const std::string answer = asked(server.port(), plain_head);
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\npath /a")) << answer;
  const base::Descriptor socket = connected(server.port());
  for (const char* path : {"/1", "/2", "/3"}) {
    send_text(socket, std::string("GET ") + path + " HTTP/1.1\r\nHo");
    send_text(socket, "st: x\r\n\r\n");
    EXPECT_NE(received(socket, std::string("path ") + path).find("keep-alive"), std::string::npos);
  }
  // Two requests at once.
  send_text(socket, "GET /4 HTTP/1.1\r\n\r\nGET /5 HTTP/1.1\r\n\r\n");
  EXPECT_NE(received(socket, "path /5").find("path /4"), std::string::npos);
  // HEAD has the head only.
  EXPECT_TRUE(asked(server.port(), "HEAD /a HTTP/1.0\r\n\r\n").ends_with("\r\n\r\n"));
}

TEST(ServerTest, refuses_what_is_no_request) {
  const Server server({}, {}, echo);
  const auto status = [&](const std::string& head) {
    return asked(server.port(), head).substr(0, 12);
  };
  EXPECT_EQ(status("nonsense\r\n\r\n"), "HTTP/1.1 400");
  EXPECT_EQ(status("POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n"), "HTTP/1.1 413");
  EXPECT_EQ(status("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"), "HTTP/1.1 501");
  EXPECT_EQ(status("GET / HTTP/1.1\r\nA: " + std::string(20'000, 'x')), "HTTP/1.1 431");
  EXPECT_EQ(status(std::string(17'000, 'x')), "HTTP/1.1 431");
}

TEST(ServerTest, half_open_connections_do_not_stop_other_requests) {
  const Server server({}, {.max_waiting = 128}, echo);
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  rlimit raised = limit;
  raised.rlim_cur = raised.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &raised);
  // The limit of descriptors may allow fewer; each takes two until the server closes its end.
  const auto count = static_cast<size_t>(
      std::min<rlim_t>(10'000, raised.rlim_cur > 1000 ? raised.rlim_cur - 900 : 100));
  std::vector<base::Descriptor> half_open;
  for (size_t i = 0; i < count; ++i) {
    half_open.push_back(connected(server.port()));
    if (i % 3 == 0) {
      ::send(half_open.back().value(), "GET / HT", 8, MSG_NOSIGNAL);  // a part of a head
    }
    if (i % 250 == 0) {
      EXPECT_TRUE(asked(server.port(), plain_head).ends_with("path /a")) << i;
    }
  }
  EXPECT_TRUE(asked(server.port(), plain_head).ends_with("path /a"));
  EXPECT_GE(server.counts().evicted, static_cast<int64_t>(count) - 200);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

TEST(ServerTest, heads_have_a_time_limit) {
  const Server server({}, {.head_time = milliseconds(100)}, echo);
  const base::Descriptor silent = connected(server.port());
  const base::Descriptor slow = connected(server.port());
  send_text(slow, "GET ");
  EXPECT_EQ(received(silent), "");
  EXPECT_EQ(received(slow), "");
  EXPECT_EQ(server.counts().late, 2);
}

TEST(ServerTest, slow_readers_are_disconnected) {
  const std::string large(8 << 20, 'x');
  const Server server({}, {.max_active = 4, .stall_time = milliseconds(200)},
                      [&](const Request& request) -> Response {
                        return {.type = "text/plain",
                                .body = request.path == "/a" ? "path /a" : large};
                      });
  // They take one byte now and then, or none.
  std::vector<base::Descriptor> readers;
  for (int i = 0; i < 4; ++i) {
    readers.push_back(connected(server.port(), 2048));
    send_text(readers.back(), "GET /large HTTP/1.1\r\n\r\n");
  }
  while (server.counts().slow < 4) {
    for (const base::Descriptor& reader : readers) {
      char byte = 0;
      ::recv(reader.value(), &byte, 1, MSG_DONTWAIT);
    }
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_TRUE(asked(server.port(), plain_head).ends_with("path /a"));
}

TEST(ServerTest, more_requests_than_threads_are_told_to_come_back) {
  std::atomic<bool> is_ending = false;
  const Server server({}, {.max_active = 4, .max_streams = 2},
                      [&](const Request& request) -> Response {
                        if (request.path != "/stream") return echo(request);
                        return {.type = "text/plain", .stream = [&](const Sink& sink) {
                                  sink("begun");
                                  while (!is_ending && sink("")) {
                                    std::this_thread::sleep_for(milliseconds(5));
                                  }
                                }};
                      });
  const std::string stream_head = "GET /stream HTTP/1.1\r\n\r\n";
  std::vector<base::Descriptor> open;
  for (int i = 0; i < 2; ++i) {
    open.push_back(connected(server.port()));
    send_text(open.back(), stream_head);
    EXPECT_NE(received(open.back(), "begun").find("5\r\nbegun"), std::string::npos);
  }
  const base::Descriptor third = connected(server.port());
  send_text(third, stream_head);
  EXPECT_TRUE(received(third, "already").starts_with("HTTP/1.1 503"));
  EXPECT_TRUE(asked(server.port(), plain_head).ends_with("path /a"));
  // A stream whose client has left makes room.
  open.pop_back();
  std::string again;
  while (!again.starts_with("HTTP/1.1 200")) {
    const base::Descriptor next = connected(server.port());
    send_text(next, stream_head);
    again = received(next, "\r\n\r\n");
  }
  is_ending = true;
}

TEST(ServerTest, a_unix_socket_is_for_its_owner_only) {
  obs::ScratchFolder folder;
  const std::string path = folder / "board.sock";
  {
    const Server server(listen_place_from("unix:" + path), {}, echo);
    struct stat status {};
    ASSERT_EQ(::stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600U);
    EXPECT_EQ(server.port(), 0);
    // A second server does not take it over.
    EXPECT_THROW(Server(listen_place_from("unix:" + path), {}, echo), base::IoError);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(ListenTest, places_are_parsed) {
  EXPECT_EQ(listen_place_from("8080").port, 8080);
  EXPECT_TRUE(listen_place_from(":8080").is_loopback());
  EXPECT_EQ(listen_place_from("[::1]:80").address, "::1");
  EXPECT_TRUE(listen_place_from("localhost:0").is_loopback());
  EXPECT_FALSE(listen_place_from("0.0.0.0:80").is_loopback());
  EXPECT_FALSE(listen_place_from("192.168.1.2:80").is_loopback());
  for (const char* bad :
       {"", "x", "127.0.0.1", "1.2.3.4:99999", "host:80", "unix:", "1.2.3.4:-1"}) {
    EXPECT_THROW(listen_place_from(bad), base::ConfigError) << bad;
  }
}

}  // namespace
}  // namespace trireme::board
