// SPDX-License-Identifier: Apache-2.0
// The identity of this build.
#pragma once

#include <string>

namespace trireme::base {

// Returns the linker's build id of the running program, in hexadecimal: it changes with the code
// and the compiler. Empty if the program has none.
std::string build_id();

}  // namespace trireme::base
