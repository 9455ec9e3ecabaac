// SPDX-License-Identifier: Apache-2.0
// The training state of a rank as one block of bytes, which MemoryCopies keeps in memory that
// outlives the process (ckpt/memory/copy_memory.h): what lies where, and the way back.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ckpt/memory/copy_memory.h"
#include "engine/engine.h"
#include "train/checkpointing/saved_state.h"
#include "train/run/state/epoch_state.h"

namespace trireme::train {

// Where the ranges of the state of a rank lie in a copy: a pure function of model, plan and rank,
// the same for all sequence lengths, batches and blocks in bf16.
struct CopyLayout {
  std::vector<engine::Engine::StateRange> ranges;  // without their values
  std::vector<int64_t> offsets;                    // by range
  int64_t table = 0;                               // offset of a byte for each range: is it split?
  int64_t bytes = 0;
  ckpt::Hash digest;  // of names, boxes and offsets
};
CopyLayout copy_layout(const spec::ModelSpec&, const spec::Plan&, int rank);
// Returns the host memory that copies of a rank take: what the system reserves for the descriptor
// (CopyMemory::reserved_bytes()).
int64_t copies_bytes(const CopyLayout&, int rank, int buffers);
ckpt::CopyShape shape_of(const CopyLayout&, int rank, int buffers);

// Returns the copies that fill such a block, except its rest.
std::vector<StagedCopy> copies_into(const CopyLayout&, engine::Engine&);
// Writes the rest of the block: the table, and zeros where no range lies.
void write_rest(const CopyLayout&, engine::Engine&, std::span<std::byte> block);
// Returns the sum of the rest (base/hash/content_sum.h), without the zeros that complete the last
// 16 bytes of ranges: these belong to the sums of the ranges.
base::ContentSum sum_of_rest(const CopyLayout&, std::span<const std::byte> block);

// Writes and reads the note of a copy: everything that KeptState has besides tensors.
void write_note(ckpt::CopyLabel&, const KeptState::Point&, std::span<const int> bf16_blocks,
                const kernels::StepState&);
// Returns the state of a rank that a copy has, with this label and content, which was verified.
struct CopiedRank {
  const spec::ModelSpec& model;
  const spec::Plan& plan;
  int rank = 0;
};
KeptState kept_from(const ckpt::CopyLabel&, std::span<const std::byte> content, const CopyLayout&,
                    const CopiedRank&);

}  // namespace trireme::train
