// SPDX-License-Identifier: Apache-2.0
// The GPUs that a build has kernels for, as CMake's CMAKE_CUDA_ARCHITECTURES lists them, with
// commas: "90a", "80,90a", "90a-virtual" (PTX alone, which the driver compiles).
#pragma once

#include <string>

namespace trireme::device {

// Returns whether a GPU of compute capability major.minor runs a build for this list. Code with a
// letter runs on exactly that chip, other code also on later minors, PTX alone on later GPUs.
bool runs_on(const std::string& architectures, int major, int minor);

// Returns whether the build has no code for any GPU, but PTX alone.
bool is_ptx_only(const std::string& architectures);

// Returns "sm 90a", or "sm 90a as PTX (...)" with what that means for a start.
std::string architectures_text(const std::string& architectures);

}  // namespace trireme::device
