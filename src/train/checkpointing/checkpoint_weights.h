// SPDX-License-Identifier: Apache-2.0
// The weights of a checkpoint, without the optimizer's state: only their bytes are read.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>

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
  // Calls `write` with every parameter of the model once. Memory: the largest parameter in fp32.
  // Throws IoError.
  void read_all(const ckpt::WriteParam& write) const;

 private:
  const ckpt::Generation& generation_;
  std::map<std::string, ckpt::TensorInfo> tensors_;  // by name of the parameter
};

}  // namespace trireme::train
