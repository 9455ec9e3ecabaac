// SPDX-License-Identifier: Apache-2.0
// EpochWriter: what the first rank of an epoch writes to the record of its run (run_record.h): from
// where the epoch resumes, and which checkpoint it commits. Any thread may call, one at a time.
//
// It asks the launcher that keeps the register. If this one has ended, and no other process has
// opened its journal since, the ranks that save before they end open it themselves.
#pragma once

#include <cstdint>
#include <filesystem>
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
  // `epoch`: its number in the record. `folder`: of the journal; empty: it is not opened.
  EpochWriter(std::unique_ptr<Store> store, int64_t epoch, std::filesystem::path folder);
  // For a handle that has entered an epoch; null: its launcher keeps no register.
  static std::unique_ptr<EpochWriter> of(Store& epoch_store, std::filesystem::path folder);

  // All of them throw Fenced if another epoch has begun, IoError if the register cannot write, and
  // CommAborted if neither the launcher was reached nor its journal is there.
  void resumed(const ResumePoint& point);
  // The checkpoint of this step may be committed. Called before that becomes visible.
  void commit(int64_t step);

 private:
  using Next = std::function<base::Result<RunRecord>(const RunRecord&)>;
  void change(const Next& next);
  void change_in(Register& of, const Next& next) const;

  std::unique_ptr<Store> store_;
  std::unique_ptr<Register> register_;
  const int64_t epoch_;
  const std::filesystem::path folder_;
};

}  // namespace trireme::comm
