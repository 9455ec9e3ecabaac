// SPDX-License-Identifier: Apache-2.0
// Which program wrote a file.
#pragma once

#include <string>

namespace trireme::base {

struct ProgramId {
  std::string version, commit;  // empty: not known
};

}  // namespace trireme::base
