// SPDX-License-Identifier: Apache-2.0
#include "tests/stops/store_attackers.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <random>

#include "base/system/descriptor.h"
#include "comm/store/store_wire.h"

namespace trireme::tests {
namespace {

using comm::StoreCode;

// The most that an unauthenticated attacker sends: longer than any handshake.
constexpr size_t max_noise_bytes = 4096;

std::string random_bytes(std::mt19937& random, size_t count) {
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

std::string random_request(std::mt19937& random) {
  const std::array<comm::StoreMessage, 5> requests = {
      comm::StoreMessage{StoreCode::set, {"verdict", "killed"}},
      comm::StoreMessage{StoreCode::set_once, {"verdict", ""}},
      comm::StoreMessage{StoreCode::read, {"verdict", "rank/0/position"}},
      comm::StoreMessage{StoreCode::join, {"0", "process 1", "0"}},
      comm::StoreMessage{StoreCode::wait, {"1e300", "never"}}};
  return comm::encode(requests[random() % requests.size()]);
}

// Returns bytes of an unauthenticated attacker: noise, other protocols, handshakes of other jobs
// followed by requests.
std::string stranger_bytes(std::mt19937& random) {
  switch (random() % 5) {
    case 0:
      return random_bytes(random, 1 + random() % max_noise_bytes);
    case 1:
      return "GET / HTTP/1.1\r\nHost: store\r\n\r\n";
    case 2:
      return std::string(comm::store_protocol) + random_bytes(random, random() % 200);
    case 3:
      return comm::store_handshake(random_bytes(random, 16)) + random_request(random);
    default:
      return random_request(random);
  }
}

void send_some(int socket, const std::string& bytes) {
  [[maybe_unused]] const ssize_t sent =
      ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void pause_for(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

void take_idle_time() {
  const sched_param none{};
  ::sched_setscheduler(0, SCHED_IDLE, &none);
}

}  // namespace

StoreAttackers::StoreAttackers(const Target& target, unsigned seed) : target_(target) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 65536);
  ::setrlimit(RLIMIT_NOFILE, &limit);
  threads_.emplace_back([this, seed] { send_random_bytes(seed); });
  threads_.emplace_back([this, seed] { keep_half_greetings(seed + 1); });
  threads_.emplace_back([this] { open_thousands(); });
  threads_.emplace_back([this, seed] { misbehave_inside(seed + 2); });
}

StoreAttackers::~StoreAttackers() {
  is_stopping_ = true;
  for (std::thread& thread : threads_) thread.join();
}

int StoreAttackers::connected() const {
  base::Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in to{.sin_family = AF_INET,
                 .sin_port = htons(static_cast<uint16_t>(target_.address.port))};
  ::inet_pton(AF_INET, target_.address.host.c_str(), &to.sin_addr);
  if (socket.value() < 0) return -1;
  ::connect(socket.value(), reinterpret_cast<sockaddr*>(&to), sizeof(to));
  return socket.release();
}

void StoreAttackers::send_random_bytes(unsigned seed) {
  take_idle_time();
  std::mt19937 random(seed);
  while (!is_stopping_) {
    const base::Descriptor socket(connected());
    pollfd polled{socket.value(), POLLOUT, 0};
    if (socket.value() < 0 || ::poll(&polled, 1, 100) <= 0) continue;
    ++connections_;
    send_some(socket.value(), stranger_bytes(random));
    polled.events = POLLIN;
    if (::poll(&polled, 1, 20) <= 0) continue;
    std::string answer(4096, '\0');
    const ssize_t count = ::recv(socket.value(), answer.data(), answer.size(), 0);
    if (count <= 0) continue;
    answer.resize(static_cast<size_t>(count));
    const auto message = comm::take_frame(answer);
    if (!message || message->code != StoreCode::refused) ++admissions_;
  }
}

void StoreAttackers::keep_half_greetings(unsigned seed) {
  take_idle_time();
  std::mt19937 random(seed);
  const std::string handshake = comm::store_handshake("another job");
  std::deque<base::Descriptor> kept;
  while (!is_stopping_) {
    kept.emplace_back(connected());
    ++connections_;
    pause_for(2);
    send_some(kept.back().value(), handshake.substr(0, random() % handshake.size()));
    if (kept.size() > 1000) kept.pop_front();
  }
}

void StoreAttackers::open_thousands() {
  take_idle_time();
  constexpr size_t many = 10000;
  while (!is_stopping_) {
    std::vector<base::Descriptor> open;
    for (size_t i = 0; i < many && !is_stopping_; ++i) {
      open.emplace_back(connected());
      ++connections_;
    }
    for (int i = 0; i < 10 && !is_stopping_; ++i) pause_for(50);
  }
}

// A client with the token: replies that it does not read, requests that it does not finish, invalid
// frames. It does not join as a rank.
void StoreAttackers::misbehave_inside(unsigned seed) {
  take_idle_time();
  std::mt19937 random(seed);
  const std::string handshake = comm::store_handshake(target_.token);
  const std::string large = comm::encode({StoreCode::set, {"attack", std::string(1 << 20, 'x')}});
  const std::string read =
      comm::encode({StoreCode::read, {"attack", "attack", "attack", "attack"}});
  std::deque<base::Descriptor> kept;
  while (!is_stopping_) {
    kept.emplace_back(connected());
    ++connections_;
    pause_for(20);
    switch (random() % 4) {
      case 0:
        send_some(kept.back().value(), handshake + large);
        break;
      case 1:
        send_some(kept.back().value(), handshake + read + read + read);
        break;
      case 2:
        send_some(kept.back().value(), handshake + large.substr(0, random() % large.size()));
        break;
      default:
        send_some(kept.back().value(), handshake + random_bytes(random, 1 + random() % 64));
    }
    if (kept.size() > 100) kept.pop_front();
  }
}

}  // namespace trireme::tests
