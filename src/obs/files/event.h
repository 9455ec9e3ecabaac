// SPDX-License-Identifier: Apache-2.0
// Events of a run: what happened, when, where, and with which evidence. events.jsonl has one JSON
// object per line with the fields below; absent fields are left out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/json.h"

namespace trireme::obs {

enum class EventKind : uint8_t {
  start,       // an attempt begins; data: ranks, resumed_from
  resume,      // a checkpoint was loaded; data: step, discarded_steps
  validation,  // data: loss
  checkpoint,  // a checkpoint is durable; data: bytes, stall_seconds, durable_seconds
  save_failed,
  exported,       // weights were written
  export_failed,  // the reason is in the text
  skip,           // a step was skipped; data: grad_norm, running_norm
  loss_scale,     // the loss scale fell; data: from, to
  spike,
  rollback,
  replan,     // the engine was rebuilt: another phase, a larger row budget
  straggler,  // data: rank, share
  verdict,    // a rank failed; data: rank, reason
  alert,      // a rule of alerts.* became true; data: rule
  preempt,    // a stop was requested
  hardware,   // XID, ECC, throttling
  numerics,   // 8-bit numbers: data: what ("alarm", "fallback", "return", "kept"), blocks,
              // growth_bits
  notice,     // this machine is about to be taken away; data: source, what
  recovered,  // the first new step after the loss of a rank; data: ranks, seconds by part
  end,        // the attempt ends; data: reason: "done", "stopped", "diverged", or "failed" if the
              // exit code is none of theirs
  count
};
std::string_view name_of(EventKind);
std::optional<EventKind> event_kind_from(std::string_view);

enum class Severity : uint8_t { info, warning, error };
std::string_view name_of(Severity);

struct Event {
  double time = 0;  // seconds since 1970
  int64_t step = -1;
  int64_t attempt = 0;
  int64_t epoch = 0;  // how often the run's folder changed its owner
  EventKind kind = EventKind::start;
  Severity severity = Severity::info;
  std::string node;
  int rank = -1;
  std::string device;
  std::string text;  // human-readable, one line
  base::Json data = base::Json::object();
  std::vector<std::string> evidence;  // paths relative to the run's folder
};
base::Json to_json(const Event&);
// Returns nothing for a line that is no event. Unknown kinds are kept out, unknown fields ignored.
std::optional<Event> event_from(const base::Json&);

}  // namespace trireme::obs
