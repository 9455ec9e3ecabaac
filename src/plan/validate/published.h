// SPDX-License-Identifier: Apache-2.0
// Training runs that were published, one JSON object a line, as jobs that can be priced.
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

// What a published figure of memory counts.
enum class MemoryKind : uint8_t {
  allocated,  // handed out by the allocator
  reserved,   // held by the allocator
  device,     // taken on the device, as its driver reports it
  count
};

struct PublishedRun {
  std::string id, source;
  Job job;
  Layout layout;
  spec::Machine machine;
  Stack stack;
  // As measured, or arithmetic on what was. 0: not stated.
  double seconds = 0;
  double bytes = 0;
  MemoryKind memory_kind = MemoryKind::device;  // that `bytes` counts
  std::vector<std::string> taken;  // what the row leaves open, and what was taken for it
  std::string reason;              // why it cannot be priced; then only id and source count
};

// Returns the machine of a name as in machines/; throws ConfigError if there is none.
using FindMachine = std::function<spec::Machine(const std::string& name)>;
struct Finders {
  FindMachine machine;
  FindStack stack;
};

// One row. What is missing or not modelled is the run's reason; a row of another form throws
// ConfigError that begins with `where`.
PublishedRun published_run(const base::Json& row, const Finders&, const std::string& where);

// All rows of a file's text. `file` names it in messages.
std::vector<PublishedRun> published_runs(const std::string& text, const Finders&,
                                         const std::string& file);

}  // namespace trireme::plan
