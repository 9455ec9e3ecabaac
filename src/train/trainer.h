// SPDX-License-Identifier: Apache-2.0
// Trainer: a whole run from a configuration: data, steps, validation, metrics, weights.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "obs/curve.h"
#include "obs/run_dir.h"
#include "spec/plan.h"

namespace trireme::train {

// What a run tells the outside, and is told by it. Every member may be left empty.
struct TrainHooks {
  std::function<void(std::string_view)> line;                         // a line for people
  std::function<void(int64_t done, std::string_view note)> progress;  // after every step
  const std::atomic<bool>* stop = nullptr;  // true: finish the step, save, return
  std::atomic<bool>* save = nullptr;        // true: save after this step; set back to false
};

struct TrainSummary {
  int64_t steps = 0, tokens = 0, skipped_steps = 0;
  int64_t parameters = 0;
  double seconds = 0;            // of training steps, without start-up, validation and saving
  double tokens_per_second = 0;  // median over logged stretches
  double loss = 0;               // of the last step
  std::optional<double> validation_loss;
  std::optional<double> mfu, hfu;
  bool was_stopped = false;
  spec::MemoryTable predicted, measured;
  std::filesystem::path run_folder, weights;  // weights: empty if none were saved
  std::vector<obs::CurvePoint> loss_curve, validation_curve;
};

// Throws ConfigError or IoError before anything is trained if data, model or folders do not fit.
TrainSummary train(const config::Config&, obs::RunMode, const TrainHooks&);

// Predicted and measured bytes side by side, as a table.
std::string memory_table_text(const spec::MemoryTable& predicted,
                              const spec::MemoryTable& measured);

}  // namespace trireme::train
