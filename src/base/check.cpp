// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace trireme::base {

void check_failed(const char* condition, const char* file, int line,
                  const std::string& message) noexcept {
  std::fprintf(stderr, "trireme: CHECK failed at %s:%d: %s: %s\n", file, line, condition,
               message.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace trireme::base
