// SPDX-License-Identifier: Apache-2.0
#include "comm/store/store_connections.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "comm/store/store_socket.h"

namespace trireme::comm {
namespace {

constexpr auto refusal_window = std::chrono::milliseconds(100);
constexpr auto report_window = std::chrono::seconds(60);
constexpr size_t part_bytes = 65536;  // read from one client before others are served
constexpr int max_accepted = 64;      // in one turn

base::Descriptor spare_descriptor() {
  return base::Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

// Compares in constant time, so that the duration does not reveal how many bytes were right.
bool is_equal(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace

// Ids below that of the first client belong to the listening sockets, and the last of them to
// wake_.
StoreConnections::StoreConnections(std::vector<base::Descriptor> listening, std::string handshake,
                                   const StoreLimits& limits)
    : listening_(std::move(listening)),
      handshake_(std::move(handshake)),
      limits_(limits),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      spare_(spare_descriptor()),
      next_id_(listening_.size() + 1) {
  if (epoll_.value() < 0) throw base::IoError("epoll: " + error_text(errno));
  if (wake_.value() < 0) throw base::IoError("eventfd: " + error_text(errno));
  for (Id id = 0; id < listening_.size(); ++id) watch(listening_[id].value(), EPOLLIN, id, true);
  watch(wake_.value(), EPOLLIN, listening_.size(), true);
}

void StoreConnections::watch(int socket, uint32_t events, Id id, bool is_new) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  if (::epoll_ctl(epoll_.value(), is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, socket, &event) != 0) {
    throw base::IoError("epoll_ctl: " + error_text(errno));
  }
}

void StoreConnections::wake() noexcept {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.value(), &one, sizeof(one));
}

int StoreConnections::poll_milliseconds(Clock::time_point end) const {
  if (!ready_.empty() || !events_.empty()) return 0;
  if (!accepts_) end = std::min(end, window_ + refusal_window);
  if (!unauthenticated_.empty()) {
    end = std::min(end, clients_.at(*unauthenticated_.begin()).handshake_end);
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60000));
}

std::vector<StoreConnections::Event> StoreConnections::poll(Clock::time_point end) {
  std::array<epoll_event, 256> happened;
  const int count = ::epoll_wait(epoll_.value(), happened.data(), static_cast<int>(happened.size()),
                                 poll_milliseconds(end));
  bool may_accept = false;
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = happened[static_cast<size_t>(i)];
    const Id id = event.data.u64;
    if (id < listening_.size()) {
      may_accept = true;
    } else if (id == listening_.size()) {
      uint64_t ignored = 0;
      [[maybe_unused]] const ssize_t taken = ::read(wake_.value(), &ignored, sizeof(ignored));
    } else if (const auto found = clients_.find(id); found != clients_.end()) {
      try {
        if ((event.events & EPOLLOUT) != 0) send(id, found->second);
        if ((event.events & ~static_cast<uint32_t>(EPOLLOUT)) != 0 && clients_.contains(id)) {
          receive(id, found->second);
        }
      } catch (const std::exception&) {  // out of memory: ends this client, not the run
        close(id);
      }
    }
  }
  for (const Id id : std::exchange(ready_, {})) {
    const auto found = clients_.find(id);
    if (found == clients_.end()) continue;
    try {
      take_request(id, found->second);
    } catch (const std::exception& error) {
      close_with(id, found->second, error.what());
    }
  }
  // Last: clients of this job have priority over new connections.
  if (Clock::now() >= window_ + refusal_window) {
    window_ = Clock::now();
    refusals_ = 0;
    set_accepting(true);
  }
  if (may_accept && accepts_) {
    try {
      for (const base::Descriptor& socket : listening_) accept_from(socket.value());
    } catch (const std::exception&) {  // out of memory: the connection is closed
    }
  }
  close_expired();
  return std::exchange(events_, {});
}

void StoreConnections::set_accepting(bool accepts) {
  if (accepts == accepts_) return;
  accepts_ = accepts;
  for (Id id = 0; id < listening_.size(); ++id) {
    watch(listening_[id].value(), accepts ? static_cast<uint32_t>(EPOLLIN) : 0U, id, false);
  }
}

