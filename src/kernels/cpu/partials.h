// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/system/threads.h"
#include "device/tensor.h"

namespace trireme::kernels::cpu {

// d[i] += sum over rows of partials[row, first + i], in fp64 in the order of rows. partials is f32.
void add_partials(base::ThreadPool& pool, const device::ConstTensor& partials, int64_t first,
                  const device::Tensor& d);

}  // namespace trireme::kernels::cpu
