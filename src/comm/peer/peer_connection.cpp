// SPDX-License-Identifier: Apache-2.0
#include "comm/peer/peer_connection.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/sha256.h"
#include "comm/store/store_socket.h"

namespace trireme::comm {
namespace {

constexpr uint64_t magic = 0x52454550454d4952;  // "RIMEPEER" as bytes
constexpr uint32_t version = 1;
constexpr double opening_seconds = 5;
const std::string ended_here = "this side ends the connection";

// What the side that connects sends first.
struct Opening {
  uint64_t magic;
  uint32_t version;
  int32_t rank;
  int64_t epoch;
  std::array<char, 64> secret;  // its hash
};
enum class Answer : uint32_t { accepted, other_secret, other_epoch, other_version };

std::array<char, 64> hash_of_secret(const std::string& secret) {
  base::Sha256 hash;
  hash.update(std::as_bytes(std::span(secret)));
  const std::string text = hash.hex();
  std::array<char, 64> out{};
  TRIREME_CHECK(text.size() == out.size(), "a hash of {} characters", text.size());
  text.copy(out.data(), out.size());
  return out;
}

// Takes the same time for all that differ.
bool are_equal(const std::array<char, 64>& a, const std::array<char, 64>& b) {
  int different = 0;
  for (size_t i = 0; i < a.size(); ++i) different |= a[i] ^ b[i];
  return different == 0;
}

const char* text_of(Answer answer) {
  switch (answer) {
    case Answer::accepted:
      return "accepted";
    case Answer::other_secret:
      return "its ranks have another secret: it is of another job or epoch";
    case Answer::other_epoch:
      return "it is in another epoch of the run";
    case Answer::other_version:
      return "it is another version of the program";
  }
  return "it has answered something unknown";
}

Answer answer_to(const Opening& opening, const PeerGroup& group) {
  if (opening.magic != magic || opening.version != version) return Answer::other_version;
  if (!are_equal(opening.secret, hash_of_secret(group.secret))) return Answer::other_secret;
  return opening.epoch == group.epoch ? Answer::accepted : Answer::other_epoch;
}

base::Descriptor connected(const std::string& address, const PeerStop& stop) {
  const size_t colon = address.rfind(':');
  TRIREME_CHECK(colon != std::string::npos, "address '{}'", address);
  try {
    // One attempt: the caller tries again later.
    return base::Descriptor(connect_to({.is_folder = false,
                                        .host = address.substr(0, colon),
                                        .folder = "",
                                        .port = std::stoi(address.substr(colon + 1))},
                                       {.deadline_s = opening_seconds,
                                        .retries = false,
                                        .token = {},
                                        .stop = &stop.is_set(),
                                        .on_waiting = {}},
                                       [](int) { return ""; }));
  } catch (const StoreUnreachable& error) {
    throw PeerLost(fmt::format("{} cannot be reached: {}", address, error.reason()));
  } catch (const base::Stopped&) {
    throw PeerLost(ended_here);
  }
}

}  // namespace

PeerStop::PeerStop() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (event_.value() < 0) throw base::IoError("eventfd: " + error_text(errno));
}

void PeerStop::set() {
  is_set_ = true;
  const uint64_t one = 1;
  // It can fail only if it was set very often before.
  (void)!::write(event_.value(), &one, sizeof one);
}

PeerConnection::PeerConnection(const std::string& address, const PeerGroup& group, int own,
                               const PeerStop& stop)
    : socket_(connected(address, stop)), stop_(stop), rank_(own) {
  send_value(Opening{.magic = magic,
                     .version = version,
                     .rank = own,
                     .epoch = group.epoch,
                     .secret = hash_of_secret(group.secret)});
  const auto answer = receive_value<Answer>();
  if (answer != Answer::accepted) {
    throw PeerLost(fmt::format("{} has refused: {}", address, text_of(answer)));
  }
}

PeerConnection::PeerConnection(base::Descriptor socket, const PeerGroup& group,
                               const PeerStop& stop)
    : socket_(std::move(socket)), stop_(stop) {
  const int on = 1;
  ::setsockopt(socket_.value(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  await(POLLIN, opening_seconds);
  const auto opening = receive_value<Opening>();
  const Answer answer = answer_to(opening, group);
  send_value(answer);
  if (answer != Answer::accepted) throw PeerLost(fmt::format("refused: {}", text_of(answer)));
  rank_ = opening.rank;
}

void PeerConnection::await(short events, double seconds) {
  const int wait_ms = std::isinf(seconds) ? -1 : static_cast<int>(seconds * 1000);
  while (true) {
    std::array<pollfd, 2> polled = {
        {{socket_.value(), events, 0}, {stop_.descriptor(), POLLIN, 0}}};
    const int count = ::poll(polled.data(), polled.size(), wait_ms);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw PeerLost("poll: " + error_text(errno));
    if (count == 0) throw PeerLost(fmt::format("nothing has moved for {:g} s", seconds));
    if (polled[1].revents != 0) throw PeerLost(ended_here);
    return;  // the next call on the socket reports an error
  }
}

void PeerConnection::send(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(socket_.value(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count >= 0) {
      bytes = bytes.subspan(static_cast<size_t>(count));
    } else if (errno == EAGAIN) {
      await(POLLOUT, stall_seconds);
    } else if (errno != EINTR) {
      throw PeerLost("the connection is broken: " + error_text(errno));
    }
  }
}

void PeerConnection::receive(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::recv(socket_.value(), bytes.data(), bytes.size(), 0);
    if (count > 0) {
      bytes = bytes.subspan(static_cast<size_t>(count));
    } else if (count == 0) {
      throw PeerLost("the other side has closed the connection");
    } else if (errno == EAGAIN) {
      await(POLLIN, stall_seconds);
    } else if (errno != EINTR) {
      throw PeerLost("the connection is broken: " + error_text(errno));
    }
  }
}

bool PeerConnection::wait() {
  while (true) {
    await(POLLIN, std::numeric_limits<double>::infinity());
    std::byte next;
    const ssize_t count = ::recv(socket_.value(), &next, 1, MSG_PEEK);
    if (count > 0) return true;
    if (count == 0) return false;
    if (errno != EAGAIN && errno != EINTR) {
      throw PeerLost("the connection is broken: " + error_text(errno));
    }
  }
}

}  // namespace trireme::comm
