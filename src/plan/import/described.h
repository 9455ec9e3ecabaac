// SPDX-License-Identifier: Apache-2.0
// Described is a job, and perhaps a layout, read from the files of another program. The readers are
// plan/import/from_megatron.h, plan/import/from_torchtitan.h and plan/import/from_hf.h.
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
  Job job;  // global_batch is 0 if the files do not state it
  // None if the files describe only a model.
  std::optional<Layout> layout;
  Stack stack;  // the program's stack, with the features that the files switch on or off
  // The sizes of job.model, if Trireme can train it.
  std::optional<spec::ModelDims> dims;
  int64_t gpus = 0;  // 0: not stated; then layout->data_ranks() is 1 and has no meaning
  std::vector<std::string> assumed;  // values for settings that are not stated or not modelled
  // The same for settings that change time or memory, but not what is computed.
  std::vector<std::string> assumed_speed;
  std::vector<std::string> ignored;  // flags or keys that were not read
};

}  // namespace trireme::plan