void StoreConnections::accept_from(int listening) {
  for (int i = 0; i < max_accepted && accepts_; ++i) {
    base::Descriptor socket(::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.value() < 0) {
      if (errno == EMFILE || errno == ENFILE) make_room();
      return;
    }
    if (clients_.size() >= limits_.max_clients) continue;  // closed at once
    const int on = 1;
    ::setsockopt(socket.value(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    ::setsockopt(socket.value(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    const Id id = next_id_++;
    watch(socket.value(), EPOLLIN, id, true);
    const auto handshake = std::chrono::duration<double>(limits_.handshake_s);
    Client& client =
        clients_
            .emplace(
                id, Client{.socket = std::move(socket),
                           .handshake_end = Clock::now() +
                                            std::chrono::duration_cast<Clock::duration>(handshake)})
            .first->second;
    unauthenticated_.insert(id);
    receive(id, client);  // a rank has usually sent its handshake by now
    while (unauthenticated_.size() > limits_.max_unauthenticated) {
      const Id oldest = *unauthenticated_.begin();
      receive(oldest, clients_.at(oldest));
      if (unauthenticated_.contains(oldest)) close_unauthenticated(oldest);
    }
  }
}

// Called if no descriptors are left: closes an unauthenticated connection, or the pending one.
void StoreConnections::make_room() {
  if (!has_warned_descriptors_) {
    has_warned_descriptors_ = true;
    base::log_warning(
        "the store has run out of file descriptors with {} connections; raise the limit "
        "(ulimit -n): every rank needs three",
        clients_.size());
  }
  if (!unauthenticated_.empty()) {
    close_unauthenticated(*unauthenticated_.begin());
    return;
  }
  spare_.reset();
  for (const base::Descriptor& socket : listening_) {
    const base::Descriptor closed(::accept4(socket.value(), nullptr, nullptr, SOCK_CLOEXEC));
  }
  spare_.emplace(spare_descriptor());
}

void StoreConnections::receive(Id id, Client& client) {
  // Until the handshake is complete, no bytes beyond it are read.
  std::array<char, part_bytes> part;
  const size_t wanted =
      client.is_authenticated ? part.size() : handshake_.size() - client.in.size();
  const ssize_t count = ::recv(client.socket.value(), part.data(), wanted, 0);
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (count <= 0) {
    client.is_authenticated ? close(id) : close_unauthenticated(id);
    return;
  }
  client.in.append(part.data(), static_cast<size_t>(count));
  if (!client.is_authenticated) {
    check_handshake(id, client);
    return;
  }
  // A client sends one request and waits for its reply; it may not send more.
  if (client.in.size() - client.taken > max_frame_bytes + part_bytes) {
    close(id);
    return;
  }
  ready_.insert(id);
  this->count(id, client);
}

void StoreConnections::check_handshake(Id id, Client& client) {
  const size_t common = std::min(client.in.size(), store_protocol.size());
  if (client.in.compare(0, common, store_protocol, 0, common) != 0) {
    close_unauthenticated(id);
    return;
  }
  if (client.in.size() < handshake_.size()) return;
  if (!is_equal(client.in, handshake_)) {
    close_with(id, client, "it belongs to another job, or to another attempt of this job");
    return;
  }
  client.in.clear();
  client.is_authenticated = true;
  unauthenticated_.erase(id);
}

void StoreConnections::take_request(Id id, Client& client) {
  if (client.is_asking || !client.out.empty()) return;
  std::optional<StoreMessage> request = frame_at(client.in, client.taken);
  if (client.taken == client.in.size()) {
    client.in.capacity() > part_bytes ? std::string().swap(client.in) : client.in.clear();
    client.taken = 0;
  }
  if (request) {
    client.is_asking = true;
    events_.push_back({id, std::move(request)});
  } else {
    client.in.erase(0, std::exchange(client.taken, 0));
  }
  count(id, client);
}

void StoreConnections::answer(Id id, const StoreMessage& message) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  Client& client = found->second;
  client.is_asking = false;
  client.out = encode(message);
  client.sent = 0;
  send(id, client);
}

void StoreConnections::refuse(Id id, const std::string& why) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  found->second.is_authenticated = false;  // no event
  close_with(id, found->second, why);
}

void StoreConnections::send(Id id, Client& client) {
  while (client.sent < client.out.size()) {
    const ssize_t count = ::send(client.socket.value(), client.out.data() + client.sent,
                                 client.out.size() - client.sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) {
      if (!client.is_stalled) watch(client.socket.value(), EPOLLIN | EPOLLOUT, id, false);
      client.is_stalled = true;
      this->count(id, client);
      return;
    }
    if (count <= 0) {
      close(id);
      return;
    }
    client.sent += static_cast<size_t>(count);
  }
  client.out.capacity() > part_bytes ? std::string().swap(client.out) : client.out.clear();
  client.sent = 0;
  if (client.is_stalled) watch(client.socket.value(), EPOLLIN, id, false);
  client.is_stalled = false;
  if (client.in.size() > client.taken) ready_.insert(id);
  count(id, client);
}

// Must be the last use of a client in a function, because it may close the client.
void StoreConnections::count(Id id, Client& client) {
  const size_t now = client.in.size() + client.out.size();
  pending_bytes_ += now - client.counted;  // unsigned: wraps correctly if `now` is smaller
  client.counted = now;
  if (pending_bytes_ > limits_.max_pending_bytes && now > part_bytes) close(id);
}

void StoreConnections::close_with(Id id, Client& client, const std::string& why) {
  const std::string text = encode({StoreCode::refused, {why}});
  [[maybe_unused]] const ssize_t sent =
      ::send(client.socket.value(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  // With unread bytes the system would reset the connection and discard the text.
  ::shutdown(client.socket.value(), SHUT_WR);
  std::array<char, 4096> rest;
  [[maybe_unused]] const ssize_t unread =
      ::recv(client.socket.value(), rest.data(), rest.size(), MSG_DONTWAIT);
  unauthenticated_.contains(id) ? close_unauthenticated(id) : close(id);
}

void StoreConnections::close_unauthenticated(Id id) {
  unauthenticated_.erase(id);
  close(id);
  ++unreported_;
  if (++refusals_ >= limits_.max_refusals) set_accepting(false);
  if (Clock::now() >= reported_ + report_window) {
    reported_ = Clock::now();
    base::log_warning("the store has closed {} connection{} that did not send this job's token",
                      unreported_, unreported_ == 1 ? "" : "s");
    unreported_ = 0;
  }
}

void StoreConnections::close(Id id) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  if (found->second.is_authenticated) events_.push_back({id, std::nullopt});
  pending_bytes_ -= found->second.counted;
  unauthenticated_.erase(id);
  ready_.erase(id);
  clients_.erase(found);
}

void StoreConnections::close_expired() {
  while (!unauthenticated_.empty()) {
    const Id oldest = *unauthenticated_.begin();
    if (clients_.at(oldest).handshake_end > Clock::now()) return;
    close_unauthenticated(oldest);
  }
}

}  // namespace trireme::comm
