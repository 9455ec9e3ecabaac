// SPDX-License-Identifier: Apache-2.0
// ControlSignals: requests from outside to stop or to save a run. A request to one rank holds for
// all: ranks exchange their requests about once a second, between steps, at steps that all ranks
// compute beforehand.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "obs/files/rank_columns.h"
#include "train/setup/rank.h"

namespace trireme::train {

struct Request {
  bool stop = false, save = false;
  bool is_fenced = false;  // another process has taken the run's folder over
  // A step that a rank has repeated with other samples, and the first such rank; 0: there is none.
  int64_t other_samples_step = 0;
  int other_samples_rank = 0;
};

// What a rank has noticed itself, for an exchange.
struct Noticed {
  bool is_fenced = false;
  int64_t other_samples_step = 0;
};

class ControlSignals {
 public:
  // Flags that signal handlers set; may be null. `save` is cleared when the request was accepted.
  ControlSignals(const std::atomic<bool>* stop, std::atomic<bool>* save);

  // True if ranks must exchange requests after this step at the latest; they may do so earlier, if
  // all do. The same on all ranks; a rank that is alone exchanges after every step.
  bool is_due(int64_t step) const { return step >= next_step_; }
  // Returns the union of all ranks' requests. REQUIRES: `step` is above that of the last call.
  // `sample`: what this rank reports about the last steps; null on all ranks or on none.
  // Collective.
  Request exchange(Rank&, int64_t step, const Noticed&, const obs::RankSample* sample = nullptr);
  // Returns the samples of the last exchange, by rank; empty if there were none.
  std::span<obs::RankSample> samples() { return samples_; }
  // The next step will be `step`, which may be below that of the last exchange.
  void go_back(int64_t step) {
    exchanged_step_ = step - 1;
    next_step_ = step;
  }

 private:
  const std::atomic<bool>* stop_;
  std::atomic<bool>* save_;
  double exchanged_seconds_;  // when ranks last exchanged requests
  int64_t exchanged_step_ = 0, next_step_ = 1;
  std::vector<obs::RankSample> samples_;
};

}  // namespace trireme::train
