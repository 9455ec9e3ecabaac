// SPDX-License-Identifier: Apache-2.0
// Engine: one rank that trains. It allocates what the plan's prediction lists, runs steps without
// waiting for the device, and measures the memory that it really used.
//
// With a mesh it is one of several ranks. Then construction, steps, evaluate() and reading and
// writing by name are collective: all ranks call them together, in the same order. Every rank reads
// whole parameters. evaluate() runs the rank's own micro-batch, which is the same on all ranks
// along tp, cp and pp.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "device/device.h"
#include "device/memory.h"
#include "engine/captured_steps.h"
#include "engine/groups/context_group.h"
#include "engine/groups/data_groups.h"
#include "engine/groups/expert_group.h"
#include "engine/groups/tensor_group.h"
#include "engine/precision/delayed_scales.h"
#include "engine/precision/numerics.h"
#include "engine/precision/weight_codes.h"
#include "engine/state/muon_update.h"
#include "engine/state/router_update.h"
#include "engine/state/state_access.h"
#include "engine/state/train_state.h"
#include "engine/state/update_gate.h"
#include "engine/step/executor.h"
#include "engine/step/input.h"
#include "engine/step/loss_scale.h"
#include "engine/step/pipe.h"
#include "engine/step/signal_ring.h"
#include "engine/step/stage.h"
#include "engine/step/stash_pools.h"
#include "engine/step/step_times.h"
#include "engine/step_progress.h"
#include "kernels/args.h"
#include "kernels/step_state.h"
#include "optim/adamw.h"
#include "spec/plan.h"

namespace trireme::engine {

// Clipping by global norm, and the guard that skips a step.
struct ClipOptions {
  kernels::ClipKind kind = kernels::ClipKind::fixed;
  float norm = 1;
  float guard_multiple = 20;  // of the running mean norm; 0: skip only steps that are not finite
  int64_t skip_row = 3;       // apply a finite step after so many skips in a row; 0: no limit
  int64_t guard_warmup = 20;  // applied steps before the guard uses mean and deviation
};

struct EngineOptions {
  uint64_t seed = 0;
  optim::AdamwOptions adamw;  // with Muon: of parameters that are no matrices, and weight decay
  optim::MuonOptions muon;
  ClipOptions clip;
  LossScaleOptions loss_scale;  // of recipes that have one
  bool capture = true;  // capture the second step and replay it, if the device supports graphs
  // The same for steps with other ranks, if the communicators support it.
  bool capture_ranks = false;
  // The tokens of a step, on a rank without peers (comm/alone.h) that has no head: others would
  // count them, and a step without tokens is skipped. 0: others count them.
  int64_t absent_tokens = 0;
};

struct StepReport {
  double mean_loss = 0;  // nats per valid token
  int64_t tokens = 0;    // with a label
  float grad_norm = 0;   // of the mean loss, before clipping
  float clip_limit = 0;
  float learning_rate = 0;
  bool was_skipped = false;
  uint64_t sample_hash = 0;  // sum of MicrobatchSource::sample_hash() over all ranks' micro-batches
  bool same_samples = true;  // all ranks along tp had the same samples
  // Pairs that exceeded a row budget of experts. If there are any, this step and possibly some
  // before it were not run: the steps that were are applied + skipped.
  int64_t overflow = 0;
  int64_t applied = 0, skipped = 0, skipped_in_a_row = 0;  // steps so far
  // The last sequence of skipped steps: its first step, that step's norm and the running mean then.
  int64_t row_first = 0;
  double row_norm = 0, row_mean = 0;
  float loss_scale = 0;  // of this step; 0: the recipe has none
  float next_loss_scale = 0;
  int64_t not_finite = 0;  // with a loss scale: steps so far whose gradient was not finite
};

struct EvalReport {
  double loss_sum = 0;
  int64_t tokens = 0;
};

class Engine {
 public:
  // The device and the mesh (null: one rank) must outlive the engine. Throws ConfigError for a plan
  // that does not match the model or the mesh, OutOfMemory if the device's budget is too small.
  // Initial weights are a function of (seed, name, element), the same for every plan.
  Engine(device::Device&, const spec::ModelSpec&, const spec::Plan&, const spec::Backend&,
         const EngineOptions&, comm::Mesh* mesh = nullptr);
  ~Engine();  // closes with End::abort, unless it is closed
  // Waits until nothing is in flight, drops captured steps and ends the engine's groups; no step
  // follows. Only the first close counts. End::finish is collective, after a step; End::abort is
  // for any time, and notifies the peers along pp.
  void close(comm::End) noexcept;

