// SPDX-License-Identifier: Apache-2.0
// Stage: consecutive layers of the model on one rank. It runs the actions of a schedule for its
// layers by walking scripts, and depends on neither schedule, optimizer nor other ranks.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "device/memory.h"
#include "engine/groups/context_group.h"
#include "engine/groups/data_groups.h"
#include "engine/groups/expert_group.h"
#include "engine/precision/delayed_scales.h"
#include "engine/precision/numerics.h"
#include "engine/precision/weight_codes.h"
#include "engine/state/buckets.h"
#include "engine/state/train_state.h"
#include "engine/step/input.h"
#include "engine/step/script.h"
#include "engine/step/stash_pools.h"
#include "nn/layer.h"
#include "spec/parallel/data_parallel.h"
#include "spec/plan.h"

namespace trireme::engine {

// Resources that the stages of a rank share.
struct StageShared {
  device::Stream& compute;
  device::Stream& data;
  TensorGroup& tensor;
  ContextGroup& context;
  ExpertGroup& experts;
  Buckets& buckets;
  const TrainState& state;
  const WeightCodes& codes;
  const Numerics& numerics;
  const DelayedScales& delayed;
  StashPools& stash;
  device::Arena& scratch;
  device::Tensor rope_table;
};

// One action of one micro-batch in a stage.
struct Task {
  int microbatch = 0;
  const Microbatch& batch;
  spec::Leaf leaf;         // to which its gradients are added
  bool begins = false;     // the action is the leaf's first of its kind: F, B or BW, W
  bool completes = false;  // it is the leaf's last
  bool writes = false;     // it is the leaf's first that computes weight gradients
  bool gathers = true;     // sharded parameters have to be gathered
  bool releases = true;    // and are released after use
  bool evaluates = false;  // no backward follows: nothing is kept
  // Receives the stage's output (F) or the gradient of its input (B, BW); empty if no layer reads
  // it.
  device::Tensor out;
};

class Stage {
 public:
  // `stage` is its number in the plan, `index` its place among the stages of the rank.
  Stage(const spec::ModelSpec&, const spec::Plan&, int stage, int index, const spec::Backend&,
        const StageShared&);

  int layers() const { return static_cast<int>(layers_.size()); }

  // Return the slots for a micro-batch's input and for the gradient of its output. The first call
  // takes their memory.
  device::Tensor input(int microbatch);
  device::Tensor output_gradient(int microbatch);

  // An action in progress: its script is walked step by step, so that two can alternate.
  class Progress {
   private:
    friend class Stage;
    Walk walk = Walk::forward;
    const std::vector<Step>* steps = nullptr;
    size_t at = 0;
    Task task;
    nn::StepSink& sink;
    device::Event arrival;  // of rows that a phase has sent (nn::Pass)
    Progress(Walk w, const std::vector<Step>& s, const Task& t, nn::StepSink& to)
        : walk(w), steps(&s), task(t), sink(to) {}
  };
  // Starts an action. `sink` must outlive it.
  Progress begin(Walk, const Task&, nn::StepSink& sink);
  // Runs the next step. Returns false if there was none, and the action is over.
  bool advance(Progress&);
  // Runs a whole action.
  void run(Walk, const Task&, nn::StepSink&);

 private:
  // (walk, begins, completes, gathers, releases)
  using ScriptKey = std::tuple<Walk, bool, bool, bool, bool>;

  const std::vector<Step>& script_for(Walk, const Task&);
  void end(const Progress&);
  void run_step(const Step&, Progress&);
  void run_bucket_step(const Step&, const Task&);
  void finish(const Step&, int microbatch);  // ends slots after a layer's last step of a kind
  nn::Pass make_pass(Progress&, int layer, nn::Stash&, bool is_backward);
  int first_bucket(int layer) const {
    return static_cast<int>(shared_.buckets.of_layer(first_layer_ + layer).begin);
  }
  // Calls action(bucket) for every bucket of a layer of the stage.
  template <typename Action>
  void for_each_bucket(int layer, Action action) const {
    const spec::Range range = shared_.buckets.of_layer(first_layer_ + layer);
    for (int64_t b = range.begin; b < range.end; ++b) action(static_cast<int>(b));
  }

  StageShared shared_;
  const int index_;
  spec::LocalShape shape_;
  std::vector<spec::Recipe> recipes_;       // by layer
  const bool has_first_, has_last_;         // the first and the last layer of the model
  std::vector<spec::Recompute> recompute_;  // by layer of the stage
  std::vector<std::unique_ptr<nn::Layer>> layers_;
  std::vector<int> phases_;         // by layer
  std::vector<std::string> names_;  // by layer, for profilers and traces
  int first_layer_ = 0;             // of the model
  spec::Residency residency_;
  int prefetch_ = 1;
  bool prefetch_after_ = false;
  std::map<ScriptKey, std::vector<Step>> scripts_;
};

}  // namespace trireme::engine
