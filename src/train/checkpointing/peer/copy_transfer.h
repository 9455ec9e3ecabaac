// SPDX-License-Identifier: Apache-2.0
// How copies of the state go from a rank to the one that keeps them, and back: requests and replies
// on a PeerConnection. A content is compared with the hash that it was sealed with wherever it
// arrives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ckpt/memory/copy_memory.h"
#include "ckpt/memory/copy_round.h"
#include "comm/peer/peer_connection.h"
#include "train/checkpointing/peer/kept_store.h"

namespace trireme::train {

// Sends the copy in a buffer of `memory` to the rank that keeps it, which overwrites no copy of the
// step `keep`. Returns the steps that it keeps of this rank afterwards. Throws PeerLost, with the
// reason if it refuses the copy or finds it damaged. REQUIRES: the buffer is sealed, and stays so.
ckpt::CopySteps::Steps send_copy(comm::PeerConnection&, const ckpt::CopyMemory& memory, int buffer,
                                 int64_t keep);

// A copy that another rank has kept.
struct FetchedCopy {
  ckpt::CopyLabel label;
  ckpt::Hash hash;                      // of its content
  std::unique_ptr<std::byte[]> memory;  // of the content; null: the caller's
  std::span<const std::byte> content;
};
// Fetches the copy of a state of this shape after `step` into `room`, or if that is empty into new
// memory. Throws PeerLost if there is none, or if its bytes do not have its hash.
FetchedCopy fetch_copy(comm::PeerConnection&, const ckpt::CopyShape&, int64_t step,
                       std::span<std::byte> room = {});

// Serves both until the other side has closed. Throws PeerLost.
void serve_copies(comm::PeerConnection&, KeptStore&);

}  // namespace trireme::train
