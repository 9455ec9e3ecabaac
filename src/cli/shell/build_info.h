// SPDX-License-Identifier: Apache-2.0
// Version, commit and compiled back ends of this program. The values are generated at build time
// (cmake/TriremeBuildInfo.cmake); nothing here depends on the machine that runs it.
#pragma once

#include <string>

#include "base/text/json_fwd.h"

namespace trireme::cli {

struct BuildInfo {
  std::string version;             // "0.1.0"
  std::string commit;              // 12 digits, "-dirty" after changes; or "unknown"
  std::string date;                // of the commit, "2026-11-18", in UTC
  std::string build_type;          // "Release"
  std::string compiler;            // "GNU 12.2.0"
  std::string system;              // "Linux x86_64"
  std::string cuda_architectures;  // "90a" (device/gpu/architectures.h); empty: without CUDA
  bool has_gloo = false, has_nccl = false;
  // "GPU suite: last run whole on commit ... changed since: src/kernels; ..." if the sources of
  // this build that reach a GPU differ from those that passed on one (scripts/gpu_record.sh);
  // otherwise empty.
  std::string gpu_suite;
};

const BuildInfo& build_info();

// "trireme 0.1.0 (commit 0123456789ab)" and a line for the build and the back ends.
std::string to_text(const BuildInfo&);
base::Json to_json(const BuildInfo&);

}  // namespace trireme::cli
