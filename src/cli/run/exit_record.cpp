// SPDX-License-Identifier: Apache-2.0
#include "cli/run/exit_record.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "comm/world/rank_env.h"

namespace trireme::cli {

ExitRecord::ExitRecord() {
  const char* const text = std::getenv(comm::ending_variable);
  if (text == nullptr) return;
  if (std::sscanf(text, "%d/%d", &file_, &slot_) != 2 ||
      ::fcntl(file_, F_SETFD, FD_CLOEXEC) != 0) {
    file_ = -1;
  }
  ::unsetenv(comm::ending_variable);
}

void ExitRecord::leave(int exit_code) const {
  if (file_ < 0) return;
  const int32_t code = exit_code + 1;
  // A launcher that finds none takes the rank for killed.
  [[maybe_unused]] const ssize_t count =
      ::pwrite(file_, &code, sizeof(code), comm::ending_offset(slot_));
}

}  // namespace trireme::cli