  // Runs one training step: accumulate() and apply(). Returns when the work is queued. Freezes the
  // device's ledger after the first step. spec::global_microbatch() maps a rank's micro-batch index
  // to its index in the global batch.
  void step(MicrobatchSource&, double learning_rate);

  // Runs every micro-batch of the plan, starting from zero gradients. The gradients are those of
  // the loss summed over all ranks.
  void accumulate(MicrobatchSource&);
  // Computes norm and clip factor, and updates with the plan's optimizer.
  void apply(double learning_rate);

  // Waits for the device and returns the results of the last apply().
  StepReport report();
  // Returns, in order, the signals of the steps that the device has completed since the last call
  // of this function or of drain_signals(). Does not wait. All ranks have the same. Signals of the
  // last SignalRing::slots steps are kept: call it as often, or older ones are dropped. REQUIRES: a
  // training plan.
  std::vector<StepSignals> take_signals() { return signals_->take(*compute_); }
  // Waits for the device and returns those of all steps since the last call.
  std::vector<StepSignals> drain_signals();

  // Returns the loss of one micro-batch, without gradients; waits for the device. `token_losses`,
  // if not empty, receives the loss of every token (zero if its label is negative).
  EvalReport evaluate(MicrobatchSource&, std::span<float> token_losses = {});
  // Returns the loss of every token of this rank's micro-batches in the last step, one after the
  // other (zero if the label is negative, or if another rank along cp has the token); waits for the
  // device. Empty unless the plan keeps them
  // and this rank has the head. REQUIRES: no evaluate() since that step.
  std::vector<float> step_losses();
  // Returns the logits of one token of a micro-batch; waits for the device. REQUIRES: an inference
  // plan.
  std::vector<float> logits(MicrobatchSource&, int64_t token);

  // ---- weights, gradients and training state: see StateAccess. After an abort of the ranks,
  // weights and state can be read only if sealed_step() has a value; otherwise these functions
  // throw CommAborted.
  using ParamInfo = StateAccess::ParamInfo;
  using StateRange = StateAccess::StateRange;
  std::vector<ParamInfo> parameters() const { return access_->parameters(); }
  std::vector<float> read_weights(const std::string& name) { return trusted().read_weights(name); }
  void write_weights(const std::string& name, std::span<const float> values) {
    access_->write_weights(name, values);
  }
  // Gradients of the loss, without a loss scale.
  std::vector<float> read_grads(const std::string& name);
  std::string weights_sha256() { return trusted().weights_sha256(); }
  std::vector<StateRange> state() { return trusted().state(); }
  void flush_updates() { trusted().flush_updates(); }
  std::vector<float> read_state(const StateRange& range) { return access_->read_state(range); }
  void write_state(const StateRange& range, std::span<const float> values,
                   UploadRing* ring = nullptr) {
    access_->write_state(range, values, ring);
  }
  void state_changed();
  kernels::StepState step_state() { return access_->step_state(); }
  // For after an abort of the ranks: closes the engine with End::abort, runs the updates of the
  // last closed step that are missing and whose gradients were complete, and returns the step
  // (applied + skipped) of whose end the state of this rank is. None if that cannot be known, as
  // with Muon, or if only some updates of a step have run. What a step counts (router.stats,
  // router.fill, fp8.amax) is zero afterwards; the parameters of other ranks are undefined. On a
  // GPU, the state can be read once the mesh and the world are closed, too. REQUIRES: the ranks
  // were aborted, or all have entered the same calls.
  std::optional<int64_t> sealed_step();
  // With a loss scale, that of the state is carried on; if it has none, the first one is set.
  void set_step_state(const kernels::StepState& state) {
    access_->set_step_state(with_loss_scale(state, loss_scale_, options_.loss_scale));
  }
  // Makes the next update wait for the event, until which the caller reads the state.
  void hold_state(device::Event until);
  // Returns the timed point of compute at which it began to wait for the event of the last
  // hold_state(); none: that was not queued yet.
  const device::Event& held_at() const { return held_at_; }

