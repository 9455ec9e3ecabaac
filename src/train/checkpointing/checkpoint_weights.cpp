// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointing/checkpoint_weights.h"

#include "ckpt/hf/hf_names.h"
#include "train/checkpointing/saved_state.h"

namespace trireme::train {

CheckpointWeights::CheckpointWeights(const ckpt::Generation& generation,
                                     const spec::ModelDims& dims)
    : generation_(generation) {
  for (const ckpt::HfParam& param : ckpt::hf_params(dims)) {
    tensors_[param.name] = {saved_weight_name(param.name), base::DType::f32, param.shape};
  }
  const bool is_imported = generation.manifest().state.contains("imported");
  if (!is_imported) inputs_ = saved_inputs(spec::make_model(dims));
}

void CheckpointWeights::read(const std::string& name, const spec::Piece& box,
                             std::span<float> values) const {
  const ckpt::ReadRequest request{
      tensors_.at(name), {{box.lo, box.hi, 0}}, std::as_writable_bytes(values)};
  generation_.read({&request, 1});
}

std::vector<float> CheckpointWeights::whole(const ckpt::TensorInfo& tensor) const {
  std::vector<float> values(static_cast<size_t>(ckpt::bytes_of(tensor)) / sizeof(float));
  const ckpt::ReadRequest request{tensor,
                                  {{std::vector<int64_t>(tensor.shape.size()), tensor.shape, 0}},
                                  std::as_writable_bytes(std::span(values))};
  generation_.read({&request, 1});
  return values;
}

void CheckpointWeights::read_all(const ckpt::WriteParam& write) const {
  for (const auto& [name, tensor] : tensors_) write(name, whole(tensor));
  for (const ckpt::TensorInfo& tensor : inputs_) write(tensor.name, whole(tensor));
}

}  // namespace trireme::train
