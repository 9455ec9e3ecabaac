// SPDX-License-Identifier: Apache-2.0
// WeightsSource: reads the weights of a model from storage of any form.
#pragma once

#include <filesystem>
#include <string>

#include "ckpt/hf/hf_weights.h"
#include "spec/model.h"

namespace trireme::train {

class WeightsSource {
 public:
  virtual ~WeightsSource() = default;
  virtual const spec::ModelDims& dims() const = 0;
  // Calls `write` for every parameter, and under its saved name for every own tensor of layers that
  // forward passes read and that is not zero (spec::inference_state()). If it throws IoError, some
  // may have been written.
  virtual void read(const ckpt::WriteParam& write) = 0;
};

// A Hugging Face folder.
class HfSource final : public WeightsSource {
 public:
  // Reads config.json. Throws IoError or ConfigError that names file and reason.
  explicit HfSource(std::filesystem::path folder);
  const spec::ModelDims& dims() const override { return dims_; }
  void read(const ckpt::WriteParam& write) override;

 private:
  std::filesystem::path folder_;
  spec::ModelDims dims_;
};

}  // namespace trireme::train
