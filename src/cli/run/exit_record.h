// SPDX-License-Identifier: Apache-2.0
// ExitRecord: where a rank leaves its exit code for a launcher that did not start it, because the
// one that did has died (comm/world/rank_env.h).
#pragma once

namespace trireme::cli {

class ExitRecord {
 public:
  // Takes it from the environment, so that no child of this process has it. REQUIRES: no other
  // thread runs.
  ExitRecord();
  void leave(int exit_code) const;

 private:
  int file_ = -1;
  int slot_ = 0;
};

}  // namespace trireme::cli
