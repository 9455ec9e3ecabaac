// SPDX-License-Identifier: Apache-2.0
// Which build this is.
#pragma once

#include <string>

namespace trireme::base {

// The linker's build id of the running program, in hexadecimal: it differs whenever code or
// compiler do. Empty where the program has none.
std::string build_id();

}  // namespace trireme::base
