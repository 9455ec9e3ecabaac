// SPDX-License-Identifier: Apache-2.0
// RunMarks: the marks that a run writes beside its checkpoints. On the first rank; one thread.
//
// A mark that cannot be written, on a full disk for example, is dropped with a warning: training
// goes on, and the checkpoint counts as not marked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "ckpt/generation/folder.h"
#include "train/checkpointing/marks/mark_watch.h"

namespace trireme::train {

class RunMarks {
 public:
  struct Options {
    std::filesystem::path folder;                 // of the checkpoints
    int64_t good_after = 200;                     // steps
    ckpt::Guard guard;                            // throws Fenced once another process has the run
    std::function<void(const std::string&)> log;  // a human-readable log line
  };
  explicit RunMarks(Options options);

  // The run continues in this epoch after `step`; -1: it begins. Newer checkpoints were moved
  // aside. Throws IoError if the folder or its marks cannot be read, or the first line not written.
  void begin(int64_t epoch, int64_t step);
  void saved(int64_t step);
  void end_step(int64_t step, const std::optional<StepAlarm>& alarm);
  // The numbers of the run have diverged: the state after `first_bad` and all later ones are bad.
  void diverged(int64_t first_bad, const std::string& why);

 private:
  // Writes marks of checkpoints that have none: one that was given by hand meanwhile stays.
  void add(std::vector<ckpt::MarkLine> lines);
  void write(const std::vector<ckpt::MarkLine>& lines);
  void append(ckpt::Marks lines) const;  // throws Fenced and IoError

  const Options options_;
  MarkWatch watch_;
  int64_t epoch_ = 0;
};

}  // namespace trireme::train
