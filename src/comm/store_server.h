// SPDX-License-Identifier: Apache-2.0
// StoreServer: the table of a Store, served over TCP by one thread of the launcher or of rank 0. A
// client that sends what cannot be understood is disconnected; other clients do not notice.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/descriptor.h"
#include "comm/store_wire.h"

namespace trireme::comm {

class StoreServer {
 public:
  struct Options {
    std::string host;  // to listen on; empty: every address of this host
    int port = 0;      // 0: any free one
    // Clients with another token are rejected. Without one, processes of two attempts cannot be
    // told apart by it: a client that began `head_start_s` or more before this server may be left
    // over from an attempt before, so its join() is answered `grace_s` later, and gives way to one
    // of a younger process.
    std::string token;
    double head_start_s = 2, grace_s = 3;
  };
  // Throws IoError if the port is taken, with what to do.
  explicit StoreServer(const Options& options);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  int port() const { return port_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    std::string value;
    Clock::time_point set_at;
  };
  struct Waiting {
    std::vector<std::string> keys;
    Clock::time_point end;
  };
  struct Client {
    base::Descriptor socket;
    bool has_greeted = false;
    bool is_open = true;
    std::string in, out;
    std::string name;     // of join()
    std::string process;  // that joined, in words
    double process_start = 0;
    // When a join() that is not answered yet will be; none: there is none.
    std::optional<Clock::time_point> joins_at;
    std::optional<Waiting> waiting;
  };

  void serve();
  void accept_clients();
  void receive(Client& client);
  void send(Client& client);
  void handle_frames(Client& client);
  void handle(Client& client, const StoreMessage& request);
  // Throws IoError if the name is taken.
  void join(Client& client, const std::vector<std::string>& fields);
  void refuse(Client& client, const std::string& why);
  bool answer_waiting();  // true if a client was: its next requests may help others
  void drop_closed();
  int poll_milliseconds() const;
  void put(const std::string& key, std::string value);
  bool has_all(const std::vector<std::string>& keys) const;

  const Options options_;
  const std::string greeting_;
  const double started_;  // seconds since 1970
  base::Descriptor listening_;
  base::Descriptor stop_;  // an eventfd that the destructor writes
  int port_ = 0;
  // Only the thread touches these.
  std::map<std::string, Entry> table_;
  std::list<Client> clients_;
  int64_t departures_ = 0;
  std::thread thread_;
};

}  // namespace trireme::comm
