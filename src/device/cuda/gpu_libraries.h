// SPDX-License-Identifier: Apache-2.0
// cuBLASLt and cuDNN are loaded when a GPU is requested, so that one program serves login nodes
// without CUDA and nodes with GPUs. cublaslt_library.cpp and cudnn_library.cpp define the functions
// that Trireme calls, with the declarations of NVIDIA's headers; each forwards to the loaded
// library. Code that calls them is therefore the same as with a linked library, and a missing
// forwarder is a linker error, not a run-time error.
//
// The sonames follow the headers that were compiled against. A function called without its library
// throws ConfigError with problem().
#pragma once

#include <string>
#include <vector>

#include "base/system/shared_library.h"

namespace trireme::device {

// Each loads its library at the first call, from any thread.
const base::SharedLibrary& cublaslt_library();
const base::SharedLibrary& cudnn_library();

// The default folders of CUDA; searched after the loader's default paths.
inline std::vector<std::string> cuda_folders() {
  return {"/usr/local/cuda/lib64", "/usr/local/cuda/lib"};
}

}  // namespace trireme::device
