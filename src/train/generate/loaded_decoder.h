// SPDX-License-Identifier: Apache-2.0
// LoadedDecoder: a decoder with the weights of a WeightsSource, on the device that a user selects.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "config/config.h"
#include "engine/decode/decoder.h"
#include "spec/model.h"
#include "train/setup/setup.h"
#include "train/weights/weights_source.h"

namespace trireme::train {

struct DecodeOptions {
  int64_t sequences = 1;
  int64_t seq_len = 0;  // longest context; 0: the model's max_seq
  std::string dtype = "fp32";
  config::System system;
};

// Throws ConfigError if a size is not allowed for the model.
spec::DecodePlan make_decode_plan(const spec::ModelSpec&, const DecodeOptions&);

// Throws OutOfMemory, with the memory by purpose and the changes of --batch, --seq and --dtype that
// would fit, unless the decoder's memory is at most `available_bytes`.
void check_decoder_fits(const spec::ModelSpec&, const spec::DecodePlan&, const spec::Backend&,
                        int64_t available_bytes);

class LoadedDecoder {
 public:
  // Throws IoError or ConfigError that names file and reason, OutOfMemory before anything is
  // allocated.
  LoadedDecoder(WeightsSource& weights, const DecodeOptions&);

  const spec::ModelDims& dims() const { return dims_; }
  const Platform& platform() const { return platform_; }
  engine::Decoder& decoder() { return *decoder_; }

 private:
  spec::ModelDims dims_;
  Platform platform_;
  std::unique_ptr<engine::Decoder> decoder_;
};

}  // namespace trireme::train
