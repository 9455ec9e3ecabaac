// SPDX-License-Identifier: Apache-2.0
// Attackers of a run's store: threads that connect to it without the token, with random bytes,
// partial handshakes, thousands of connections and replies that are never read, and with the token,
// as broken processes of the job would. They use only idle CPU time.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "comm/store/store.h"

namespace trireme::tests {

class StoreAttackers {
 public:
  struct Target {
    comm::StoreAddress address;
    std::string token;  // of the job; only its broken clients use it
  };
  // REQUIRES: the address is a numeric IPv4 address.
  StoreAttackers(const Target& target, unsigned seed);
  ~StoreAttackers();  // stops
  StoreAttackers(const StoreAttackers&) = delete;
  StoreAttackers& operator=(const StoreAttackers&) = delete;

  int64_t connections() const { return connections_; }
  // Returns how often a client without the token was accepted, or got a reply other than a refusal:
  // a vulnerability.
  int64_t admissions() const { return admissions_; }

 private:
  void send_random_bytes(unsigned seed);
  void keep_half_greetings(unsigned seed);
  void open_thousands();
  void misbehave_inside(unsigned seed);
  int connected() const;  // a socket, or -1

  const Target target_;
  std::atomic<bool> is_stopping_ = false;
  std::atomic<int64_t> connections_ = 0, admissions_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace trireme::tests