  // Returns the bytes used so far: high-water marks of arenas and stash pools.
  spec::MemoryTable measured() const;
  const spec::Plan& plan() const { return plan_; }
  // The prediction for this rank; the plan has those of all pp ranks.
  const spec::MemoryTable& predicted_memory() const;
  device::Stream& compute() { return *compute_; }
  // Returns all streams on which steps queue work, compute first.
  std::vector<device::Stream*> streams();
  // Records the times of the actions of all later steps, which then run uncaptured. Null: stops.
  void watch_actions(ActionTimes*);
  // ---- times. Begin and end of every step are measured, unless watch_times(false) was called; its
  // waits after watch_waits(true).
  void watch_times(bool on) { times_->set_on(on); }
  void watch_waits(bool on) { times_->measure_waits(on); }
  // Returns the times of the steps that the device has completed since the last call. Does not
  // wait.
  StepTimes take_times() { return times_->take(); }
  // The time from here to the next step belongs to no step.
  void interrupt_times() { times_->interrupt(); }
  // Returns how long compute of this rank waited in the last step for transfers along cp, and along
  // ep; none if that was not measured, or if there are no others along that axis. Waits for the
  // device.
  std::optional<double> transfer_seconds();
  std::optional<double> row_transfer_seconds();
  // Returns what this rank computes in the last step's attention: (query, key) pairs, of one head.
  int64_t attention_pairs() const;
  // ---- context parallelism
  // Returns the (query, key) pairs of the group along cp with the most of them in each micro-batch
  // of the last step, relative to the mean; 1 if each rank has some heads of all rows.
  double pairs_max_over_mean() const;
  // Returns the statistics of the last step of the routers on this rank, of all ranks that have the
  // same layers. Waits for the device. REQUIRES: a training plan.
  std::vector<RouterUpdate::LayerStats> router_stats() const { return routers_->read(); }
  bool has_routers() const { return spec::moe_of(model_) != nullptr; }  // on any rank
  // Sets these statistics to zero. Those of evaluate() are added to them, on this rank only.
  void clear_router_stats() { routers_->begin_step(); }
  // ---- products in 8 bits
  // Returns what quantising did in the last step to the values of this rank, for each block with
  // products in 8 bits. Waits for the device.
  std::vector<LayerNumerics> numerics() const { return numerics_->read(); }
  // Do later steps count all that LayerNumerics has? Otherwise largest magnitudes only. Both kinds
  // of steps are replayed.
  void measure_numerics(bool on) { numerics_->set_measures(on); }
  // Later steps are captured again: for a caller that has changed what they queue.
  void capture_again();
  // Are steps replayed from a captured graph?
  bool is_captured() const { return captured_.has_any(); }
  // Bytes that this rank has sent to others so far. spec::predict_traffic() predicts those of a
  // step. Bytes of runs that only fill a history of magnitudes (DelayedScales) are `other`.
  spec::TrafficTable traffic() const;

