// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/system/descriptor.h"
#include "comm/clock.h"
#include "comm/peer/peer_connection.h"
#include "comm/peer/peer_listener.h"
#include "comm/store/store_socket.h"

namespace trireme::comm {
namespace {

const PeerGroup peer_group{.secret = "the secret of this epoch", .epoch = 7};

// Returns all bytes that arrive, with 1 added to each.
void echo(PeerConnection& connection) {
  while (connection.wait()) {
    std::vector<std::byte> bytes(connection.receive_value<size_t>());
    connection.receive(bytes);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(static_cast<int>(byte) + 1);
    connection.send(bytes);
  }
}

std::string refusal(const std::string& address, const PeerGroup& group) {
  const PeerStop stop;
  try {
    const PeerConnection connection(address, group, 3, stop);
  } catch (const PeerLost& error) {
    return error.what();
  }
  return "";
}

TEST(Peer, bytes_arrive_in_both_directions) {
  const PeerListener listener("127.0.0.1", peer_group, echo);
  const PeerStop stop;
  PeerConnection connection(listener.address(), peer_group, 3, stop);
  PeerConnection other(listener.address(), peer_group, 4, stop);
  for (const size_t bytes : {size_t{1}, size_t{100'000}, size_t{0}}) {
    for (PeerConnection* const one : {&connection, &other}) {
      one->send_value(bytes);
      one->send(std::vector<std::byte>(bytes, std::byte{5}));
      std::vector<std::byte> reply(bytes);
      one->receive(reply);
      EXPECT_TRUE(std::ranges::all_of(reply, [](std::byte b) { return b == std::byte{6}; }));
    }
  }
}

TEST(Peer, a_rank_of_another_job_or_epoch_is_refused) {
  int served = 0;
  const PeerListener listener("127.0.0.1", peer_group, [&](PeerConnection&) { ++served; });
  EXPECT_NE(refusal(listener.address(), {.secret = "guessed", .epoch = 7}).find("another secret"),
            std::string::npos);
  EXPECT_NE(refusal(listener.address(), {.secret = peer_group.secret, .epoch = 6})
                .find("another epoch of the run"),
            std::string::npos);
  // A stranger does not learn the epoch.
  EXPECT_NE(refusal(listener.address(), {.secret = "guessed", .epoch = 6}).find("another secret"),
            std::string::npos);
  EXPECT_EQ(served, 0);
}

TEST(Peer, another_program_is_not_served) {
  const PeerListener listener("127.0.0.1", peer_group, echo);
  const int port = std::stoi(listener.address().substr(listener.address().rfind(':') + 1));
  const base::Descriptor socket(
      connect_to({.is_folder = false, .host = "127.0.0.1", .folder = "", .port = port},
                 {.deadline_s = 5, .token = {}, .on_waiting = {}}, [](int) { return ""; }));
  const std::string text(200, 'x');
  ASSERT_EQ(::send(socket.value(), text.data(), text.size(), MSG_NOSIGNAL), std::ssize(text));
  uint32_t answer = 0;
  ASSERT_TRUE(is_socket_ready(socket.value(), POLLIN, socket_time_after(5)));
  (void)!::recv(socket.value(), &answer, sizeof answer, 0);
  EXPECT_NE(answer, 0U);
}

TEST(Peer, an_address_without_a_listener_is_reported) {
  std::string address;
  { address = PeerListener("127.0.0.1", peer_group, echo).address(); }
  EXPECT_NE(refusal(address, peer_group).find("cannot be reached"), std::string::npos);
}

// One that serves, or waits for the other side, ends at once.
TEST(Peer, both_sides_can_be_ended_in_the_middle_of_a_transfer) {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_serving = false;
  const auto begin = Clock::now();
  {
    std::optional<PeerListener> listener;
    listener.emplace("127.0.0.1", peer_group, [&](PeerConnection& connection) {
      {
        const std::scoped_lock lock(mutex);
        is_serving = true;
        changed.notify_all();
      }
      std::vector<std::byte> bytes(1000);
      connection.receive(bytes);  // which never arrive
    });
    PeerStop stop;
    PeerConnection connection(listener->address(), peer_group, 3, stop);
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return is_serving; });
    }
    stop.set();
    std::byte reply;
    EXPECT_THROW(connection.receive({&reply, 1}), PeerLost);
    listener.reset();
  }
  EXPECT_LT(seconds_since(begin), 5.0);
}

TEST(Peer, a_side_that_closes_is_noticed) {
  const PeerListener listener("127.0.0.1", peer_group, [](PeerConnection& connection) {
    (void)connection.receive_value<int>();  // and no more
  });
  const PeerStop stop;
  PeerConnection connection(listener.address(), peer_group, 3, stop);
  connection.send_value(1);
  EXPECT_FALSE(connection.wait());
  EXPECT_THROW(
      {
        const std::vector<std::byte> many(size_t{1} << 22);
        for (int i = 0; i < 100; ++i) connection.send(many);
      },
      PeerLost);
}

}  // namespace
}  // namespace trireme::comm
