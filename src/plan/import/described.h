// SPDX-License-Identifier: Apache-2.0
// Described: a job, and perhaps a layout, as the files of another program describe it. The readers
// are plan/import/from_megatron.h, plan/import/from_torchtitan.h and plan/import/from_hf.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/job.h"
#include "plan/stack.h"
#include "spec/model.h"

namespace trireme::plan {

constexpr int64_t max_described_gpus = int64_t{1} << 24;

struct Described {
  Job job;  // global_batch is 0 where nothing says what it is
  // None: the description is of a model alone.
  std::optional<Layout> layout;
  Stack stack;  // that of the program, with what the description switches on or off
  // The model by its sizes, if Trireme can train it; the same as job.model where both are.
  std::optional<spec::ModelDims> dims;
  int64_t gpus = 0;  // 0: not stated; then layout->data_ranks() is 1 and stands for nothing
  std::vector<std::string> taken;    // what was left open, or is not modelled, and what was taken
  std::vector<std::string> ignored;  // flags or keys that were not looked at
};

}  // namespace trireme::plan
