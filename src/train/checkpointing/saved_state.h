// SPDX-License-Identifier: Apache-2.0
// The engine's state as tensors of a checkpoint: which boxes of which logical tensor a rank saves,
// where each lies in its data file, and how state that was saved by any layout is loaded.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text/json_fwd.h"
#include "ckpt/generation/generation.h"
#include "ckpt/generation/save.h"
#include "device/device.h"
#include "engine/engine.h"

namespace trireme::train {

// "weight/blocks.0.norm1.weight": the fp32 weights of a parameter in a checkpoint.
std::string saved_weight_name(const std::string& param);
// Returns all tensors of a checkpoint of this model: those of spec::state_of() for every layer, by
// parameter. Their names are those of spec::saved_name().
std::vector<ckpt::TensorInfo> saved_tensors(const spec::ModelSpec&, const spec::Plan&);
// Returns those of them that are own tensors of layers and inputs of forward passes.
std::vector<ckpt::TensorInfo> saved_inputs(const spec::ModelSpec&);

// Returns the pieces that the rank at `coord` saves, such that no two ranks save the same: its
// share along dp of the part that it updates. The first rank along tp saves parameters that are
// replicated along tp; the first data rank saves own tensors of layers.
std::vector<ckpt::TensorPieces> saved_pieces(const spec::ModelSpec&, const spec::Plan&,
                                             const spec::Coord&);

// Returns the boxes of tensors that lie in a range of the engine's state, those of replicas
// included; padding is in no box. Piece::local counts the elements of the range.
std::vector<ckpt::TensorPieces> pieces_of(const engine::Engine::StateRange&, const spec::ModelSpec&,
                                          const spec::Plan&, const spec::Coord&);

// A copy of a part of the engine's state, in fp32, to its place in ckpt::plan_file(saved_pieces()).
struct StagedCopy {
  optim::FlatFloats from;  // f32, or at most max_split_elements
  int64_t to = 0;          // byte in the file
  bool is_own = false;     // of an own tensor of a layer

  static constexpr int64_t max_split_elements = 1 << 20;  // elements

  int64_t bytes() const { return from.values.bytes() + (from.low ? from.low.bytes() : 0); }
  // Enqueues the download into the memory of the file, in the device's format. No copy crosses a
  // multiple of HostRegistration::piece_bytes of that memory.
  void start(device::Stream&, std::byte* file) const;
  // Converts to the file's format, after the download has run. Split floats need a workspace of
  // bytes().
  void finish(std::byte* file, std::span<std::byte> workspace) const;
};
std::vector<StagedCopy> staged_copies(engine::Engine&, const spec::ModelSpec&, const spec::Coord&,
                                      const ckpt::FileLayout&);

// Are these imported weights, which have the state of no run?
bool is_imported(const ckpt::Generation&);
// A checkpoint with the state of another optimizer.
class OtherOptimizer : public base::ConfigError {
 public:
  using base::ConfigError::ConfigError;
};
// Throws OtherOptimizer unless the plan has the optimizer that saved the generation. Imported
// weights have the state of none.
void expect_optimizer(const spec::Plan&, const ckpt::Generation&);

// Fills this rank's state from a generation of any layout, layer by layer; memory: the state of one
// layer. Imported weights come with zero for everything else. The caller then calls
// Engine::state_changed(). Throws IoError and OtherOptimizer.
void load_state(engine::Engine&, const spec::ModelSpec&, const spec::Coord&,
                const ckpt::Generation&);

// Returns the name of the first tensor whose bits on this rank differ from the generation; empty:
// none. Memory: the state of one layer, twice. Throws IoError.
std::string state_difference(engine::Engine&, const spec::ModelSpec&, const spec::Coord&,
                             const ckpt::Generation&);

// ---- state that is not a tensor
base::Json to_json(const kernels::StepState&);
// Throws ConfigError that names the key.
kernels::StepState step_state_from(const base::Json&);

}  // namespace trireme::train
