// SPDX-License-Identifier: Apache-2.0
// PeerConnection: bytes between two ranks of one epoch of a run, beside their collectives: TCP, on
// threads of its users. It begins with an opening, by which a rank of another job or of an earlier
// epoch is refused. What the bytes mean is up to its users (train/checkpointing/peer/).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/error.h"
#include "base/system/descriptor.h"

namespace trireme::comm {

// The connection cannot be made, was refused or is broken, or this side ends it. What was being
// transferred is incomplete.
class PeerLost : public base::Error {
 public:
  using Error::Error;
};

// By which the ranks of an epoch know each other.
struct PeerGroup {
  std::string secret;  // that only they have
  int64_t epoch = 0;
};

// A switch that ends all waiting of connections: set() by any thread, once.
class PeerStop {
 public:
  PeerStop();
  void set();
  int descriptor() const { return event_.value(); }  // readable once it is set
  const std::atomic<bool>& is_set() const { return is_set_; }

 private:
  base::Descriptor event_;
  std::atomic<bool> is_set_ = false;
};

class PeerConnection {
 public:
  // A transfer in which nothing moves for so long is broken.
  static constexpr double stall_seconds = 10;

  // Connects to "host:port" as rank `own` of the group. `stop` must outlive the connection. Throws
  // PeerLost, with the reason that the other side has given.
  PeerConnection(const std::string& address, const PeerGroup&, int own, const PeerStop& stop);
  // Takes over the other end of a connection. Throws PeerLost unless the opening that arrives is of
  // this group; the other side receives the reason, but nothing about a group whose secret it does
  // not have.
  PeerConnection(base::Descriptor socket, const PeerGroup&, const PeerStop& stop);

  int rank() const { return rank_; }  // of the one that has connected

  // Throw PeerLost.
  void send(std::span<const std::byte> bytes);
  void receive(std::span<std::byte> bytes);
  // Waits without a limit until something arrives. Returns false if the other side has closed.
  bool wait();

  template <typename T>
  void send_value(const T& value) {
    send(std::as_bytes(std::span(&value, 1)));
  }
  template <typename T>
  T receive_value() {
    T value;
    receive(std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }

 private:
  // Waits until the socket is ready for one of the poll `events`. Throws PeerLost after `seconds`,
  // and when the switch is set.
  void await(short events, double seconds);

  base::Descriptor socket_;
  const PeerStop& stop_;
  int rank_ = -1;
};

}  // namespace trireme::comm
