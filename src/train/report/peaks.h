// SPDX-License-Identifier: Apache-2.0
// The speed a device can reach at most: given by the user, from the vendor's datasheet, or
// measured. Every figure says where it comes from; a GPU that is not in the table has none.
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

// Measured on a device that is not frozen: the best of ten on a GPU, of
// five on a CPU, after warm-up. Both wait for it. On a
// CPU products are in fp32 whatever `dtype` says.
Peak measure_flops(Platform&, base::DType dtype);
Peak measure_bandwidth(Platform&);  // of a copy, reading and writing

// `given_tflops` if above 0, else the datasheet's; none otherwise.
std::optional<Peak> known_flops(double given_tflops, const std::string& hardware, base::DType);

}  // namespace trireme::train
