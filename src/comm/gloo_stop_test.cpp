// SPDX-License-Identifier: Apache-2.0
// A rank that is requested to stop while Gloo connects it to a peer that never connects.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "base/error.h"
#include "comm/gloo.h"
#include "comm/store/store_server.h"
#include "comm/world/process_world.h"

namespace trireme::comm {
namespace {

enum class GlooEnd : uint8_t { connected, stopped, aborted };

// Rank 0 connects to an address that rank 1 has published, with the port `peer_port`.
GlooEnd end_of_connecting(int peer_port) {
  const StoreServer server({.host = "127.0.0.1", .grace_s = 0});
  std::atomic<bool> stop = false;
  const auto info = [&](int rank) {
    RankInfo made{.rank = rank, .world = 2, .local_rank = rank, .local_world = 2};
    made.store = fmt::format("127.0.0.1:{}", server.port());
    made.stop = rank == 0 ? &stop : nullptr;
    return made;
  };
  ProcessWorld zero(info(0)), one(info(1));
  auto connecting = std::async(std::launch::async, [&] {
    try {
      (void)make_gloo(zero, {.name = "world", .deadline_s = 100});
      return GlooEnd::connected;
    } catch (const base::Stopped&) {  // the caller compares the ends
      return GlooEnd::stopped;
    } catch (const base::CommAborted&) {  // the same
      return GlooEnd::aborted;
    }
  });
  std::string address = one.store().get("world/gloo/0", 60);
  sockaddr_in socket{};
  std::memcpy(&socket, address.data(), sizeof(socket));
  socket.sin_port = htons(static_cast<uint16_t>(peer_port));
  std::memcpy(address.data(), &socket, sizeof(socket));
  one.store().set("world/gloo/1", address);
  // Gloo is now about to wait for the peer, or waits already.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  stop = true;
  return connecting.get();
}

TEST(GlooStop, ends_the_wait_for_a_peer) {
  if (!gloo_status().empty()) GTEST_SKIP() << gloo_status();
  // One of two ranks connects, and the other waits for that; their addresses decide which.
  GlooEnd end = end_of_connecting(65535);
  EXPECT_NE(end, GlooEnd::connected);
  if (end != GlooEnd::stopped) end = end_of_connecting(1);
  EXPECT_EQ(end, GlooEnd::stopped);
}

}  // namespace
}  // namespace trireme::comm
