// SPDX-License-Identifier: Apache-2.0
// Reads published training runs, one JSON object per line, as jobs that can be priced.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/text/json_fwd.h"
#include "plan/job.h"
#include "plan/stack.h"
#include "spec/machine.h"

namespace trireme::plan {

// What a published memory figure counts.
enum class MemoryKind : uint8_t {
  allocated,  // allocated tensors
  reserved,   // held by the allocator
  device,     // used on the device, as its driver reports it
  count
};

struct PublishedRun {
  std::string id, source;
  Job job;
  Layout layout;
  spec::Machine machine;
  Stack stack;
  // Measured, or derived from measured values. 0: not stated.
  double seconds = 0;
  double bytes = 0;
  MemoryKind memory_kind = MemoryKind::device;  // what `bytes` counts
  std::vector<std::string> assumed;             // values that the row does not state
  std::string reason;  // why the run cannot be priced; if set, only id and source are valid
};

// Returns the machine with a name as in machines/; throws ConfigError if none has it.
using FindMachine = std::function<spec::Machine(const std::string& name)>;
struct Finders {
  FindMachine machine;
  FindStack stack;
};

// Reads one row. If a value is missing or not modelled, the run has a reason. A malformed row
// throws ConfigError that begins with `where`.
PublishedRun published_run(const base::Json& row, const Finders&, const std::string& where);

// Reads all rows of a file's text. `file` is its name in messages.
std::vector<PublishedRun> published_runs(const std::string& text, const Finders&,
                                         const std::string& file);

}  // namespace trireme::plan
