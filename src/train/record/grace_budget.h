// SPDX-License-Identifier: Apache-2.0
// GraceBudget: whether a run that is requested to stop saves within elastic.grace_s, the time until
// its machine is taken away. A stop takes a second until all ranks know of it, the step that is
// being computed, and the save; 5 s are kept in reserve. Weights are exported after that.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "obs/files/event.h"

namespace trireme::train {

class GraceBudget {
 public:
  static constexpr double settle_seconds = 1, reserve_seconds = 5;

  struct Line {
    std::string text;  // empty: there is nothing new to report
    bool is_warning = false;
  };

  // `grace_seconds`: 0: unknown, and every line is empty.
  explicit GraceBudget(double grace_seconds) : grace_(grace_seconds) {}

  // Returns the line of the start, for a run whose checkpoint will have `bytes` (0: it saves none).
  // The time of a save is predicted from the last one in `earlier`, the events of the run's earlier
  // attempts; without one the line says that the first save is measured.
  Line start(int64_t bytes, std::span<const obs::Event> earlier);
  // A save has become durable after `save_seconds`; a step takes `step_seconds`, 0: unknown.
  // Returns a line for the first save, and for one that does not fit after one that did.
  Line saved(double save_seconds, double step_seconds);

 private:
  Line line(double save_seconds, double step_seconds, const std::string& source) const;

  double grace_;
  bool has_measured_ = false, fitted_ = false;  // by the last save
};

}  // namespace trireme::train
