// SPDX-License-Identifier: Apache-2.0
// The waiting thread: accepts connections and collects heads. answer.cpp has the threads that
// answer.
#include "board/http/server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/system/start_thread.h"
#include "board/http/message.h"

namespace trireme::board {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

Server::Server(const ListenPlace& place, const ServerLimits& limits, Answer answer)
    : limits_(limits),
      answer_(std::move(answer)),
      listener_(place),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  waiter_ = base::start_thread("of the board's connections", [this] { wait_for_heads(); });
}

Server::~Server() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    // Ends transfers that are under way.
    for (const int descriptor : active_) ::shutdown(descriptor, SHUT_RDWR);
  }
  has_work_.notify_all();
  wake();
  waiter_.join();
  for (std::thread& worker : workers_) worker.join();
  for (const std::deque<Connection>* left : {&queue_, &returned_}) {
    for (const Connection& connection : *left) ::close(connection.descriptor);
  }
  for (const Connection& connection : waiting_) ::close(connection.descriptor);
}

Server::Counts Server::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void Server::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.value(), &one, sizeof(one));
}

void Server::wait_for_heads() {
  std::vector<pollfd> polled;
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (is_stopping_) return;
      for (Connection& connection : returned_) waiting_.push_back(std::move(connection));
      returned_.clear();
    }
    polled = {{listener_.descriptor(), POLLIN, 0}, {wake_.value(), POLLIN, 0}};
    for (const Connection& connection : waiting_) {
      polled.push_back({connection.descriptor, POLLIN, 0});
    }
    ::poll(polled.data(), polled.size(), 250);
    if ((polled[1].revents & POLLIN) != 0) {
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t taken = ::read(wake_.value(), &count, sizeof(count));
    }
    const auto now = steady_clock::now();
    std::vector<Connection> still;
    still.reserve(waiting_.size());
    for (size_t i = 0; i < waiting_.size(); ++i) {
      Connection& connection = waiting_[i];
      const bool is_readable = polled[i + 2].revents != 0;
      if (is_readable && !receive(connection)) {
        ::close(connection.descriptor);
      } else if (head_size(connection.bytes) > 0) {
        dispatch(std::move(connection));
      } else if (connection.bytes.size() > max_head_bytes) {
        refuse(connection.descriptor, 431);
      } else if (now >= connection.deadline) {
        const std::lock_guard lock(mutex_);
        ++counts_.late;
        ::close(connection.descriptor);
      } else {
        still.push_back(std::move(connection));
      }
    }
    waiting_ = std::move(still);
    if ((polled[0].revents & POLLIN) != 0) accept_all();
  }
}

void Server::accept_all() {
  // Not without end: connections that were accepted before must be served, too.
  for (int i = 0; i < 256; ++i) {
    const int descriptor =
        ::accept4(listener_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (descriptor < 0) {
      // Without a free descriptor the listener would stay ready, and this thread would spin.
      const bool is_full = errno == EMFILE || errno == ENFILE;
      if (is_full && waiting_.empty()) std::this_thread::sleep_for(milliseconds(20));
      if (is_full && !waiting_.empty()) close_oldest();
      return;
    }
    const int on = 1;
    ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    const auto now = steady_clock::now();
    waiting_.push_back(
        {.descriptor = descriptor, .bytes = {}, .deadline = now + limits_.head_time, .since = now});
    {
      const std::lock_guard lock(mutex_);
      ++counts_.accepted;
    }
    if (waiting_.size() > limits_.max_waiting) close_oldest();
  }
}

void Server::close_oldest() {
  const auto oldest =
      std::min_element(waiting_.begin(), waiting_.end(),
                       [](const Connection& a, const Connection& b) { return a.since < b.since; });
  ::close(oldest->descriptor);
  waiting_.erase(oldest);
  const std::lock_guard lock(mutex_);
  ++counts_.evicted;
}

bool Server::receive(Connection& connection) {
  std::array<char, 4096> block;
  while (connection.bytes.size() <= max_head_bytes) {
    const ssize_t got = ::recv(connection.descriptor, block.data(), block.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    if (got == 0) return false;
    // The time of a head begins with its first byte.
    if (connection.bytes.empty()) {
      connection.deadline = std::min(connection.deadline, steady_clock::now() + limits_.head_time);
    }
    connection.bytes.append(block.data(), static_cast<size_t>(got));
    if (head_size(connection.bytes) > 0) return true;
  }
  return true;
}

void Server::dispatch(Connection connection) {
  std::unique_lock lock(mutex_);
  const bool has_idle = idle_workers_ > queue_.size();
  if (!has_idle && workers_.size() >= limits_.max_active) {
    ++counts_.busy;
    lock.unlock();
    refuse(connection.descriptor, 503);
    return;
  }
  if (!has_idle) {
    try {
      workers_.push_back(std::thread([this] { work(); }));
    } catch (const std::system_error&) {  // the system has no more threads
      ++counts_.busy;
      lock.unlock();
      refuse(connection.descriptor, 503);
      return;
    }
  }
  queue_.push_back(std::move(connection));
  lock.unlock();
  has_work_.notify_one();
}

void Server::refuse(int descriptor, int status) {
  const Response response = error_response(
      status, status == 503 ? "the board answers too many requests already: try again"
                            : "the head of the request has more than 16384 bytes");
  const std::string text = response_head(response, {.keeps_alive = false}) + response.body;
  // The buffer of a new connection has room for it; otherwise the client gets less.
  [[maybe_unused]] const ssize_t sent =
      ::send(descriptor, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  ::close(descriptor);
}

}  // namespace trireme::board
