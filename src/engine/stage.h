// SPDX-License-Identifier: Apache-2.0
// Stage: consecutive layers of the model on one rank, with their buckets, stash and constants. It
// carries out the actions of a schedule for its layers by walking scripts, and knows neither
// schedule nor optimizer.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "device/memory.h"
#include "engine/buckets.h"
#include "engine/data_groups.h"
#include "engine/input.h"
#include "engine/script.h"
#include "engine/stash_pools.h"
#include "nn/layer.h"
#include "spec/data_parallel.h"
#include "spec/plan.h"

namespace trireme::engine {

// Memory that a stage takes its parts from, one arena per purpose.
struct StageMemory {
  device::Arena& params;
  device::Arena& grads;
  device::Arena& scratch;
  device::Arena& comm;
};

// A micro-batch on its way through a stage.
struct Task {
  int microbatch = 0;
  const Microbatch& batch;
  spec::Leaf leaf;         // that its gradients belong to
  bool begins = false;     // the action is the leaf's first of its kind
  bool completes = false;  // it is the leaf's last
};

class Stage {
 public:
  // Works on the compute stream of `groups`.
  Stage(const spec::ModelSpec&, const spec::Plan&, int stage, const spec::Backend&, device::Device&,
        DataGroups& groups, TensorGroup& tensor, const StageMemory&);

  Buckets& buckets() { return buckets_; }
  const StashPools& stash() const { return stash_; }
  int layers() const { return static_cast<int>(layers_.size()); }

  // Gradients of a leaf begin at zero with its first actions and are reduced with its last.
  void forward(const Task&, nn::StepSink&);
  void backward(const Task&, nn::StepSink&);
  void backward_input(const Task&, nn::StepSink&);
  void backward_weight(const Task&, nn::StepSink&);
  // Forward without anything kept.
  void evaluate(int microbatch, const Microbatch&, nn::StepSink&);

 private:
  struct Work {
    int microbatch;
    const Microbatch& batch;
    nn::StepSink& sink;
    spec::Leaf leaf;
    bool is_evaluating = false;
  };
  // By [begins][completes].
  using Scripts = std::array<std::array<std::vector<Step>, 2>, 2>;

  const std::vector<Step>& script_for(Walk, const Task&) const;
  void walk(const std::vector<Step>&, const Work&);
  void run(const Step&, const Work&);
  void move(const Step&, const Work&);    // of a bucket
  void finish(const Step&, const Work&);  // ends of lives after a layer's last step of a kind
  nn::Pass make_pass(const Work&, int layer, nn::Stash&, bool is_backward);

  DataGroups& groups_;
  TensorGroup& tensor_;
  spec::LocalShape shape_;
  spec::Recipe recipe_;
  std::vector<spec::Recompute> recompute_;  // by layer of the stage
  std::vector<std::unique_ptr<nn::Layer>> layers_;
  std::vector<std::string> names_;  // of the layers, for profilers and traces
  Buckets buckets_;
  StashPools stash_;
  device::Arena& scratch_;
  std::vector<float> host_rope_table_;
  device::Tensor rope_table_;
  std::array<Scripts, 4> scripts_;  // by Walk
};

}  // namespace trireme::engine
