// SPDX-License-Identifier: Apache-2.0
// Rewrites a checkpoint as other ranks would have written it. Needs no device and no ranks: one
// process reads and writes in bounded memory.
#pragma once

#include <filesystem>
#include <functional>
#include <vector>

#include "base/text/json.h"
#include "ckpt/generation/generation.h"
#include "ckpt/generation/save.h"

namespace trireme::ckpt {

struct ReshardTarget {
  std::filesystem::path root;  // the checkpoint folder to write into
  int ranks = 1;
  // What each rank would have saved. Together they must cover every tensor.
  std::function<std::vector<TensorPieces>(int rank)> pieces_of;
  base::Json plan = base::Json::object();  // of the new layout
  // Bytes of a data file in memory at one time; rounded up to chunks.
  int64_t window_bytes = int64_t{64} << 20;
  std::function<void(int64_t bytes)> progress = {};  // written so far, of all data files
};

// Returns the folder of the new checkpoint: same step, state and tensors, checked as
// Generation::open() does before it is committed. Memory: one window, one chunk per transfer in
// flight, and the indexes. Throws IoError.
std::filesystem::path reshard(Disk&, const Generation& from, const ReshardTarget&,
                              const IoOptions& = {});

}  // namespace trireme::ckpt
