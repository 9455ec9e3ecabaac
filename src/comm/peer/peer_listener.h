// SPDX-License-Identifier: Apache-2.0
// PeerListener: serves connections of other ranks of an epoch (peer_connection.h), each on a
// thread.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <string>
#include <thread>
#include <vector>

#include "base/system/descriptor.h"
#include "comm/peer/peer_connection.h"

namespace trireme::comm {

class PeerListener {
 public:
  // Called for every rank that has connected, on several threads; the connection ends when it
  // returns. A PeerLost that it throws is the end of the connection; other errors are logged.
  using Serve = std::function<void(PeerConnection&)>;

  // Listens on a free port of `host`, an address of this host. Throws IoError.
  PeerListener(const std::string& host, PeerGroup group, Serve serve);
  // Ends all connections.
  ~PeerListener();
  PeerListener(const PeerListener&) = delete;
  PeerListener& operator=(const PeerListener&) = delete;

  const std::string& address() const { return address_; }  // "host:port"

 private:
  struct Served {
    std::thread thread;
    std::atomic<bool> has_ended = false;
  };
  void accept_all();
  void accept_from(int socket);
  void serve(base::Descriptor socket);
  void join_ended();

  const PeerGroup group_;
  const Serve serve_;
  PeerStop stop_;
  std::vector<base::Descriptor> sockets_;
  std::string address_;
  std::list<Served> served_;  // of the thread that accepts
  std::thread thread_;
};

}  // namespace trireme::comm
