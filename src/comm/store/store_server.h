// SPDX-License-Identifier: Apache-2.0
// StoreServer: the table of a Store, served over TCP by one thread of the launcher or of rank 0.
// StoreConnections receives the requests; this class answers them and records which client waits
// for which key, and under which name (rank) each client has joined.
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

#include "comm/register/register.h"
#include "comm/store/store_connections.h"
#include "comm/store/store_log.h"
#include "comm/store/store_table.h"

namespace trireme::comm {

class StoreServer {
 public:
  struct Options {
    // The address or name to listen on, as clients use it; empty: every address of this host.
    std::string host;
    // Whether clients are on other hosts, too; see listen_on() for its effect.
    bool serves_other_hosts = false;
    int port = 0;  // 0: any free one
    // Clients with another token are rejected. Without a token, and with one that clients of an
    // earlier attempt have as well, processes of two attempts look the same: a client that started
    // `head_start_s` or more before this server may be left over from an earlier attempt, so its
    // join() is answered `grace_s` later, and a younger process replaces it.
    std::string token;
    bool may_have_leftovers = false;
    double head_start_s = 2, grace_s = 3;
    StoreLimits limits;
    // For a server that may be followed by another one. Its memory, null: none; must outlive it.
    StoreLog* log = nullptr;
    // Those of the server before this one, which stay open; empty: it opens its own.
    std::vector<int> sockets;
    // In which members of the server before this one join again; the others have gone.
    double rejoin_s = 5;
    // That it serves, null: none; must outlive it. A swap syncs a file (journal_register.h) on the
    // server's thread, and other clients wait for it. There is one per epoch and one per commit.
    Register* run_register = nullptr;
  };
  // Throws IoError, with what to do, if the port is in use.
  explicit StoreServer(const Options& options);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  int port() const { return port_; }
  // The listening sockets, which belong to it.
  const std::vector<int>& sockets() const { return sockets_; }

 private:
  using Clock = StoreConnections::Clock;
  using Id = StoreConnections::Id;
  struct Waiting {
    std::vector<std::string> keys;
    size_t found = 0;  // number of leading keys that exist
    Clock::time_point end;
  };
  struct Member {
    std::string name;
    std::string scoped_name;
    std::string process;  // a description
    double process_start = 0;
    std::string handle;  // its id; a client that connects again has the same
    std::optional<Clock::time_point> joins_at;  // when join() is answered; none: answered
  };

  void serve();
  // Goes on from what the log has.
  void restore();
  // The members that have not come back are those that have gone.
  void end_restore();
  void rewrite_log();
  void handle(Id id, StoreMessage request);
  // Ends lower epochs. Answers the client.
  void enter(Id id, int64_t epoch);
  bool is_fenced(Id id) const;
  // Returns a key or name of a client as it stands in the table.
  std::string scoped(Id id, const std::string& key) const;
  StoreMessage read(const std::vector<std::string>& keys) const;
  void wait(Id id, const std::vector<std::string>& fields);
  // Answers the client, or registers it for the next missing key.
  void continue_waiting(Id id);
  void end_waiting(Id id, bool is_there);
  // Throws IoError if the name is taken.
  void join(Id id, const std::vector<std::string>& fields);
  void refuse(Id id, const std::string& why);
  void remove_member(Id id);
  void on_disconnect(Id id);
  // Sets the keys of a member that ended without leaving.
  void report_gone(const std::string& scoped_name);
  void handle_timeouts();
  void put(const std::string& key, std::string value);
  int64_t add(Id id, const std::vector<std::string>& fields);
  void log_set(const std::string& key);
  void wake_waiting(const std::string& key);

  const Options options_;
  const double started_;  // seconds since 1970
  int port_ = 0;
  std::vector<int> sockets_;
  StoreConnections connections_;
  std::atomic<bool> is_stopping_ = false;
  // Used by the thread only.
  StoreTable table_;
  std::unordered_map<Id, Waiting> waiting_;
  std::unordered_map<std::string, std::set<Id>> waiting_for_;  // by the first missing key
  std::unordered_map<Id, Member> members_;
  std::map<std::string, Id> names_;                 // scoped
  std::unordered_map<Id, int64_t> epochs_;          // of clients that have entered one
  int64_t epoch_ = -1;                              // the highest that was entered; -1: none
  std::set<std::pair<Clock::time_point, Id>> due_;  // ends of waiting and times to join
  int64_t departures_ = 0;
  std::set<std::string> missing_;  // members of the server before this one that have not come back
  Clock::time_point missing_until_;
  std::thread thread_;
};

}  // namespace trireme::comm
