// SPDX-License-Identifier: Apache-2.0
#include "comm/peer/peer_listener.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/system/start_thread.h"
#include "comm/store/store_socket.h"

namespace trireme::comm {
namespace {

// A rank has one connection to each of a few others; more are of other programs.
constexpr size_t max_served = 256;

}  // namespace

PeerListener::PeerListener(const std::string& host, PeerGroup group, Serve serve)
    : group_(std::move(group)), serve_(std::move(serve)), sockets_(listen_on(host, 0)) {
  address_ = fmt::format("{}:{}", host, port_of(sockets_.front().value()));
  thread_ = base::start_thread("that accepts connections of other ranks", [this] { accept_all(); });
}

PeerListener::~PeerListener() {
  stop_.set();
  thread_.join();
}

void PeerListener::accept_all() {
  std::vector<pollfd> polled;
  for (const base::Descriptor& socket : sockets_) polled.push_back({socket.value(), POLLIN, 0});
  polled.push_back({stop_.descriptor(), POLLIN, 0});
  while (true) {
    (void)::poll(polled.data(), polled.size(), -1);
    if (polled.back().revents != 0) break;
    join_ended();
    for (const base::Descriptor& socket : sockets_) accept_from(socket.value());
  }
  for (Served& served : served_) served.thread.join();
}

void PeerListener::accept_from(int socket) {
  base::Descriptor accepted(::accept4(socket, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (accepted.value() < 0) {
    // Without a descriptor left the connection stays in the queue: do not look again at once.
    if (errno == EMFILE || errno == ENFILE) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return;
  }
  if (served_.size() >= max_served) return;
  Served& served = served_.emplace_back();
  try {
    served.thread = base::start_thread("that serves another rank",
                                       [this, &served, at = std::move(accepted)]() mutable {
                                         serve(std::move(at));
                                         served.has_ended = true;
                                       });
  } catch (const base::Error& error) {
    base::log_warning("a connection of another rank is refused: {}", error.what());
    served_.pop_back();
  }
}

void PeerListener::serve(base::Descriptor socket) {
  try {
    PeerConnection connection(std::move(socket), group_, stop_);
    serve_(connection);
  } catch (const PeerLost&) {
    // The side that has connected reports it, and tries again.
  } catch (const std::exception& error) {
    base::log_warning("a connection of another rank ends: {}", error.what());
  }
}

void PeerListener::join_ended() {
  for (auto one = served_.begin(); one != served_.end();) {
    if (!one->has_ended) {
      ++one;
      continue;
    }
    one->thread.join();
    one = served_.erase(one);
  }
}

}  // namespace trireme::comm
