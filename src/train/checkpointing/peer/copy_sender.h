// SPDX-License-Identifier: Apache-2.0
// CopySender: sends copies of this rank's state to the rank that keeps them, on a thread. A send
// that fails is reported, and the next copy is tried again.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "ckpt/memory/copy_memory.h"
#include "ckpt/memory/copy_round.h"
#include "comm/peer/peer_connection.h"

namespace trireme::train {

class CopySender {
 public:
  struct Target {
    std::string address;  // "host:port"; empty: the rank does not listen
    comm::PeerGroup group;
    int own = 0, keeper = 0;  // ranks
  };
  // The memory of the copies must outlive it.
  CopySender(Target target, const ckpt::CopyMemory& memory);
  ~CopySender();  // ends a send that is under way

  int keeper() const { return target_.keeper; }
  // A copy of this step is being made, and will be sent: is_sending() from now on. `keep`: as for
  // send_copy(). REQUIRES: no other one is being sent.
  void expect(int64_t step, int64_t keep);
  // It is sealed in this buffer, which must stay until is_sending() is false; none: it was not.
  void send(std::optional<int> buffer);
  // No send begins any more, and the one that is under way ends.
  void stop();

  struct State {
    ckpt::CopySteps::Steps kept = ckpt::CopySteps{}.kept;
    int64_t sending = ckpt::CopySteps::empty;
    std::string problem;  // why the last send failed; empty: it succeeded
    int64_t sent = 0, failed = 0, bytes = 0;
    double seconds = 0;  // of the last send
  };
  State state() const;

 private:
  void run();
  // Sends, and returns why it has failed; empty: it has not.
  std::string try_to_send(int buffer, int64_t keep, ckpt::CopySteps::Steps& kept);

  const Target target_;
  const ckpt::CopyMemory& memory_;
  comm::PeerStop stop_;
  std::optional<comm::PeerConnection> connection_;  // of the thread
  mutable std::mutex mutex_;                        // guards all below
  std::condition_variable changed_;
  State state_;
  int64_t keep_ = ckpt::CopySteps::empty;
  std::optional<int> buffer_;  // to send
  bool is_ended_ = false;
  std::thread thread_;
};

}  // namespace trireme::train
