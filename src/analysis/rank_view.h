// SPDX-License-Identifier: Apache-2.0
// RankView: the records of ranks.bin as windows of steps, without the steps that warm up. A window
// merges records until it has enough steps for its means to be comparable.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/run_record.h"
#include "obs/files/rank_columns.h"

namespace trireme::analysis {

struct RankCoord {
  int pp = 0, dp = 0, zero = 0, cp = 0, tp = 0;
};

struct StepWindow {
  int64_t first_step = 0, last_step = 0;
  double steps = 0;        // measured
  double seconds = 0;      // of these steps
  bool has_break = false;  // a validation, a checkpoint or an export is among these steps
};

// What ranks wait for each other along.
enum class WaitAxis : uint8_t { tp, cp, ep, data, pp, closing, count };
std::string_view name_of(WaitAxis);
obs::RankColumn wait_column(WaitAxis);

class RankView {
 public:
  // The newest windows are kept: older ones only cost time. `run` must outlive the view.
  static constexpr size_t max_windows = 600;
  // Windows have at least so many steps and seconds.
  RankView(const RunRecord& run, int64_t min_steps, double min_seconds = 0);

  size_t ranks() const { return ranks_; }
  size_t windows() const { return windows_.size(); }
  const StepWindow& window(size_t index) const { return windows_[index]; }
  // NaN if the file has no such value.
  double at(size_t window, size_t rank, obs::RankColumn column) const;
  // The values of all windows of a rank.
  std::vector<double> column(size_t rank, obs::RankColumn column) const;
  // The median over all windows and ranks.
  double typical(obs::RankColumn column) const;
  bool has(obs::RankColumn column) const;  // some value is finite

  const RankCoord& coord(size_t rank) const { return coords_[rank]; }
  std::string node(size_t rank) const;              // empty: unknown
  bool is_cpu(size_t rank) const;                   // it computes on processors of its host
  std::vector<std::vector<size_t>> stages() const;  // ranks by pp coordinate
  // The groups of ranks that wait for each other along an axis; groups of one rank are left out.
  std::vector<std::vector<size_t>> groups(WaitAxis axis) const;
  // Returns "rank 3", with its coordinates if there are several axes, and its node.
  std::string rank_text(size_t rank) const;

 private:
  void add_record(const obs::TableRecord& record, const StepWindow& steps);
  bool is_complete(const StepWindow& window) const;

  size_t ranks_ = 0;
  double min_steps_, min_seconds_;
  std::vector<int> place_of_;  // by RankColumn: the column in the file; -1: not there
  std::vector<StepWindow> windows_;
  std::vector<std::vector<double>> values_;  // by window: [rank][RankColumn]
  std::vector<RankCoord> coords_;
  std::vector<std::string> nodes_, devices_;
};

}  // namespace trireme::analysis
