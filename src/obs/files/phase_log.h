// SPDX-License-Identifier: Apache-2.0
// PhaseLog: writes and reads phases.jsonl of a run, one object per span,
//   {"attempt":2,"begin":...,"end":...,"first_step":11,"last_step":20,"seconds":{"useful":1.9},
//    "tokens":{"trained":20000,"padding":480},"skipped_steps":1,"current":"useful"}
// Fields without a value are left out.
// The spans of a run are contiguous: the first span of an attempt begins where the last span of the
// attempt before it ends, and contains the time between the two.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "base/text/json_fwd.h"
#include "obs/files/phases.h"
#include "obs/report_file.h"

namespace trireme::obs {

// Tokens of steps. Those of a step are in `trained`, `masked` and `padding`, unless the step was
// skipped or repeated: then all of them are in that field.
struct TokenCounts {
  int64_t trained = 0;  // with a label
  int64_t masked = 0;   // in a document, without a label
  int64_t padding = 0;  // in no document
  int64_t skipped = 0;
  int64_t repeated = 0;

  TokenCounts& operator+=(const TokenCounts&);
  bool operator==(const TokenCounts&) const = default;
};

struct PhaseRecord {
  int64_t attempt = 0;
  double begin = 0, end = 0;              // seconds since 1970
  int64_t first_step = 0, last_step = 0;  // that ended in the span; 0: none
  PhaseSeconds seconds{};
  TokenCounts tokens;
  int64_t skipped_steps = 0;
  Phase current = Phase::unknown;  // at the end of the span
  // The attempt was killed, and the next one wrote this span, up to the last sign of life.
  bool is_of_next = false;

  double sum() const;  // of `seconds`
  double& at(Phase phase) { return seconds[static_cast<size_t>(phase)]; }
  double at(Phase phase) const { return seconds[static_cast<size_t>(phase)]; }
};
std::string line_of(const PhaseRecord&);  // ends with a newline
// Returns nothing for a line that is no span. Classes of later builds count as unknown.
std::optional<PhaseRecord> phase_record_from(const base::Json&);

class PhaseLog {
 public:
  static constexpr const char* file_name = "phases.jsonl";
  // Appends to an existing file, after removing an incomplete last line of a killed process. Throws
  // IoError if it cannot be opened.
  explicit PhaseLog(const std::filesystem::path& folder);
  void add(const PhaseRecord&);

 private:
  ReportFile file_;
};

// Calls `record` for every span of a run's folder in the order of the file; not at all if there is
// no such file. Returns the number of complete lines that are no spans.
int64_t read_phases(const std::filesystem::path& folder,
                    const std::function<void(const PhaseRecord&)>& record);

base::Json to_json(const TokenCounts&);
base::Json to_json(const PhaseSeconds&);  // classes with time only

}  // namespace trireme::obs
