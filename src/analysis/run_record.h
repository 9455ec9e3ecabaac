// SPDX-License-Identifier: Apache-2.0
// RunRecord: everything that the folder of a run says about it, read from files only, so that a run
// that is alive, a run that died and a copied folder give the same answer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/text/json.h"
#include "obs/files/event.h"
#include "obs/files/phases.h"
#include "obs/files/table_file.h"

namespace trireme::analysis {

// A metric over steps, in the order of the steps; of repeated steps the last attempt's value.
struct Series {
  std::vector<int64_t> steps;
  std::vector<double> values;  // may be NaN or infinite
};

struct PhaseSpan {
  int64_t attempt = 0;
  double begin = 0, end = 0;  // seconds since 1970
  int64_t first_step = 0, last_step = 0;
  obs::PhaseSeconds seconds{};
};

enum class RunState : uint8_t { running, done, stopped, diverged, failed, died, unknown };
std::string_view name_of(RunState);

struct RunRecord {
  std::filesystem::path folder;
  std::string name, group;
  RunState state = RunState::unknown;
  base::Json config, plan, prediction;  // null if the file is missing
  int64_t last_step = 0, total_steps = 0, attempt = 0;
  double begin_time = 0, last_time = 0;
  std::map<std::string, Series> series;  // by tag, of lines of kind "train"
  std::vector<obs::Event> events;
  std::vector<PhaseSpan> phases;
  obs::TableShape ranks_shape;  // of the last attempt
  std::vector<obs::TableRecord> ranks;
  std::vector<std::string> problems;  // files that are missing or damaged, one line each
};

// Throws IoError if the folder holds no run. `now`: seconds since 1970, to judge whether the
// owner's lease has expired.
RunRecord read_run(const std::filesystem::path& folder, double now);

// Returns the record with the metrics, phases and records of ranks of steps [first, last] only.
RunRecord only_steps(RunRecord run, int64_t first, int64_t last);

}  // namespace trireme::analysis
