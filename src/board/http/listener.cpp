// SPDX-License-Identifier: Apache-2.0
#include "board/http/listener.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <system_error>

#include "base/error.h"

namespace trireme::board {
namespace {

constexpr int backlog = 512;

[[noreturn]] void fail(const std::string& what) {
  const std::string reason = std::error_code(errno, std::generic_category()).message();
  throw base::IoError(fmt::format("--listen {}: {}", what, reason));
}

sockaddr_un unix_address(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string& text = path.native();
  if (text.size() >= sizeof(address.sun_path)) {
    throw base::ConfigError(fmt::format("--listen unix:{}: the path has {} bytes; at most {}", text,
                                        text.size(), sizeof(address.sun_path) - 1));
  }
  std::memcpy(address.sun_path, text.data(), text.size());
  return address;
}

// Removes the socket of a process that has ended. Anything else is left alone, and bind() fails.
void remove_dead_socket(const std::filesystem::path& path, const sockaddr_un& address) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0 || !S_ISSOCK(status.st_mode)) return;
  const base::Descriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  if (::connect(probe.value(), generic, sizeof(address)) == 0 || errno != ECONNREFUSED) return;
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
}

base::Descriptor open_unix(const ListenPlace& place) {
  const sockaddr_un address = unix_address(place.socket);
  remove_dead_socket(place.socket, address);
  base::Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // The mode is that of the socket from the beginning: no moment in which others may connect.
  const mode_t before = ::umask(0177);
  const int bound =
      ::bind(socket.value(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  ::umask(before);
  if (bound != 0) fail("unix:" + place.socket.string());
  return socket;
}

base::Descriptor open_tcp(const ListenPlace& place, int& port) {
  const std::string shown = fmt::format("{}:{}", place.address, place.port);
  sockaddr_storage storage{};
  socklen_t size = 0;
  auto* four = reinterpret_cast<sockaddr_in*>(&storage);
  auto* six = reinterpret_cast<sockaddr_in6*>(&storage);
  if (::inet_pton(AF_INET, place.address.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = htons(static_cast<uint16_t>(place.port));
    size = sizeof(sockaddr_in);
  } else {
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(static_cast<uint16_t>(place.port));
    if (::inet_pton(AF_INET6, place.address.c_str(), &six->sin6_addr) != 1) {
      throw base::ConfigError(fmt::format("--listen {}: is no IP address", shown));
    }
    size = sizeof(sockaddr_in6);
  }
  base::Descriptor socket(
      ::socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.value() < 0) fail(shown);
  const int on = 1;
  ::setsockopt(socket.value(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(socket.value(), reinterpret_cast<const sockaddr*>(&storage), size) != 0) fail(shown);
  if (::getsockname(socket.value(), reinterpret_cast<sockaddr*>(&storage), &size) != 0) fail(shown);
  port = ntohs(storage.ss_family == AF_INET ? four->sin_port : six->sin6_port);
  return socket;
}

}  // namespace

bool ListenPlace::is_loopback() const {
  return is_unix() || address.starts_with("127.") || address == "::1";
}

ListenPlace listen_place_from(const std::string& text) {
  ListenPlace place;
  constexpr std::string_view unix_mark = "unix:";
  if (text.starts_with(unix_mark)) {
    place.socket = text.substr(unix_mark.size());
    if (place.socket.empty()) {
      throw base::ConfigError("--listen unix: needs a path, for example unix:board.sock");
    }
    return place;
  }
  const size_t colon = text.rfind(':');
  std::string address = colon == std::string::npos ? "" : text.substr(0, colon);
  const std::string port = colon == std::string::npos ? text : text.substr(colon + 1);
  if (address.size() > 2 && address.front() == '[' && address.back() == ']') {
    address = address.substr(1, address.size() - 2);
  }
  if (address == "localhost") address = "127.0.0.1";
  if (!address.empty()) place.address = address;
  in6_addr parsed{};
  const bool is_address = ::inet_pton(AF_INET, place.address.c_str(), &parsed) == 1 ||
                          ::inet_pton(AF_INET6, place.address.c_str(), &parsed) == 1;
  const char* end = port.data() + port.size();
  const auto [at, error] = std::from_chars(port.data(), end, place.port);
  if (!is_address || error != std::errc() || at != end || place.port < 0 || place.port > 65535) {
    throw base::ConfigError(fmt::format(
        "--listen {}: must be an IP address and a port, such as 127.0.0.1:8080, or unix:PATH",
        text));
  }
  return place;
}

Listener::Listener(const ListenPlace& place)
    : place_(place), socket_(place.is_unix() ? open_unix(place) : open_tcp(place, port_)) {
  if (::listen(socket_.value(), backlog) != 0) fail(place.address);
}

Listener::~Listener() {
  std::error_code ignored;
  if (place_.is_unix()) std::filesystem::remove(place_.socket, ignored);
}

}  // namespace trireme::board
