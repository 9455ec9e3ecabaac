// SPDX-License-Identifier: Apache-2.0
// StoreServer: the table of a Store, served over TCP by one thread of the launcher or of rank 0. A
// client that says what cannot be understood is cut off; nobody else notices.
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
    std::string name;  // of join()
    std::optional<Waiting> waiting;
  };

  void serve();
  void accept_clients();
  void receive(Client& client);
  void send(Client& client);
  void handle_frames(Client& client);
  void handle(Client& client, const StoreMessage& request);
  bool answer_waiting();  // whether somebody was: his next requests may help others
  void drop_closed();
  int poll_milliseconds() const;
  void put(const std::string& key, std::string value);
  bool has_all(const std::vector<std::string>& keys) const;

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
