// SPDX-License-Identifier: Apache-2.0
// The threads that answer requests.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "board/gate.h"
#include "board/http/message.h"
#include "board/http/server.h"

namespace trireme::board {
namespace {

using std::chrono::duration;
using std::chrono::steady_clock;

// Sends to a client that may take bytes slowly or not at all.
class SlowWriter {
 public:
  SlowWriter(int descriptor, const ServerLimits& limits)
      : descriptor_(descriptor), limits_(limits) {}

  // Returns false if the client has left or is too slow.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent =
          ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) {
        sent_ += static_cast<double>(sent);
        bytes.remove_prefix(static_cast<size_t>(sent));
        continue;
      }
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) return false;
      if (!wait()) return false;
    }
    return true;
  }
  bool was_slow() const { return was_slow_; }
  // Returns whether the client has not closed the connection.
  bool is_connected() const {
    pollfd one{descriptor_, POLLRDHUP, 0};
    ::poll(&one, 1, 0);
    return (one.revents & (POLLRDHUP | POLLERR | POLLHUP | POLLNVAL)) == 0;
  }

 private:
  // Waits until there is room again.
  bool wait() {
    const double stall_seconds = duration<double>(limits_.stall_time).count();
    // A client that takes a byte now and then uses up its time, too.
    if (waited_ > stall_seconds && sent_ < waited_ * limits_.min_bytes_per_second) {
      was_slow_ = true;
      return false;
    }
    const auto begin = steady_clock::now();
    pollfd one{descriptor_, POLLOUT, 0};
    const int ready = ::poll(&one, 1, static_cast<int>(limits_.stall_time.count()));
    waited_ += duration<double>(steady_clock::now() - begin).count();
    if (ready == 0) was_slow_ = true;
    return ready > 0 && (one.revents & (POLLERR | POLLHUP | POLLNVAL)) == 0;
  }

  int descriptor_;
  const ServerLimits& limits_;
  double waited_ = 0, sent_ = 0;  // seconds, bytes
  bool was_slow_ = false;
};

}  // namespace

void Server::work() {
  while (true) {
    Connection connection;
    {
      std::unique_lock lock(mutex_);
      ++idle_workers_;
      has_work_.wait(lock, [&] { return is_stopping_ || !queue_.empty(); });
      --idle_workers_;
      if (is_stopping_) return;
      connection = std::move(queue_.front());
      queue_.pop_front();
      active_.insert(connection.descriptor);
    }
    const bool stays_open = serve(connection);
    {
      const std::lock_guard lock(mutex_);
      active_.erase(connection.descriptor);
      if (stays_open && !is_stopping_) {
        const auto now = steady_clock::now();
        connection.since = now;
        connection.deadline =
            now + (connection.bytes.empty() ? limits_.idle_time : limits_.head_time);
        returned_.push_back(std::move(connection));
      } else {
        ::close(connection.descriptor);
        continue;
      }
    }
    wake();
  }
}

bool Server::serve(Connection& connection) {
  // Browsers send one request at a time; a few that follow at once are answered here, too.
  for (int i = 0; i < 16; ++i) {
    const size_t size = head_size(connection.bytes);
    if (size == 0) return true;
    const std::string head = connection.bytes.substr(0, size);
    connection.bytes.erase(0, size);
    if (!answer(connection, head)) return false;
  }
  return head_size(connection.bytes) == 0;
}

// Returns whether the connection stays open.
bool Server::answer(Connection& connection, std::string_view head) {
  ParsedHead parsed = parse_head(head);
  const Request& request = parsed.request;
  Response response;
  if (head.size() > max_head_bytes) parsed.status = 431;
  if (parsed.status != 200) {
    response = error_response(parsed.status, "the request is no GET or HEAD without a body");
    parsed.keeps_alive = false;
    Gate::add_headers(request, response);
  } else {
    response = answer_(request);
  }
  bool has_stream = false;
  if (response.stream) {
    const std::lock_guard lock(mutex_);
    has_stream = streams_ < limits_.max_streams;
    streams_ += has_stream ? 1 : 0;
    counts_.busy += has_stream ? 0 : 1;
  }
  if (response.stream && !has_stream) {
    response = error_response(503, "too many pages follow this board already");
    Gate::add_headers(request, response);
  }
  const bool is_head = request.method == "HEAD";
  const bool is_http_10 = parsed.is_http_10;
  SlowWriter out(connection.descriptor, limits_);
  const ResponseForm form{
      .keeps_alive = parsed.keeps_alive, .is_head = is_head, .is_http_10 = is_http_10};
  bool is_open = out.send(response_head(response, form));
  if (is_open && !is_head && response.status != 304) {
    if (response.stream) {
      response.stream([&](std::string_view part) {
        if (part.empty()) return is_open = is_open && out.is_connected();
        is_open = is_open && (is_http_10 ? out.send(part) : out.send(chunk_of(part)));
        return is_open;
      });
      if (is_open && !is_http_10) is_open = out.send(chunk_of(""));
    } else {
      is_open = out.send(response.body);
    }
  }
  const std::lock_guard lock(mutex_);
  if (has_stream) --streams_;
  if (out.was_slow()) ++counts_.slow;
  return is_open && parsed.keeps_alive;
}

}  // namespace trireme::board
