// SPDX-License-Identifier: Apache-2.0
// Replaces nccl/ in a build without CUDA or without NCCL.
#include "base/error.h"
#include "comm/nccl.h"

namespace trireme::comm {

std::string nccl_status() {
  return "this build has no NCCL: install CUDA and libnccl-dev and configure again, or use Gloo "
         "for ranks on CPUs";
}

std::vector<base::LibraryReport> nccl_libraries() { return {}; }

std::unique_ptr<Communicator> make_nccl(ProcessWorld& /*world*/, device::Device& /*device*/,
                                        Communicator::Options /*options*/) {
  throw base::ConfigError("ranks over NCCL: " + nccl_status());
}

}  // namespace trireme::comm
