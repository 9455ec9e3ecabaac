// SPDX-License-Identifier: Apache-2.0
// Shared by tests of a run's record: its spans of time, its events and its lines of metrics.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "analysis/ledger.h"
#include "tests/stops/stops_rig.h"

namespace trireme::tests {

// Writes the run of write_stops_run(), on the CPU.
void write_record_run(const Scratch&);

std::vector<base::Json> json_lines(const std::string& text);
// Returns the lines of kind "train" of run/metrics.jsonl.
std::vector<base::Json> train_lines(const Scratch&);
std::vector<obs::PhaseRecord> spans(const Scratch&);
std::vector<obs::Event> events_of(const Scratch&, obs::EventKind);
double seconds_of(const analysis::Ledger&, obs::Phase);

// Expects that the spans of run/ are contiguous from the first to the last, that those of every
// attempt sum to its time within 1 ms, that at most 1 % is unknown, and that ledger.json has what
// the spans give. Returns the ledger.
analysis::Ledger expect_closed(const Scratch&);

}  // namespace trireme::tests
