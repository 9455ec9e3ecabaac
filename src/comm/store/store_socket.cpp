// SPDX-License-Identifier: Apache-2.0
#include "comm/store/store_socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/system/descriptor.h"

namespace trireme::comm {
namespace {

double seconds_until(SocketClock::time_point end) {
  return std::chrono::duration<double>(end - SocketClock::now()).count();
}

// Returns a connected socket, or -1 and the reason in `why`.
int try_connect(const addrinfo& to, SocketClock::time_point end, const std::atomic<bool>* stop,
                std::string& why) {
  base::Descriptor socket(
      ::socket(to.ai_family, to.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, to.ai_protocol));
  if (socket.value() < 0) {
    why = error_text(errno);
    return -1;
  }
  if (::connect(socket.value(), to.ai_addr, to.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) {
      why = error_text(errno);
      return -1;
    }
    if (!is_socket_ready(socket.value(), POLLOUT, std::min(end, socket_time_after(5)), stop)) {
      why = "no reply";
      return -1;
    }
    int error = 0;
    socklen_t size = sizeof(error);
    ::getsockopt(socket.value(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
      why = error_text(error);
      return -1;
    }
  }
  const int on = 1;
  ::setsockopt(socket.value(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return ::fcntl(socket.value(), F_DUPFD_CLOEXEC, 0);
}

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

// Returns the addresses that `host` resolves to; if it is empty, every address of this host. Null
// with the reason in `why` if there are none.
Addresses resolve(const std::string& host, int port, int flags, std::string& why) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  const std::string port_text = std::to_string(port);
  const int failure =
      ::getaddrinfo(host.empty() ? nullptr : host.c_str(), port_text.c_str(), &hints, &list);
  if (failure != 0) why = ::gai_strerror(failure);
  return {failure == 0 ? list : nullptr, &::freeaddrinfo};
}

bool is_loopback(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    const auto& ip4 = reinterpret_cast<const sockaddr_in&>(address);
    return (ntohl(ip4.sin_addr.s_addr) >> 24) == 127;
  }
  return address.sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

bool is_numeric(const std::string& host) {
  std::string ignored;
  return resolve(host, 0, AI_NUMERICHOST, ignored) != nullptr;
}

// Returns a listening socket, or -errno.
int try_listen(const addrinfo& at, int port, bool is_everywhere) {
  base::Descriptor socket(
      ::socket(at.ai_family, at.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at.ai_protocol));
  if (socket.value() < 0) return -errno;
  const int on = 1, off = 0;
  ::setsockopt(socket.value(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_storage address{};
  std::memcpy(&address, at.ai_addr, at.ai_addrlen);
  if (at.ai_family == AF_INET6) {
    // One socket serves both families if it listens on all addresses.
    const int* const only = is_everywhere ? &off : &on;
    ::setsockopt(socket.value(), IPPROTO_IPV6, IPV6_V6ONLY, only, sizeof(*only));
    reinterpret_cast<sockaddr_in6&>(address).sin6_port = htons(static_cast<uint16_t>(port));
  } else {
    reinterpret_cast<sockaddr_in&>(address).sin_port = htons(static_cast<uint16_t>(port));
  }
  if (::bind(socket.value(), reinterpret_cast<sockaddr*>(&address), at.ai_addrlen) != 0 ||
      ::listen(socket.value(), 4096) != 0) {
    return -errno;
  }
  return socket.release();
}

base::IoError cannot_listen(const std::string& host, int port, const std::string& why) {
  return base::IoError(fmt::format(
      "the store cannot listen on {}:{}: {}; is another run using it? Choose another port",
      host.empty() ? "*" : host, port, why));
}

}  // namespace

SocketClock::time_point socket_time_after(double seconds) {
  return SocketClock::now() + std::chrono::duration_cast<SocketClock::duration>(
                                  std::chrono::duration<double>(std::min(seconds, 1e8)));
}

std::string error_text(int number) { return std::generic_category().message(number); }

bool is_socket_ready(int socket, short events, SocketClock::time_point end,
                     const std::atomic<bool>* stop) {
  // A signal may arrive on another thread, so it does not end poll() here.
  const double slice_ms = stop == nullptr ? 1e6 : 100;
  while (true) {
    if (stop != nullptr && stop->load()) {
      throw base::Stopped("stopped while waiting for the store");
    }
    const double left = seconds_until(end);
    if (left <= 0) return false;
    pollfd polled{socket, events, 0};
    const int wait_ms = static_cast<int>(std::min(left * 1000 + 1, slice_ms));
    const int count = ::poll(&polled, 1, wait_ms);
    if (count > 0) return true;
    if (count < 0 && errno != EINTR) return true;  // the next call on the socket reports the error
  }
}

int connect_to(const StoreAddress& address, const StoreOptions& options,
               const std::function<std::string(int socket)>& handshake) {
  const double deadline_s = options.deadline_s;
  const SocketClock::time_point begin = SocketClock::now();
  const SocketClock::time_point end = socket_time_after(deadline_s);
  constexpr double report_seconds = 10;
  double next_report = report_seconds;
  std::string why, refused;
  while (true) {
    if (options.stop != nullptr && options.stop->load()) {
      throw base::Stopped(fmt::format("stopped while waiting for the store at {}", address.text()));
    }
    const double waited = std::chrono::duration<double>(SocketClock::now() - begin).count();
    if (options.on_waiting && waited >= next_report) {
      options.on_waiting(waited);
      next_report += report_seconds;
    }
    const Addresses found = resolve(address.host, address.port, 0, why);
    for (const addrinfo* to = found.get(); to != nullptr; to = to->ai_next) {
      const int socket = try_connect(*to, end, options.stop, why);
      if (socket < 0) continue;
      refused = handshake(socket);
      if (refused.empty()) return socket;
      ::close(socket);
    }
    if (!options.retries || seconds_until(end) <= 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  const bool is_refused = !refused.empty();
  const std::string& reason = is_refused ? refused : why;
  throw StoreUnreachable(
      fmt::format("the store at {} cannot be {} within {:g} s: {}; it runs in the launcher or in "
                  "rank 0: check that this is running and that this host can reach the address",
                  address.text(), is_refused ? "joined" : "reached", deadline_s, reason),
      reason, is_refused);
}

std::vector<base::Descriptor> listen_on(const std::string& host, int port,
                                        bool serves_other_hosts) {
  const bool is_port_given = port != 0;
  std::string why;
  const Addresses found = resolve(host, port, AI_PASSIVE, why);
  if (found == nullptr) throw cannot_listen(host, port, why);
  bool is_everywhere = host.empty();
  if (serves_other_hosts && !is_everywhere && !is_numeric(host)) {
    is_everywhere = true;
    for (const addrinfo* at = found.get(); at != nullptr; at = at->ai_next) {
      is_everywhere = is_everywhere && is_loopback(*at->ai_addr);
    }
    if (is_everywhere) return listen_on("", port);
  }
  std::vector<base::Descriptor> sockets;
  bool is_foreign = false;
  for (const int family : {AF_INET6, AF_INET}) {
    for (const addrinfo* at = found.get(); at != nullptr; at = at->ai_next) {
      if (at->ai_family != family) continue;
      const int socket = try_listen(*at, port, is_everywhere);
      if (socket == -EADDRINUSE && is_port_given) {
        throw cannot_listen(host, port, error_text(EADDRINUSE));
      }
      if (socket < 0) {
        is_foreign = is_foreign || socket == -EADDRNOTAVAIL;
        why = error_text(-socket);
        continue;
      }
      sockets.emplace_back(socket);
      if (is_everywhere) return sockets;  // IPv6 accepts IPv4 as well
      port = port_of(socket);             // the same for all
    }
  }
  if (sockets.empty() && is_foreign) {
    if (serves_other_hosts || !is_numeric(host)) return listen_on("", port);
    throw base::IoError(fmt::format(
        "the store cannot listen on {}:{}: this host has no such address; give one that it has",
        host, port));
  }
  if (sockets.empty()) throw cannot_listen(host, port, why);
  return sockets;
}

bool listens_beyond_loopback(const std::string& host, bool serves_other_hosts) {
  std::string ignored;
  const Addresses found = resolve(host, 0, AI_PASSIVE, ignored);
  bool is_local = found != nullptr && !host.empty();
  for (const addrinfo* at = found.get(); at != nullptr; at = at->ai_next) {
    is_local = is_local && is_loopback(*at->ai_addr);
  }
  return !is_local || (serves_other_hosts && !is_numeric(host));
}

std::string address_of(int socket) {
  sockaddr_storage own{};
  socklen_t size = sizeof(own);
  std::array<char, NI_MAXHOST> host{};
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &size) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&own), size, host.data(), host.size(), nullptr, 0,
                    NI_NUMERICHOST) != 0) {
    return "127.0.0.1";
  }
  return host.data();
}

int port_of(int socket) {
  sockaddr_storage own{};
  socklen_t size = sizeof(own);
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &size);
  return ntohs(own.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(own).sin6_port
                                         : reinterpret_cast<sockaddr_in&>(own).sin_port);
}

}  // namespace trireme::comm
