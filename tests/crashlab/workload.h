// SPDX-License-Identifier: Apache-2.0
// The workload that runs on crashlab's disks, and the invariants of any disk that is left: no
// committed checkpoint is lost, no wrong byte is loaded, and nothing half-written has the name of a
// checkpoint.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/text/json.h"
#include "ckpt/disk/disk.h"
#include "ckpt/disk/memory_disk.h"
#include "ckpt/generation/small_generation_test.h"
#include "faults.h"

namespace trireme::crashlab {

constexpr const char* root = "/run";

// The promises, by the number of operations after which they were made.
class Promises {
 public:
  void committed(int64_t step, size_t operations) { events_.push_back({step, operations, true}); }
  // From now on the checkpoint may exist or not.
  void removing(int64_t step, size_t operations) { events_.push_back({step, operations, false}); }
  // Returns the steps that must exist after `operations` operations.
  std::vector<int64_t> at(size_t operations) const;

 private:
  struct Event {
    int64_t step;
    size_t operations;
    bool is_committed;
  };
  std::vector<Event> events_;
};

struct Workload {
  ckpt::SmallGeneration small;
  Fault fault = Fault::none;
  bool is_short = false;  // save, save, remove the old one
  uint64_t order = 0;     // order of the operations of ranks that write concurrently
};

// Saves twice, removes the old checkpoint, begins another, and the process dies; a new process
// cleans up and saves twice more. `operations` returns the number of operations on the disk below.
// A save that fails with IoError is abandoned and the next one is tried, as a trainer does.
Promises run(ckpt::Disk& disk, const Workload&, const std::function<size_t()>& operations);

// Returns what a loader with the workload's faults reads; nothing if there is no checkpoint.
struct Loaded {
  int64_t step = 0;
  std::vector<std::vector<float>> content;
  base::Json state;
};
std::optional<Loaded> load(ckpt::Disk&, const Workload&);

// Returns an empty string, or which invariant is broken: of the `promised` steps, the visible ones,
// or what is loaded.
std::string broken_promise(ckpt::Disk&, const std::vector<int64_t>& promised, const Workload&);

}  // namespace trireme::crashlab
