// SPDX-License-Identifier: Apache-2.0
// EpochWriter: what the first rank of an epoch writes to the record of its run (run_record.h): from
// where the epoch resumes, and which checkpoint it commits. Any thread may call, one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "comm/register/register.h"
#include "comm/register/run_record.h"
#include "comm/store/store.h"

namespace trireme::comm {

// In the store of an epoch: its number in the record. Set by the launcher that keeps the register.
inline const std::string record_epoch_key = "record_epoch";

class EpochWriter {
 public:
  // `epoch`: its number in the record.
  EpochWriter(std::unique_ptr<Store> store, int64_t epoch);
  // For a handle that has entered an epoch; null: its launcher keeps no register.
  static std::unique_ptr<EpochWriter> of(Store& epoch_store);

  // All of them throw Fenced if another epoch has begun, IoError if the register cannot write, and
  // CommAborted if it was not reached.
  void resumed(const ResumePoint& point);
  // The checkpoint of this step may be committed. Called before that becomes visible.
  void commit(int64_t step);

 private:
  void change(const std::function<base::Result<RunRecord>(const RunRecord&)>& next);

  std::unique_ptr<Store> store_;
  std::unique_ptr<Register> register_;
  const int64_t epoch_;
  int64_t swaps_ = 0;
};

}  // namespace trireme::comm
