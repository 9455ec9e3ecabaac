// SPDX-License-Identifier: Apache-2.0
// Engine: one rank that trains. It builds everything that the plan asks for from the plan's own
// prediction, runs steps without waiting for the device, and can say what it really took.
//
// With a mesh it is one of several ranks. Then construction, steps, evaluate() and reading and
// writing by name are collective: all ranks call them together, in the same order. Every rank reads
// whole parameters; evaluate() is of the rank's own micro-batch, the same on all ranks along tp and
// pp.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "device/device.h"
#include "device/memory.h"
#include "engine/state/data_groups.h"
#include "engine/state/tensor_group.h"
#include "engine/step/executor.h"
#include "engine/step/input.h"
#include "engine/step/pipe.h"
#include "engine/step/stage.h"
#include "engine/step/stash_pools.h"
#include "kernels/args.h"
#include "kernels/step_state.h"
#include "optim/adamw.h"
#include "spec/plan.h"

namespace trireme::engine {

// Clipping of the global norm, and the guard that skips a step.
struct ClipOptions {
  kernels::ClipKind kind = kernels::ClipKind::fixed;
  float norm = 1;
  float guard_multiple = 20;  // of the running mean norm; 0: skip only what is not finite
  int64_t skip_row = 3;       // after so many skipped in a row a finite step is taken; 0: no limit
  int64_t guard_warmup = 20;  // applied steps before mean and deviation are trusted
};

struct EngineOptions {
  uint64_t seed = 0;
  optim::AdamwOptions adamw;
  ClipOptions clip;
  bool capture = true;  // record the second step and replay it from then on, where the device can
};

struct StepReport {
  double mean_loss = 0;  // nats per valid token
  int64_t tokens = 0;    // valid ones
  float grad_norm = 0;   // of the mean loss, before clipping
  float clip_limit = 0;
  float learning_rate = 0;
  bool was_skipped = false;
  uint64_t sample_hash = 0;  // sum of MicrobatchSource::sample_hash() over all ranks' micro-batches
  bool same_samples = true;  // along tp all ranks had the same
  int64_t applied = 0, skipped = 0, skipped_in_a_row = 0;  // steps so far
  // The last row of skipped steps: its first step, that step's norm and the running mean then.
  int64_t row_first = 0;
  double row_norm = 0, row_mean = 0;
};

struct EvalReport {
  double loss_sum = 0;
  int64_t tokens = 0;
};

class Engine {
 public:
  // The device and the mesh (null: one rank) must outlive the engine. Throws ConfigError for a plan
  // that does not fit the model or the mesh, OutOfMemory when the device's budget is too small.
  // Weights are drawn from (seed, name, element), the same for every plan.
  Engine(device::Device&, const spec::ModelSpec&, const spec::Plan&, const spec::Backend&,
         const EngineOptions&, comm::Mesh* mesh = nullptr);
  ~Engine();

  // One training step: accumulate() and apply(). Returns when the work is queued. After the first
  // step the device's ledger is frozen. Which micro-batch of the whole step a rank's is, says
  // spec::global_microbatch().
  void step(MicrobatchSource&, double learning_rate);

  // Runs every micro-batch of the plan from zero gradients on. They are of the loss summed over all
  // ranks.
  void accumulate(MicrobatchSource&);
  // Norm, clip factor, AdamW.
  void apply(double learning_rate);

  // Waits for the device and reads what the last apply() left there.
  StepReport report();

  // The loss of one micro-batch, without gradients; waits for the device. `token_losses`, if not
  // empty, gets the loss of every token (zero where the label is negative).
  EvalReport evaluate(MicrobatchSource&, std::span<float> token_losses = {});
  // The logits of one token of a micro-batch; waits for the device. REQUIRES: an inference plan.
  std::vector<float> logits(MicrobatchSource&, int64_t token);

  // ---- parameters and gradients by name, whole, in fp32; each call waits for the device.
  struct ParamInfo {
    std::string name;
    std::vector<int64_t> shape;
  };
  std::vector<ParamInfo> parameters() const;
  std::vector<float> read_weights(const std::string& name);
  void write_weights(const std::string& name, std::span<const float> values);
  // Of the last step. REQUIRES: no forward has run since: it may use their memory.
  std::vector<float> read_grads(const std::string& name);
  // Of all fp32 weights, in the order of parameters().
  std::string weights_sha256();

