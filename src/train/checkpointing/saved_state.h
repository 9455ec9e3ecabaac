// SPDX-License-Identifier: Apache-2.0
// The engine's state as tensors of a checkpoint: which boxes of which logical tensor a rank saves,
// where each lies in its data file, and how what was saved by any layout comes back.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/text/json_fwd.h"
#include "ckpt/generation/generation.h"
#include "ckpt/generation/save.h"
#include "device/device.h"
#include "engine/engine.h"

namespace trireme::train {

// "weight/blocks.0.norm1.weight", "m/...", "v/...".
std::string state_name(engine::Engine::StateKind, const std::string& param);

// What the rank at `coord` saves, without what another rank saves: of the part that it updates its
// share along dp; of what all ranks along tp have, the first's.
std::vector<ckpt::TensorPieces> saved_pieces(const spec::ModelSpec&, const spec::Plan&,
                                             const spec::Coord&);

// A copy from the engine's state to where ckpt::plan_file(saved_pieces()) wants it, in fp32.
struct StagedCopy {
  optim::FlatFloats from;  // f32, or at most max_split_elements
  int64_t to = 0;          // byte in the file

  static constexpr int64_t max_split_elements = 1 << 20;  // elements

  int64_t bytes() const { return from.values.bytes() + (from.low ? from.low.bytes() : 0); }
  // Queues that the memory of the file gets the state as it lies on the device.
  void start(device::Stream&, std::byte* file) const;
  // Once that has run: as it lies in the file. SplitFloats want a workspace of bytes().
  void finish(std::byte* file, std::span<std::byte> workspace) const;
};
std::vector<StagedCopy> staged_copies(engine::Engine&, const spec::ModelSpec&, const spec::Coord&,
                                      const ckpt::FileLayout&);

// Fills this rank's state from a generation of any layout, layer by layer; memory: the state of one
// layer. Engine::state_changed() is still to come. Throws IoError.
void load_state(engine::Engine&, const spec::ModelSpec&, const spec::Coord&,
                const ckpt::Generation&);

// The first tensor of which this rank has other bits than the generation; empty: none. Memory: the
// state of one layer, twice. Throws IoError.
std::string state_difference(engine::Engine&, const spec::ModelSpec&, const spec::Coord&,
                             const ckpt::Generation&);

// ---- what is not a tensor
base::Json to_json(const kernels::StepState&);
// Throws ConfigError that names the key.
kernels::StepState step_state_from(const base::Json&);

}  // namespace trireme::train
