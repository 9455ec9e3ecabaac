// SPDX-License-Identifier: Apache-2.0
// Progress of a long job: on a terminal one live line that is drawn over itself,
//   train [########--------]  50%  500/1,000 steps  2.5/s  ETA 3:20  loss 4.72
// (where it is narrow without bar, then note, then rate, then count; share and ETA stay),
// elsewhere a plain line every so often. Log lines go through line(), which keeps the live line
// below them. One thread at a time.
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
  int64_t total = 0;                               // 0: not known, then there is no bar and no ETA
  int64_t done = 0;                                // before this run, when it continues another
  bool is_live = false;                            // a terminal
  bool has_escapes = true;                         // live: the terminal may be sent escape codes
  std::function<int()> width = [] { return 80; };  // columns; asked at every drawing
  double redraw_seconds = 0.1;                     // live: at most this often
  double plain_seconds = 30;                       // elsewhere: a line this often
  Clock clock = steady_seconds;
  std::function<void(std::string_view)> write;  // where it goes; required
};

class Progress {
 public:
  explicit Progress(ProgressOptions options);
  // Ends the live line if finish() was not called, so that what follows starts on a line of its
  // own.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // The work begins here with `done` behind it: rate and ETA count from now on.
  void begin(int64_t done);
  // `done` counts from 0 to total; `note` stands at the end of the line ("loss 4.72").
  void update(int64_t done, std::string_view note = {});
  // Prints `text` and a newline above the live line.
  void line(std::string_view text);
  // Draws the last state once more and ends the line.
  void finish();

 private:
  std::string text(int columns) const;
  void draw();
  std::string erasure() const;  // what removes the line that is on the screen

  ProgressOptions options_;
  double start_seconds_;
  double drawn_seconds_;
  int64_t first_done_, done_;
  std::string note_;
  int drawn_columns_ = 0;
  bool is_drawn_ = false;  // the live line stands on the screen
  bool is_finished_ = false;
};

}  // namespace trireme::obs
