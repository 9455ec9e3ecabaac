// SPDX-License-Identifier: Apache-2.0
// RunRecord: the value of a run's register (register.h): which processes are the ranks of the
// present epoch, from where they resume, and which checkpoint was committed last. A process acts on
// a record only after the register has reported it. Pure, except own_incarnation().
//
// next_epoch() and commit() return the value that a swap should put in the place of the present
// one. Since a swap is done only if the register still has the present one, there is one record of
// an epoch, and a process of a lower epoch commits nothing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace trireme::comm {

// A process. No two ever have the same incarnation, also on one node after a restart.
struct RunMember {
  std::string node;
  std::string incarnation;
  bool operator==(const RunMember&) const = default;
};

struct ResumePoint {
  int64_t step = 0;    // the steps that are done
  std::string source;  // where the state of that step is, for example "memory" or a checkpoint
  bool operator==(const ResumePoint&) const = default;
};

struct CommitPoint {
  int64_t step = -1, epoch = -1;  // -1: nothing was committed
  bool operator==(const CommitPoint&) const = default;
};

struct RunRecord {
  std::string run;
  int64_t epoch = 0;
  std::vector<RunMember> members;  // by slot
  std::vector<RunMember> spares;
  std::string plan_digest;
  std::string layout;
  ResumePoint resume;
  std::string reason;  // why this epoch was formed
  CommitPoint last_commit;
  bool operator==(const RunRecord&) const = default;

  // Returns the slot of the process; -1: it has none.
  int slot_of(std::string_view incarnation) const;
};

// JSON on one line.
std::string to_text(const RunRecord&);
// Throws IoError, which names the key that is missing, unknown or of another type.
RunRecord run_record_from(std::string_view text);

// What an epoch decides.
struct EpochChange {
  int64_t seen_epoch = -1;  // the present one, as the proposer knows it
  std::vector<RunMember> members;
  std::vector<RunMember> spares;
  std::string plan_digest;
  std::string layout;
  ResumePoint resume;
  std::string reason;
};

// The record of epoch 0, for a register that is empty; `seen_epoch` is -1.
base::Result<RunRecord> first_epoch(const std::string& run, const EpochChange&);
// The record of a job that is started after another one in the same folder, `before`. Its epoch is
// higher, so that processes of the other one commit nothing; it may resume from anywhere.
base::Result<RunRecord> next_start(const RunRecord& before, const std::string& run,
                                   const EpochChange&);
// None if a newer epoch has begun than the proposer knows, if there are no members, if a process
// would be in two places, or if it would resume from before the last commit.
base::Result<RunRecord> next_epoch(const RunRecord& now, const EpochChange&);
// From where an epoch resumes, as its ranks have found. A commit that none of them can use is the
// last one no more. None if the epoch is not the present one.
base::Result<RunRecord> resumed(const RunRecord& now, int64_t epoch, const ResumePoint&);
// None if the epoch of the process that commits is not the present one, or the step is not after
// the last commit.
base::Result<RunRecord> commit(const RunRecord& now, int64_t step, int64_t epoch);

// Returns what distinguishes this process from all others: the boot of its host, the start of the
// process, and 64 random bits. It is the same in all calls.
const std::string& own_incarnation();

}  // namespace trireme::comm
