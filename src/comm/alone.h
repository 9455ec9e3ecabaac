// SPDX-License-Identifier: Apache-2.0
// One rank of a world without the others: every call of its communicators is checked, counted and
// recorded as that of a real rank, and bytes that peers would send are replaced by copies within
// the device, of the same size and on the same stream. Nothing waits for a peer. It measures what a
// rank computes and stores, at a rate of transfers that no link has.
//
// What arrives, in place of the data of peers:
//   - all_gather, shift: this rank's own input, from every peer
//   - all_to_all, sums in the tree: from peer r what this rank sends to peer r. So as many rows of
//     experts arrive as leave, and a rank that adds to no part of a sum receives stand-ins
//   - sums of a library (fixed_order is false): parts of this rank's input, the last one stays
//   - maxima: this rank's values
//   - recv, broadcast of another root: stand-ins, random numbers of magnitude 0.5 to 2 as f32 and
//     bf16, 1.75 to 2 as f16, from memory that is filled once
// So finite inputs give finite outputs. send() leaves no trace but its traffic.
#pragma once

#include <cstdint>
#include <memory>

#include "comm/communicator.h"
#include "device/device.h"

namespace trireme::comm {

struct AloneState;

// What the groups of the rank share. Must outlive its communicators and the work that they queued.
class AloneWorld {
 public:
  // Returns the device memory of the stand-ins, if the longest message is `message_bytes` long:
  // longer messages are copied in pieces.
  static int64_t memory_bytes(int64_t message_bytes);

  // Allocates memory_bytes() on the device, which must outlive the world, and fills it. REQUIRES: 0
  // <= rank < ranks.
  AloneWorld(device::Device&, int rank, int ranks, int64_t message_bytes);
  ~AloneWorld();

  FlightRecorder& recorder();
  // Later calls copy nothing, and leave in their results what is there.
  void stop_moving();
  // Returns this rank's handle on the group of all ranks. Its groups are made by subgroup(): the
  // colors of absent ranks, which split() needs, are unknown.
  std::unique_ptr<Communicator> communicator(Communicator::Options options);

 private:
  std::unique_ptr<AloneState> state_;
};

}  // namespace trireme::comm
