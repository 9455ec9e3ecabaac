// SPDX-License-Identifier: Apache-2.0
// The peak speed of a device: given by the user, from the vendor's datasheet, or measured. Every
// figure names its source; a GPU that is not in the table has none.
#pragma once

#include <optional>
#include <string>

#include "base/dtype.h"
#include "train/setup/setup.h"

namespace trireme::train {

struct Peak {
  double per_second = 0;  // FLOPs, or bytes
  std::string source;     // "vendor's datasheet, dense bf16"
};

// `hardware` as the driver names the GPU. Dense products: bf16 on tensor cores with fp32 sums, fp32
// without tensor cores.
std::optional<Peak> datasheet_flops(const std::string& hardware, base::DType);
std::optional<Peak> datasheet_bandwidth(const std::string& hardware);

// Measure the best of ten runs on a GPU, of five on a CPU, after warm-up, and wait for the device.
// On a CPU the product is in fp32, whatever `dtype` is. REQUIRES: the device's ledger is not
// frozen.
Peak measure_flops(Platform&, base::DType dtype);
Peak measure_bandwidth(Platform&);  // of a copy, reading and writing

// Returns `given_tflops` if above 0, otherwise the datasheet's figure, if there is one.
std::optional<Peak> known_flops(double given_tflops, const std::string& hardware, base::DType);

}  // namespace trireme::train
