// SPDX-License-Identifier: Apache-2.0
// Attackers of a run's store: threads that connect to it as strangers do, with random bytes, half
// handshakes, thousands of connections and answers that are never read, and as broken processes of
// the job itself do, with its token. They take only processor time that nothing else wants.
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
    std::string token;  // the job's; only broken clients of the job use it
  };
  // REQUIRES: the address is a numeric one of IPv4.
  StoreAttackers(const Target& target, unsigned seed);
  ~StoreAttackers();  // stops
  StoreAttackers(const StoreAttackers&) = delete;
  StoreAttackers& operator=(const StoreAttackers&) = delete;

  int64_t connections() const { return connections_; }
  // How often a stranger was let in, or got an answer other than a refusal: a hole.
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
