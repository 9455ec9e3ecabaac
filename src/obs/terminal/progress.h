// SPDX-License-Identifier: Apache-2.0
// Progress of a long job: on a terminal one live line that is redrawn,
//   train [########--------]  50%  500/1,000 steps  2.5/s  ETA 3:20  loss 4.72
// (a narrow terminal omits the bar, then the note, the rate and the count, never share and ETA),
// otherwise a plain line from time to time. Log lines must be printed by log(), which keeps the
// live line below them. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "obs/clock.h"

namespace trireme::obs {

struct ProgressOptions {
  std::string label;                               // "train"
  std::string unit;                                // "steps"
  int64_t total = 0;                               // 0: unknown, then there is no bar and no ETA
  int64_t done = 0;                                // before this run, if it continues another
  bool is_live = false;                            // on a terminal
  bool has_escapes = true;                         // live: the terminal supports escape codes
  std::function<int()> width = [] { return 80; };  // columns; called for every redraw
  double redraw_seconds = 0.1;                     // live: at most this often
  double plain_seconds = 30;                       // otherwise: a line this often
  Clock clock = steady_seconds;
  std::function<void(std::string_view)> write;  // prints the text; required
};

class Progress {
 public:
  explicit Progress(ProgressOptions options);
  // Ends the live line if finish() was not called, so that later output starts on a new line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // The work begins now with `done` already completed: rate and ETA are measured from now on.
  void begin(int64_t done);
  // The work waited so long for something else since the last update: the rate leaves it out, the
  // ETA does not.
  void exclude(double seconds) { waited_seconds_ += seconds; }
  // `done` counts from 0 to total; `note` is shown at the end of the line ("loss 4.72").
  void update(int64_t done, std::string_view note = {});
  // Prints `text` and a newline above the live line.
  void log(std::string_view text);
  // Draws the final state and ends the line.
  void finish();

 private:
  std::string text(int columns) const;
  void draw();
  std::string erasure() const;  // the text that erases the line on the screen

  ProgressOptions options_;
  double start_seconds_;
  double drawn_seconds_;
  double updated_seconds_;                           // by the clock
  double waited_seconds_ = 0, excluded_seconds_ = 0;  // since the last update, and before it
  int64_t first_done_, done_;
  std::string note_;
  int drawn_columns_ = 0;
  bool is_drawn_ = false;  // the live line is on the screen
  bool is_finished_ = false;
};

}  // namespace trireme::obs
