// SPDX-License-Identifier: Apache-2.0
// Health marks: what is known about the numbers in a checkpoint, as lines of marks.jsonl beside the
// checkpoints (docs/formats.md). A checkpoint itself never changes. This file has the lines as data
// and as text; health.h computes the mark of a checkpoint from them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace trireme::ckpt {

enum class Mark : uint8_t {
  good,     // enough later steps have passed without an alarm
  suspect,  // an alarm followed soon
  bad       // its numbers are wrong, and so are those of all checkpoints that continue it
};
std::string_view name_of(Mark);
std::optional<Mark> mark_from(std::string_view);

// A checkpoint of a run: its step, and the epoch of its writer (Writer::epoch). A run that went
// back saves a step a second time, in a later epoch.
struct GenerationId {
  int64_t step = 0, epoch = 0;
  bool operator==(const GenerationId&) const = default;
};

// A mark. The step need not be one of a checkpoint: a bad mark counts for those that follow it.
struct MarkLine {
  GenerationId of;
  Mark mark = Mark::good;
  std::string detector;  // who marked it: "steps", "divergence", "hand", ...
  std::string evidence;  // why, human-readable
  double time = 0;       // in seconds since 1970
  bool operator==(const MarkLine&) const = default;
};

// The run began to save in this epoch after it had continued from that step; -1: from the start.
struct ResumeLine {
  int64_t epoch = 0;
  int64_t step = -1;
  double time = 0;
  bool operator==(const ResumeLine&) const = default;
};

// In the order in which they were written.
using MarksLine = std::variant<MarkLine, ResumeLine>;
using Marks = std::vector<MarksLine>;

// The detector of marks that a person has given, and of those that follow from a divergence.
constexpr const char* hand_detector = "hand";
constexpr const char* divergence_detector = "divergence";
// That of good marks.
constexpr const char* steps_detector = "steps";

// Did the last attempt end because the numbers of the run diverged?
bool ended_in_divergence(const Marks&);

std::string to_text(const MarksLine&);  // one line, with its newline
// Returns the lines of a file; an incomplete last line, which a killed process leaves, is ignored.
// Throws IoError with `where`, the number of the line and what is wrong with it.
Marks parse_marks(std::string_view text, const std::string& where);

}  // namespace trireme::ckpt
