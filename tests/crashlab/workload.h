// SPDX-License-Identifier: Apache-2.0
// What is run on the disks of crashlab, and what must hold of any disk that is left: no committed
// generation is lost, no wrong byte is loaded, and nothing half-written has a generation's name.
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

// What was promised, by the number of operations after which it was.
class Promises {
 public:
  void committed(int64_t step, size_t operations) { events_.push_back({step, operations, true}); }
  // From now on the generation may be there or not.
  void removing(int64_t step, size_t operations) { events_.push_back({step, operations, false}); }
  // Steps that must be there after so many operations.
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
  uint64_t order = 0;     // of the operations of ranks that write at the same time
};

// Saves; saves; removes the old one; begins another, and the process dies; a new one cleans up and
// saves again, twice. `operations` says how many were made on the disk below. A save that fails
// with IoError is given up, and the next one tried, as a trainer does.
Promises run(ckpt::Disk& disk, const Workload&, const std::function<size_t()>& operations);

// What a loader with the workload's faults gets; nothing if there is no generation.
struct Loaded {
  int64_t step = 0;
  std::vector<std::vector<float>> content;
  base::Json state;
};
std::optional<Loaded> load(ckpt::Disk&, const Workload&);

// Empty, or what is broken: `promised` steps, those that are visible, and what is loaded.
std::string broken_promise(ckpt::Disk&, const std::vector<int64_t>& promised, const Workload&);

}  // namespace trireme::crashlab
