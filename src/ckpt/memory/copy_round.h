// SPDX-License-Identifier: Apache-2.0
// The rule by which ranks overwrite the buffers of their copies (copy_memory.h). Pure: all ranks
// compute the same from what they have exchanged.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ckpt/memory/copy_memory.h"

namespace trireme::ckpt {

// The buffers of a rank, as ranks report them to each other: the step of each, or `empty`.
struct CopySteps {
  static constexpr int64_t empty = -1;
  using Steps = std::array<int64_t, max_copy_buffers>;
  Steps sealed{empty, empty, empty}, filling{empty, empty, empty};
  // Where ranks send their copies to others, which keep them (kept_copies.h): the steps of those
  // that the rank knows to be kept, and the one that it is sending.
  Steps kept{empty, empty, empty};
  int64_t sending = empty;
};
// What follows from the reports of all ranks, by rank: the same on each of them.
struct CopyRound {
  std::optional<int64_t> held;    // the newest step of which all ranks have a sealed copy
  std::vector<int64_t> possible;  // steps of which every rank has a copy or is filling one
  std::optional<int64_t> kept;    // the newest step of which the copies of all ranks are kept
};
CopyRound round_of(std::span<const CopySteps> all);
// Returns the buffer that a rank may overwrite: one that is not filling, and empty, older than the
// step that all ranks hold, or of a step that not all ranks will have. So one complete step always
// exists. None: there is no such buffer.
std::optional<int> free_buffer(const CopySteps& own, int buffers, const CopyRound&);
// Returns whether every rank has a free buffer, and none is sending: then the copy before has
// arrived everywhere, unless a send has failed, and ranks that lose a node have a step in common,
// some of them in their own buffers and the others where their copies are kept.
bool may_copy(std::span<const CopySteps> all, int buffers);
// Returns the buffer in which a rank stores a copy that another one sends: an empty one (`sealed`:
// the steps of its buffers), or the oldest that is not of the step `keep`, which is
// CopyRound::kept, or `empty`. So the copies of one step always exist where all are kept.
int buffer_to_keep_in(const CopySteps::Steps& sealed, int buffers, int64_t keep);

}  // namespace trireme::ckpt
