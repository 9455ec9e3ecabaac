// SPDX-License-Identifier: Apache-2.0
// StepSignals: what is known about one step on every rank after its closing gather. The device
// writes them, and the host reads them later, without waiting (Engine::take_signals).
#pragma once

#include <cstdint>
#include <vector>

namespace trireme::engine {

struct StepSignals {
  int64_t index = 0;                                   // among the steps of this engine, from 0
  double mean_loss = 0;                                // nats per valid token, of all data ranks
  double loss_min = 0, loss_median = 0, loss_max = 0;  // of the data ranks' mean losses
  float grad_norm = 0;                                 // of the mean loss, before clipping
  float clip_limit = 0;
  float learning_rate = 0;
  // The norm of the last update before this step was closed: that of the step before. Unknown, and
  // 0, if `index` is 0.
  float update_norm = 0;
  float loss_scale = 0;   // of this step; 0: the recipe has none
  float next_loss_scale = 0;  // of the step after it
  bool was_skipped = false, was_clipped = false;
  int64_t overflow = 0;  // above 0: the step was not run (StepReport::overflow)
  int64_t tokens = 0, masked = 0, padding = 0;  // with a label; in a document without; in none
  std::vector<float> layer_grad_norms;          // by layer of the model, of the mean loss
};

}  // namespace trireme::engine
