// SPDX-License-Identifier: Apache-2.0
// NCCL is loaded when ranks with GPUs start, like cuBLASLt and cuDNN (device/cuda/gpu_libraries.h):
// nccl_library.cpp defines the functions that Trireme calls and forwards them.
#pragma once

#include "base/system/shared_library.h"

namespace trireme::comm {

// Loads NCCL at the first call, from any thread.
const base::SharedLibrary& nccl_shared_library();

}  // namespace trireme::comm
