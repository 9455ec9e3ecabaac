// SPDX-License-Identifier: Apache-2.0
// What the ranks of `trireme launch` say, and what of it is shown: stdout of rank 0, stderr of all,
// with "[rank3]: " before the lines of others. Once something went wrong lines are held until the
// verdict has been told, so that it stands on top.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::cli {

class LaunchOutput {
 public:
  struct Options {
    bool shows_all = false;  // stdout of all ranks
    bool keeps_out = false;  // rank 0's stdout is kept and not printed
  };
  explicit LaunchOutput(const Options& options) : options_(options) {}

  void take(int rank, bool is_error, std::string_view line);
  void hold() { is_holding_ = true; }
  // Shows what was held, without lines that repeat `verdict`.
  void release(const std::string& verdict);
  // The last lines that the rank said on stderr.
  void show_last_words(int rank);
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
  std::map<int, std::deque<std::string>> last_words_;
  std::string kept_;
};

}  // namespace trireme::cli
