// SPDX-License-Identifier: Apache-2.0
// Progress of a verb on stderr: a live line on a terminal, plain lines elsewhere, and none there in
// the first two seconds.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "cli/shell/terminal_style.h"
#include "obs/terminal/progress.h"

namespace trireme::cli {

class Progress {
 public:
  Progress(std::string label, std::string unit, int64_t total);
  void begin(int64_t done);  // see obs::Progress
  void update(int64_t done, std::string_view note = {});
  void exclude(double seconds) { progress_.exclude(seconds); }  // see obs::Progress
  // Prints a human-readable log line above the live line.
  void line(std::string_view text);
  void finish();

 private:
  Progress(std::string label, std::string unit, int64_t total, const TerminalStyle& style);

  double begin_seconds_;
  bool is_shown_;
  obs::Progress progress_;
};

}  // namespace trireme::cli