 private:
  struct Arenas;
  void watch_streams();
  void make_stages(const spec::Backend&);
  device::Tensor make_rope_table();
  // By bucket: its gradients if they lie in the stash, otherwise empty.
  std::vector<device::Tensor> grads_in_stash() const;
  void take_batches(MicrobatchSource&);
  void set_learning_rate(double);
  void run_microbatches();
  // With delayed scaling, before a step: runs its micro-batches if a history of magnitudes is empty
  // on any rank. Collective.
  void prepare_scales();
  // Queues the step of these batches as a captured graph. Returns false and queues none of it if it
  // cannot be replayed.
  bool replay(double learning_rate);
  std::vector<device::Stream*> side_streams();  // that a step uses beside compute
  // Has every block in 8 bits a history, also on other ranks along pp? Collective.
  bool have_histories();
  void collect_magnitudes();
  void close_step();
  void merge_records();
  // Throws CommAborted if the state is that of no step, after an abort.
  StateAccess& trusted();
  // Queues the updates of the last closed step that are missing and need no other rank.
  void complete_updates();
  // Returns a part of squares_: of a layer of the model, or of the updates, which is the last.
  device::Tensor wide_sum(int64_t index) const;
  void update(int bucket);
  void before_state_changes();  // waits for the event of hold_state()
  void update_by_adamw(int bucket);
  void publish_codes();
  void run_forward(MicrobatchSource&);
  // Adds up the sums of all ranks along cp, and collects the losses of all rows.
  EvalReport gather_report(std::span<float> token_losses);

  device::Device& device_;
  spec::Plan plan_;
  EngineOptions options_;
  kernels::LossScaleRule loss_scale_;
  std::unique_ptr<device::Stream> compute_;
  std::unique_ptr<StepProgress> progress_;
  std::unique_ptr<StepTimer> times_;
  std::unique_ptr<DataGroups> groups_;
  std::unique_ptr<TensorGroup> tensor_;
  std::unique_ptr<ContextGroup> context_;
  std::unique_ptr<ExpertGroup> experts_;
  std::unique_ptr<Pipe> pipe_;
  std::unique_ptr<Arenas> arenas_;
  std::unique_ptr<StashPools> stash_;
  UpdateGate gate_;
  std::unique_ptr<Buckets> buckets_;
  std::vector<float> host_rope_table_;
  std::unique_ptr<InputStaging> inputs_;
  std::unique_ptr<Executor> executor_;
  bool has_times_ = false;       // watch_actions() is on
  bool grads_are_open_ = false;  // accumulate() was called after the last step was closed
  bool is_closed_ = false;
  std::unique_ptr<TrainState> train_state_;
  std::unique_ptr<Numerics> numerics_;
  std::unique_ptr<DelayedScales> delayed_;
  bool has_scales_ = false;  // no history is empty, on any rank
  // The step after which prepare_scales() has filled histories, which are those of no step then.
  std::optional<int64_t> prepared_at_;
  spec::TrafficTable preparation_;  // bytes that prepare_scales() has sent
  std::unique_ptr<WeightCodes> codes_;
  std::unique_ptr<RouterUpdate> routers_;  // null: an inference plan
  std::unique_ptr<MuonUpdate> muon_;  // null: the plan has another optimizer, or is for inference
  nn::StepSink sink_;                 // its sums are those of record_
  device::Tensor record_, squares_;   // spec::StepMemory
  device::Tensor device_signals_;     // spec::StepMemory::signals
  device::Tensor all_records_;        // one for each rank
  device::Tensor reports_;            // spec::context_reports()
  device::Tensor state_;              // one kernels::StepState, in device_signals_
  std::unique_ptr<SignalRing> signals_;       // null: an inference plan
  std::vector<device::Tensor> token_losses_;  // [T] f32; one, or one for each micro-batch
  std::unique_ptr<device::Arena> logits_arena_;
  spec::ModelSpec model_;
  int64_t vocab_ = 0;
  std::unique_ptr<StateAccess> access_;
  device::Event held_, held_at_;  // updates wait for the first: see hold_state()
  int64_t steps_ = 0;
  CapturedSteps captured_{*compute_, [this] { return traffic(); }};

  // Closes before memory is freed, also if the constructor's body throws and the engine's
  // destructor does not run. Declared last, so destroyed first.
  struct Closer {
    Engine& engine;
    ~Closer() { engine.close(comm::End::abort); }
  };
  Closer closer_{*this};
};

}  // namespace trireme::engine