  // ---- state: all that the next step depends on besides its batch
  enum class StateKind : uint8_t { weight, first_moment, second_moment, count };
  // Some of the fp32 state of one layer's bucket.
  struct StateRange {
    int layer = 0;  // of the model
    StateKind kind = StateKind::weight;
    spec::Range range;         // elements of the bucket
    optim::FlatFloats floats;  // of the range
  };
  // What this rank updates, as it is once all queued compute is done. REQUIRES: a training plan.
  std::vector<StateRange> state();
  // Queues what of the last update is still to be done, as state() does: whoever kept the stretches
  // of an earlier call finds them up to date once all queued compute is done.
  void flush_updates();
  // The next update waits for the event: somebody reads the state until then.
  void hold_state(device::Event until);
  // A stretch of state() as floats. Both wait for the device.
  std::vector<float> read_state(const StateRange&);
  void write_state(const StateRange&, std::span<const float> values);
  // The state was written, on all ranks. Collective.
  void state_changed();
  // Learning rate, clipping and skipping so far. Wait for the device.
  kernels::StepState step_state();
  void set_step_state(const kernels::StepState&);

  // Bytes really taken so far: high-water marks of arenas and stash pools.
  spec::MemoryTable measured() const;
  const spec::Plan& plan() const { return plan_; }
  // Of this rank; the plan has that of all.
  const spec::MemoryTable& predicted_memory() const;
  device::Stream& compute() { return *compute_; }
  // Told of the actions of every step from here on, which then run uncaptured. Null: nobody.
  void watch_actions(ActionTimes*);
  // Are steps replayed from a recording now?
  bool is_captured() const { return graph_ != nullptr; }
  // Bytes that this rank has sent to others so far. A step's are spec::predict_traffic().
  spec::TrafficTable traffic() const {
    return groups_->traffic() + tensor_->traffic() + pipe_->traffic();
  }

 private:
  struct Arenas;
  struct Located {
    int pp_rank = 0;  // that has it
    int bucket = -1;  // there; elsewhere -1
    spec::Param param;
    int64_t offset = 0, elements = 0;  // in the bucket's flat vectors
  };

  void make_stages(const spec::Backend&);
  device::Tensor make_rope_table();
  std::vector<device::Tensor> grads_in_stash() const;  // by bucket; the others are empty
  void init_weights(uint64_t seed);
  void publish_weights(int bucket);
  void take_batches(MicrobatchSource&);
  void set_learning_rate(double);
  void run_microbatches();
  void close_step();
  void merge_sums();
  void update(int bucket);
  void run_forward(MicrobatchSource&);
  // The fp32 weights that this rank updates, or the parameters in inference.
  optim::FlatFloats own_weights(int bucket) const;
  Located locate(const std::string& name) const;
  // `own` is of this rank's bucket, where it has the parameter.
  std::vector<float> read(const Located&, const optim::FlatFloats& own);
  // The whole parameter from what this rank and its peers along tp have of it. Collective.
  std::vector<float> assemble(const spec::Param&, std::span<const float> own);

  device::Device& device_;
  spec::Plan plan_;
  EngineOptions options_;
  std::unique_ptr<device::Stream> compute_;
  std::unique_ptr<DataGroups> groups_;
  std::unique_ptr<TensorGroup> tensor_;
  std::unique_ptr<Pipe> pipe_;
  std::unique_ptr<Arenas> arenas_;
  std::unique_ptr<StashPools> stash_;
  std::unique_ptr<Buckets> buckets_;
  std::vector<float> host_rope_table_;
  std::unique_ptr<InputStaging> inputs_;
  std::unique_ptr<Executor> executor_;
  bool is_watched_ = false;                  // action by action
  std::unique_ptr<optim::AdamW> optimizer_;  // none in inference
  nn::StepSink sink_;
  device::Tensor all_sums_;      // a kernels::StepSums of every rank
  device::Tensor state_;         // one kernels::StepState
  device::Tensor token_losses_;  // [T] f32
  std::unique_ptr<device::Arena> logits_arena_;
  spec::ModelSpec model_;
  int64_t vocab_ = 0;
  device::Event held_;  // no update before
  int64_t steps_ = 0;
  std::unique_ptr<device::Graph> graph_;  // one whole step

  // Empties all streams before the memory goes that their work uses, also where the constructor's
  // body throws and the engine's destructor does not run. Declared last, so destroyed first.
  struct Drain {
    Engine& engine;
    ~Drain();
  };
  Drain drain_{*this};
};

}  // namespace trireme::engine
