// SPDX-License-Identifier: Apache-2.0
// The program that wrote a file.
#pragma once

#include <string>

namespace trireme::base {

struct ProgramId {
  std::string version, commit;  // empty: unknown
};

}  // namespace trireme::base
