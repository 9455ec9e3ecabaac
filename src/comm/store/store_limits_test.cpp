// SPDX-License-Identifier: Apache-2.0
// The limits of a store: it refuses connections without the token, too many, too slow or too large
// ones; and the addresses on which it listens.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/error.h"
#include "base/system/descriptor.h"
#include "comm/failure/verdict.h"
#include "comm/store/store_server.h"
#include "comm/store/store_socket.h"
#include "comm/store/store_table.h"
#include "comm/store/store_tcp.h"

namespace trireme::comm {
namespace {

constexpr const char* secret = "0123456789abcdef0123456789abcdef";

StoreAddress address_at(const StoreServer& server, const std::string& host = "127.0.0.1") {
  return {.host = host, .port = server.port()};
}

base::Descriptor stranger_at(const StoreServer& server) {
  return base::Descriptor(
      connect_to(address_at(server), {.deadline_s = 5}, [](int) { return std::string(); }));
}

void send_all(const base::Descriptor& socket, std::string_view bytes) {
  ASSERT_EQ(::send(socket.value(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}

// Returns whether the server closes the connection within `seconds`, and what it sent before.
bool is_closed(const base::Descriptor& socket, double seconds, std::string* answer = nullptr) {
  const auto end = socket_time_after(seconds);
  std::array<char, 65536> part;
  while (is_socket_ready(socket.value(), POLLIN, end)) {
    const ssize_t count = ::recv(socket.value(), part.data(), part.size(), 0);
    if (count == 0 || (count < 0 && errno == ECONNRESET)) return true;
    if (count > 0 && answer != nullptr) answer->append(part.data(), static_cast<size_t>(count));
  }
  return false;
}

TEST(StoreLimits, nothing_can_be_read_or_set_without_the_token) {
  const StoreServer server({.token = secret});
  TcpStore own(address_at(server), {.token = secret});
  own.set("weights", "precious");
  std::vector<std::string> handshakes = {"", std::string(store_protocol), store_handshake(""),
                                         store_handshake("0123456789abcdef0123456789abcdee")};
  handshakes.push_back(store_handshake(secret));
  handshakes.back().back() ^= 1;
  for (const std::string& handshake : handshakes) {
    for (const StoreMessage& request : {StoreMessage{StoreCode::read, {"weights"}},
                                        StoreMessage{StoreCode::set, {"weights", "worthless"}},
                                        StoreMessage{StoreCode::set_once, {verdict_key, "dead"}},
                                        StoreMessage{StoreCode::join, {"0", "process 1", "0"}}}) {
      const base::Descriptor stranger = stranger_at(server);
      send_all(stranger,
               handshake + encode(request) + std::string(store_handshake("").size(), 'x'));
      std::string answer;
      EXPECT_TRUE(is_closed(stranger, 5, &answer));
      EXPECT_EQ(answer.find("precious"), std::string::npos);
    }
  }
  EXPECT_EQ(own.try_get("weights"), "precious");
  EXPECT_EQ(own.try_get(verdict_key), std::nullopt);
  EXPECT_EQ(own.try_get(any_gone_key), std::nullopt);
}

TEST(StoreLimits, a_connection_that_sends_no_handshake_is_closed) {
  const StoreServer server({.token = secret, .limits = {.handshake_s = 0.2}});
  const TcpStore own(address_at(server), {.token = secret});
  const base::Descriptor silent = stranger_at(server), slow = stranger_at(server);
  const std::string handshake = store_handshake(secret);
  bool is_over = false;
  for (size_t i = 0; i < handshake.size() && !is_over; ++i) {
    ::send(slow.value(), handshake.data() + i, 1, MSG_NOSIGNAL);
    is_over = is_closed(slow, 0.02);
  }
  EXPECT_TRUE(is_over);
  EXPECT_TRUE(is_closed(silent, 5));
}

TEST(StoreLimits, unauthenticated_connections_are_closed_for_new_ones_and_for_ranks) {
  const StoreServer server(
      {.token = secret, .limits = {.max_unauthenticated = 4, .handshake_s = 1e6}});
  std::vector<base::Descriptor> strangers;
  for (int i = 0; i < 12; ++i) strangers.push_back(stranger_at(server));
  for (size_t i = 0; i < 8; ++i) EXPECT_TRUE(is_closed(strangers[i], 5)) << i;
  for (size_t i = 8; i < 12; ++i) EXPECT_FALSE(is_closed(strangers[i], 0.05)) << i;
  // A rank is unauthenticated, too, until its handshake is received: it may displace the oldest.
  TcpStore own(address_at(server), {.token = secret});
  own.set("a", "1");
  EXPECT_EQ(own.try_get("a"), "1");
}

// After too many refusals the server accepts no connections for a moment; connected ranks are not
// affected, and a late one is accepted afterwards.
TEST(StoreLimits, a_flood_of_connections_does_not_affect_ranks) {
  const StoreServer server({.token = secret, .limits = {.max_refusals = 4}});
  TcpStore own(address_at(server), {.token = secret});
  for (int i = 0; i < 40; ++i) {
    const base::Descriptor stranger = stranger_at(server);
    send_all(stranger, "GET / HTTP/1.1\r\n\r\n");
    own.set("count", std::to_string(i));
  }
  TcpStore late(address_at(server), {.deadline_s = 30, .token = secret});
  EXPECT_EQ(late.try_get("count"), "39");
}

TEST(StoreLimits, running_out_of_descriptors_closes_unauthenticated_connections_first) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const StoreServer server({.token = secret});
  TcpStore own(address_at(server), {.token = secret});
  std::vector<base::Descriptor> strangers;
  strangers.reserve(4);
  for (int i = 0; i < 4; ++i) strangers.push_back(stranger_at(server));
  own.set("a", "1");  // all were accepted
  const rlimit tight{.rlim_cur = static_cast<rlim_t>(strangers.back().value() + 8),
                     .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
  for (int i = 0; i < 64; ++i) {
    const base::Descriptor more(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(server.port()))};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::connect(more.value(), reinterpret_cast<sockaddr*>(&to), sizeof(to));
    own.set("a", std::to_string(i));
  }
  EXPECT_EQ(own.try_get("a"), "63");
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

// A reply that a client does not read stays in the server's memory, up to the limit.
TEST(StoreLimits, a_client_that_does_not_read_delays_only_itself) {
  constexpr size_t value_bytes = size_t{1} << 20, answers = 16;  // more than the system's buffers
  const StoreServer server({.limits = {.max_pending_bytes = 3 * value_bytes + value_bytes / 2}});
  TcpStore own(address_at(server), {});
  own.set("large", std::string(value_bytes, 'x'));
  std::string requests = store_handshake("");
  for (size_t i = 0; i < answers; ++i) requests += encode({StoreCode::read, {"large"}});
  std::vector<base::Descriptor> slow;
  for (int i = 0; i < 8; ++i) {
    slow.push_back(stranger_at(server));
    send_all(slow.back(), requests);
  }
  for (int i = 0; i < 400; ++i) own.set("alive", std::to_string(i));
  EXPECT_EQ(own.try_get("alive"), "399");
  int complete = 0;
  for (const base::Descriptor& client : slow) {
    size_t received = 0;
    while (received < answers * value_bytes) {
      std::array<char, 65536> part;
      if (!is_socket_ready(client.value(), POLLIN, socket_time_after(10))) break;
      const ssize_t count = ::recv(client.value(), part.data(), part.size(), 0);
      if (count <= 0) break;
      received += static_cast<size_t>(count);
    }
    complete += received >= answers * value_bytes ? 1 : 0;
  }
  EXPECT_EQ(complete, 3);
}

TEST(StoreLimits, a_full_table_and_large_values_are_refused) {
  const StoreServer server({.limits = {.max_table_bytes = 100000}});
  TcpStore own(address_at(server), {}), full(address_at(server), {}), large(address_at(server), {});
  own.set("a", std::string(50000, 'a'));
  own.set("a", std::string(60000, 'a'));  // replaces the first
  EXPECT_THROW(full.set("b", std::string(50000, 'b')), base::CommAborted);
  EXPECT_THROW(full.set("c", "1"), base::CommAborted);  // it was disconnected
  EXPECT_THROW(large.set(std::string(StoreTable::max_key_bytes + 1, 'k'), ""), base::CommAborted);
  own.set("c", "1");
  EXPECT_EQ(own.try_get("b"), std::nullopt);
}

TEST(StoreLimits, listens_on_the_given_address) {
  const StoreServer one({.host = "127.0.0.2"});
  TcpStore own(address_at(one, "127.0.0.2"), {});
  EXPECT_THROW(TcpStore(address_at(one, "127.0.0.1"), {.deadline_s = 0.1}), base::CommAborted);
  // Ranks on other hosts might resolve a name differently, but not a number.
  const StoreServer number({.host = "127.0.0.2", .serves_other_hosts = true});
  EXPECT_THROW(TcpStore(address_at(number, "127.0.0.1"), {.deadline_s = 0.1}), base::CommAborted);
  const StoreServer name({.host = "localhost", .serves_other_hosts = true});
  EXPECT_NO_THROW(TcpStore(address_at(name, "127.0.0.2"), {.deadline_s = 5}));
  // An address for documentation, which no host has (RFC 5737), as behind address translation.
  EXPECT_THROW(StoreServer({.host = "192.0.2.1"}), base::IoError);
  const StoreServer translated({.host = "192.0.2.1", .serves_other_hosts = true});
  EXPECT_NO_THROW(TcpStore(address_at(translated), {.deadline_s = 5}));
}

TEST(StoreLimits, verdicts_are_one_line_without_control_characters) {
  EXPECT_EQ(verdict_text("rank 1 died"), "rank 1 died");
  EXPECT_EQ(verdict_text("a\nerror: b\x1b[31m"), "a error: b [31m");
  EXPECT_EQ(verdict_text(""), "aborted");
  EXPECT_EQ(verdict_text("\n "), "aborted");
}

}  // namespace
}  // namespace trireme::comm
