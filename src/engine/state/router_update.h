// SPDX-License-Identifier: Apache-2.0
// RouterUpdate: what the routers of a rank's mixture-of-experts layers do once in a step: their
// statistics begin at zero, an overflow stops the step, and their biases follow the loads.
#pragma once

#include <span>
#include <vector>

#include "device/device.h"
#include "engine/state/train_state.h"
#include "spec/experts/router.h"
#include "spec/plan.h"

namespace trireme::engine {

class RouterUpdate {
 public:
  // The references must outlive it.
  RouterUpdate(const spec::ModelSpec&, const spec::Plan&, int pp_rank, const TrainState&,
               device::Stream& compute);

  // ---- in this order, on the compute stream
  void begin_step();
  // Adds the rank's overflow to the step's sums, unless the plan drops such pairs. Before sums and
  // statistics of ranks are merged.
  void count_overflow(device::Tensor sums);
  // After statistics were merged and step_control has decided.
  void update_biases(device::ConstTensor step_state);

  // Statistics of one layer after the last step, of all ranks with the layer.
  struct LayerStats {
    int layer = 0;  // of the model
    spec::RouterStats at;
    std::vector<float> stats;
    float fill = 0;           // rows of the fullest block of rows that a rank sent to another
    std::vector<float> bias;  // empty: the router has none
  };
  // Waits for the device.
  std::vector<LayerStats> read() const;

 private:
  struct Router {
    int layer = 0;
    spec::MoeSpec moe;
    device::Tensor stats, fill, bias;  // bias: empty if there is none
  };
  device::Stream& compute_;
  bool is_strict_;
  std::vector<Router> routers_;
};

}  // namespace trireme::engine
