// SPDX-License-Identifier: Apache-2.0
// StoreServer: the table of a Store, served over TCP by one thread of the launcher or of rank 0.
// StoreConnections receives the requests; this class answers them, knows which client waits for
// which key, and which name (rank) each client has joined as.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "comm/store/store_connections.h"
#include "comm/store/store_table.h"

namespace trireme::comm {

class StoreServer {
 public:
  struct Options {
    // The address or name to listen on, as clients know it; empty: every address of this host.
    std::string host;
    // Clients are on other hosts, too: listen_on() says where that makes a difference.
    bool serves_other_hosts = false;
    int port = 0;  // 0: any free one
    // Clients with another token are rejected. Without one, processes of two attempts cannot be
    // told apart by it: a client that began `head_start_s` or more before this server may be left
    // over from an attempt before, so its join() is answered `grace_s` later, and gives way to one
    // of a younger process.
    std::string token;
    double head_start_s = 2, grace_s = 3;
    StoreLimits limits;
  };
  // Throws IoError if the port is taken, with what to do.
  explicit StoreServer(const Options& options);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  int port() const { return port_; }

 private:
  using Clock = StoreConnections::Clock;
  using Id = StoreConnections::Id;
  struct Waiting {
    std::vector<std::string> keys;
    size_t found = 0;  // so many of them, from the first, are there
    Clock::time_point end;
  };
  struct Member {
    std::string name;
    std::string process;  // in words
    double process_start = 0;
    std::optional<Clock::time_point> joins_at;  // when join() is answered; none: it was
  };

  void serve();
  void handle(Id id, const StoreMessage& request);
  StoreMessage read(const std::vector<std::string>& keys) const;
  void wait(Id id, const std::vector<std::string>& fields);
  // Answers, or has the client wait for the next key that is missing.
  void continue_waiting(Id id);
  void end_waiting(Id id, bool is_there);
  // Throws IoError if the name is taken.
  void join(Id id, const std::vector<std::string>& fields);
  void refuse(Id id, const std::string& why);
  void remove_member(Id id);
  void on_disconnect(Id id);
  void handle_timeouts();
  void put(const std::string& key, std::string value);
  void wake_waiting(const std::string& key);

  const Options options_;
  const double started_;  // seconds since 1970
  int port_ = 0;
  StoreConnections connections_;
  std::atomic<bool> is_stopping_ = false;
  // Only the thread touches these.
  StoreTable table_;
  std::unordered_map<Id, Waiting> waiting_;
  std::unordered_map<std::string, std::set<Id>> waiting_for_;  // by the first key that is missing
  std::unordered_map<Id, Member> members_;
  std::map<std::string, Id> names_;
  std::set<std::pair<Clock::time_point, Id>> due_;  // ends of waiting and times to join
  int64_t departures_ = 0;
  std::thread thread_;
};

}  // namespace trireme::comm
