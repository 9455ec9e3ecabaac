// SPDX-License-Identifier: Apache-2.0
// Server: HTTP on a socket, for a function that answers requests. Any user of the machine may
// connect, so no client can hold more than a bounded part of it:
//
// - One thread waits for the heads of all connections at once. A head must be complete within 10 s
//   and 16 KiB. When too many connections wait, the one that has waited longest is closed, so that
//   thousands of half-open connections do not lock out a browser.
// - A request is answered by one of at most 64 threads; further ones get status 503.
// - A client that takes its response too slowly is disconnected.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/system/descriptor.h"
#include "board/http/listener.h"
#include "board/request.h"

namespace trireme::board {

struct ServerLimits {
  size_t max_waiting = 512;  // connections whose next head is not complete
  size_t max_active = 64;    // requests that are being answered
  size_t max_streams = 32;   // of these, those that do not end by themselves
  std::chrono::milliseconds head_time{10'000};
  std::chrono::milliseconds idle_time{30'000};   // between two requests of a connection
  std::chrono::milliseconds stall_time{10'000};  // a client takes nothing
  double min_bytes_per_second = 4096;            // while the server waits for the client
};

class Server {
 public:
  // Called by several threads. Must not throw.
  using Answer = std::function<Response(const Request&)>;

  // Throws IoError if it cannot listen.
  Server(const ListenPlace& place, const ServerLimits& limits, Answer answer);
  // Closes all connections and joins all threads. REQUIRES: streams end (Board::stop()).
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const { return listener_.port(); }

  struct Counts {
    int64_t accepted = 0;
    int64_t evicted = 0;  // closed because too many waited
    int64_t late = 0;     // closed because the head took too long
    int64_t slow = 0;     // closed because the client took the response too slowly
    int64_t busy = 0;     // answered with 503
  };
  Counts counts() const;

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Connection {
    int descriptor = -1;
    std::string bytes;  // received and not yet used
    Time deadline;
    Time since;
  };

  void wait_for_heads();
  void accept_all();
  void close_oldest();  // of those that wait. REQUIRES: there is one
  // Receives what is there. Returns false if the connection must be closed.
  bool receive(Connection& connection);
  void dispatch(Connection connection);
  void work();
  // Answers the requests that are complete. Returns whether the connection stays open.
  bool serve(Connection& connection);
  bool answer(Connection& connection, std::string_view head);
  void refuse(int descriptor, int status);  // without waiting
  void wake();

  const ServerLimits limits_;
  const Answer answer_;
  Listener listener_;
  base::Descriptor wake_;  // an eventfd: interrupts the waiting thread

  std::vector<Connection> waiting_;  // of the waiting thread

  mutable std::mutex mutex_;  // guards the fields below
  std::condition_variable has_work_;
  std::deque<Connection> queue_;     // with a complete head
  std::deque<Connection> returned_;  // answered, for the waiting thread
  std::set<int> active_;             // descriptors in use by a worker
  std::vector<std::thread> workers_;
  size_t idle_workers_ = 0;
  size_t streams_ = 0;
  Counts counts_;
  bool is_stopping_ = false;

  std::thread waiter_;
};

}  // namespace trireme::board
