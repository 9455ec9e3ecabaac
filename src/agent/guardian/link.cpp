// SPDX-License-Identifier: Apache-2.0
#include "agent/guardian/link.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/error.h"

namespace trireme::agent {
namespace {

constexpr size_t max_bytes = size_t{64} << 10;
constexpr size_t max_descriptors = 64;
using Control = std::array<char, CMSG_SPACE(max_descriptors * sizeof(int))>;

void take_descriptors(msghdr& header, LinkMessage& message) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      message.descriptors.emplace_back(descriptor);
    }
  }
}

}  // namespace

std::pair<base::Descriptor, base::Descriptor> Link::make() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    throw base::IoError(fmt::format("a socket between supervisor and guardian: {}",
                                    std::generic_category().message(errno)));
  }
  return {base::Descriptor(ends[0]), base::Descriptor(ends[1])};
}

// A byte for the kind, the name, a zero, the text.
bool Link::send(LinkMessage::Kind kind, const std::string& name, const std::string& text,
                std::span<const int> descriptors) {
  std::string bytes(1, static_cast<char>(kind));
  bytes += name;
  bytes += '\0';
  bytes += text;
  if (bytes.size() > max_bytes || descriptors.size() > max_descriptors) {
    throw base::IoError(fmt::format("'{}' of {} bytes with {} descriptors is too large to be kept",
                                    name, bytes.size(), descriptors.size()));
  }
  iovec content{bytes.data(), bytes.size()};
  msghdr header{};
  header.msg_iov = &content;
  header.msg_iovlen = 1;
  alignas(cmsghdr) Control control{};
  if (!descriptors.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* part = CMSG_FIRSTHDR(&header);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(part), descriptors.data(), descriptors.size_bytes());
  }
  ssize_t sent = -1;
  do {
    sent = ::sendmsg(end_.value(), &header, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  return sent >= 0;
}

std::optional<LinkMessage> Link::receive() {
  std::string bytes(max_bytes, '\0');
  iovec content{bytes.data(), bytes.size()};
  msghdr header{};
  header.msg_iov = &content;
  header.msg_iovlen = 1;
  alignas(cmsghdr) Control control{};
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  ssize_t count = -1;
  do {
    count = ::recvmsg(end_.value(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (count < 0 && errno == EINTR);
  if (count < 0 && errno == EAGAIN) return std::nullopt;
  if (count <= 0) {
    is_closed_ = true;
    return std::nullopt;
  }
  LinkMessage message{.kind = static_cast<LinkMessage::Kind>(bytes[0])};
  take_descriptors(header, message);
  const size_t end = std::min(bytes.find('\0', 1), static_cast<size_t>(count));
  message.name = bytes.substr(1, end - 1);
  if (end + 1 < static_cast<size_t>(count)) {
    message.text = bytes.substr(end + 1, static_cast<size_t>(count) - end - 1);
  }
  return message;
}

}  // namespace trireme::agent
