// SPDX-License-Identifier: Apache-2.0
// Replaces gloo/ in a build without Gloo.
#include "base/error.h"
#include "comm/gloo.h"

namespace trireme::comm {

std::string gloo_status() {
  return "this build has no Gloo: install libgloo-dev and configure again, or run ranks as "
         "threads";
}

std::unique_ptr<Communicator> make_gloo(ProcessWorld& /*world*/,
                                        Communicator::Options /*options*/) {
  throw base::ConfigError("ranks as processes: " + gloo_status());
}

}  // namespace trireme::comm
