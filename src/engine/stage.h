// SPDX-License-Identifier: Apache-2.0
// Stage: consecutive layers of the model on one rank, with their buckets, stash and constants. It
// carries out the actions of a schedule for its layers by walking scripts, and knows neither
// schedule nor optimizer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/memory.h"
#include "engine/bucket.h"
#include "engine/input.h"
#include "engine/script.h"
#include "engine/stash_pools.h"
#include "nn/layer.h"
#include "spec/plan.h"

namespace trireme::engine {

// Memory that a stage takes its parts from, one arena per purpose.
struct StageMemory {
  device::Arena& params;
  device::Arena& grads;
  device::Arena& scratch;
};

class Stage {
 public:
  Stage(const spec::ModelSpec&, const spec::Plan&, int stage, const spec::Backend&, device::Device&,
        device::Stream& setup, const StageMemory&);

  std::vector<Bucket>& buckets() { return buckets_; }
  const StashPools& stash() const { return stash_; }
  int layers() const { return static_cast<int>(layers_.size()); }

  void zero_grads(device::Stream&);

  void forward(device::Stream&, int microbatch, const Microbatch&, nn::StepSink&);
  void backward(device::Stream&, int microbatch, const Microbatch&, nn::StepSink&);
  void backward_input(device::Stream&, int microbatch, const Microbatch&, nn::StepSink&);
  void backward_weight(device::Stream&, int microbatch, const Microbatch&, nn::StepSink&);
  // Forward without anything kept.
  void evaluate(device::Stream&, int microbatch, const Microbatch&, nn::StepSink&);
  // Adds the accumulators of tied copies to those of their owners.
  void sync_tied(device::Stream&);

 private:
  struct Work {
    device::Stream& stream;
    int microbatch;
    const Microbatch& batch;
    nn::StepSink& sink;
    bool is_evaluating = false;
  };

  void walk(const std::vector<Step>&, const Work&);
  void run(const Step&, const Work&);
  void finish(const Step&, const Work&);  // ends of lives after a layer's last step of a kind
  nn::Pass make_pass(const Work&, int layer, nn::Stash&, bool is_backward);

  spec::LocalShape shape_;
  spec::Recipe recipe_;
  std::vector<spec::Recompute> recompute_;  // by layer of the stage
  std::vector<std::unique_ptr<nn::Layer>> layers_;
  std::vector<std::string> names_;  // of the layers, for profilers and traces
  std::vector<Bucket> buckets_;
  StashPools stash_;
  device::Arena& scratch_;
  std::vector<float> host_rope_table_;
  device::Tensor rope_table_;
  std::vector<Step> forward_, backward_, backward_input_, backward_weight_;
};

}  // namespace trireme::engine
