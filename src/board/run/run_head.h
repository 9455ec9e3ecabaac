// SPDX-License-Identifier: Apache-2.0
// RunHead: the last values of a run and a short curve of its loss, for lists of many runs. Of a
// long metrics.jsonl it reads samples and the end, then only what is appended, so that its time and
// memory do not depend on the number of steps.
//
// One thread calls poll(); const functions may be called by several threads, but not during poll().
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "board/series/line_scanner.h"
#include "board/series/line_tail.h"

namespace trireme::board {

class RunHead {
 public:
  explicit RunHead(std::filesystem::path metrics_file);

  // Returns whether anything has changed.
  bool poll();

  struct Point {
    int64_t step = 0;
    double loss = 0;  // may be NaN or infinite
  };
  // Returns at most max_points points, of which the last is the last step.
  std::vector<Point> curve() const;
  // The value of a tag at its last line that was read; none if no line had it.
  std::optional<double> last_value(std::string_view tag) const;

  int64_t last_step() const { return last_step_; }  // of lines of kind "train"; -1: none
  int64_t last_attempt() const { return last_attempt_; }
  double last_time() const { return last_time_; }
  int64_t bytes() const { return tail_.offset(); }
  int64_t restarts() const { return restarts_; }
  bool has_lines() const { return has_lines_; }

  static constexpr const char* loss_tag = "loss_metrics/global_avg_loss";
  static constexpr const char* validation_tag = "validation_metrics/loss";
  // A longer file is sampled.
  static constexpr int64_t max_whole_bytes = 256 << 10;
  static constexpr size_t max_points = 96;

 private:
  void clear();
  void sample();
  void add_line(std::string_view line, bool is_sample);
  void add_point(const Point& point);

  LineTail tail_;
  LineScanner scanner_;
  ScannedLine line_;                         // storage that is used again
  std::vector<std::optional<double>> last_;  // by tag
  std::vector<Point> points_;                // with ascending steps, about as far from each other
  std::optional<Point> end_;                 // the last point, if it is not in points_
  int64_t last_step_ = -1, last_attempt_ = 0, restarts_ = 0;
  double last_time_ = 0;
  bool has_lines_ = false, is_begun_ = false;
};

}  // namespace trireme::board
