// SPDX-License-Identifier: Apache-2.0
// The output of the ranks of `trireme launch`: shows stdout of rank 0 and stderr of all ranks, with
// "[rank3]: " before the lines of ranks other than 0. After a failure, lines are held until the
// verdict is printed, so that the verdict comes first.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::agent {

class RankOutput {
 public:
  struct Options {
    bool shows_all = false;  // stdout of all ranks
    bool keeps_out = false;  // rank 0's stdout is kept and not printed
  };
  explicit RankOutput(const Options& options) : options_(options) {}

  void take(int rank, bool is_error, std::string_view line);
  void hold() { is_holding_ = true; }
  // Shows the held lines, without those that repeat `verdict`.
  void release(const std::string& verdict);
  // Returns the last error that the rank wrote to stderr; empty if there is none.
  std::string last_error(int rank) const;
  // Shows the last lines that the rank wrote to stderr.
  void show_last_lines(int rank);
  // Another process is this rank now: it has written no lines.
  void forget(int rank) { last_lines_.erase(rank); }
  const std::string& kept() const { return kept_; }

 private:
  struct Line {
    int rank;
    bool is_error;
    std::string text;
  };
  void show(const Line& line);

  const Options options_;
  bool is_holding_ = false;
  std::vector<Line> held_;
  std::map<int, std::deque<std::string>> last_lines_;
  std::string kept_;
};

}  // namespace trireme::agent
