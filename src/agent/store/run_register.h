// SPDX-License-Identifier: Apache-2.0
// RunRegister: the register of a run (comm/register/), as the launcher of node 0 keeps it in the
// run's folder. It writes the record of every epoch before a rank enters that epoch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <span>
#include <string>

#include "agent/rules/placement.h"
#include "comm/register/journal_register.h"
#include "comm/register/run_record.h"

namespace trireme::agent {

class RunRegister {
 public:
  // Creates the folder if necessary. Throws IoError, also if another launcher has the register.
  explicit RunRegister(const std::filesystem::path& folder);
  // Removes what it created if the run has not begun in this folder.
  ~RunRegister();
  RunRegister(const RunRegister&) = delete;
  RunRegister& operator=(const RunRegister&) = delete;

  comm::Register& get() { return *register_; }

  // Who takes part in an epoch.
  struct Roles {
    const Placement& placement;
    std::span<const int> spares;  // by node
    std::set<int> fresh;          // ranks whose processes are new
    std::string reason;           // of the epoch
  };
  // Write the record of the first epoch of a start, or of the next one. Return its number in the
  // record, which grows over all jobs in the folder. Throw IoError.
  int64_t begin(const Roles& roles);
  int64_t next(const Roles& roles);

 private:
  comm::EpochChange change_to(const Roles& roles, const comm::RunRecord& before,
                              int64_t revision) const;

  const std::filesystem::path folder_;
  const bool is_own_folder_, is_own_journal_;
  std::unique_ptr<comm::JournalRegister> register_;
};

}  // namespace trireme::agent
