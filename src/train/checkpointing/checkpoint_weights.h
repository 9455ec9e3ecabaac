// SPDX-License-Identifier: Apache-2.0
// The weights of a checkpoint, and own tensors of layers that forward passes read, without the
// optimizer's state: only their bytes are read.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "ckpt/generation/generation.h"
#include "ckpt/hf/hf_weights.h"
#include "spec/model.h"

namespace trireme::train {

class CheckpointWeights {
 public:
  // The generation must outlive it.
  CheckpointWeights(const ckpt::Generation&, const spec::ModelDims&);

  // Fills `values` with a box of a parameter, as ckpt::ReadBox. Throws IoError.
  void read(const std::string& name, const spec::Piece& box, std::span<float> values) const;
  // Calls `write` with every parameter of the model once, and with every own tensor that forward
  // passes read (spec::inference_state()) under its saved name. Imported weights come without the
  // latter, which are zero then. Memory: the largest parameter in fp32. Throws IoError.
  void read_all(const ckpt::WriteParam& write) const;

 private:
  std::vector<float> whole(const ckpt::TensorInfo&) const;

  const ckpt::Generation& generation_;
  std::map<std::string, ckpt::TensorInfo> tensors_;  // by name of the parameter
  std::vector<ckpt::TensorInfo> inputs_;             // own tensors that the checkpoint contains
};

}  // namespace trireme::train
