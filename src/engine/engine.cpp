// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "kernels/ops.h"
#include "kernels/step_state.h"
#include "schedule/lives.h"
#include "spec/context/context_traffic.h"
#include "spec/experts/expert_traffic.h"
#include "spec/facts/rope.h"
#include "spec/memory/grad_places.h"
#include "spec/memory/predict.h"
#include "spec/parallel/pipeline_parallel.h"
#include "spec/parallel/tensor_parallel.h"
#include "spec/state/float8_state.h"

namespace trireme::engine {
namespace {

namespace ops = kernels::ops;
using device::Mem;

device::Arena make_arena(device::Device& device, Mem mem, int64_t bytes) {
  return device::Arena(device::Buffer(device, mem, bytes, name_of(mem)));
}

spec::Plan checked(const spec::ModelSpec& model, spec::Plan plan, const spec::Backend& backend) {
  spec::check_plan(model, plan);
  plan.predicted = spec::predict(model, plan, backend);
  return plan;
}

}  // namespace

struct Engine::Arenas {
  Arenas(device::Device& device, const spec::MemoryTable& m)
      : params(make_arena(device, Mem::params, m.params)),
        grads(make_arena(device, Mem::grads, m.grads)),
        optim(make_arena(device, Mem::optim, m.optim)),
        scratch(make_arena(device, Mem::scratch, m.scratch)),
        comm(make_arena(device, Mem::comm, m.comm)),
        staging(make_arena(device, Mem::staging, m.staging)) {}

  device::Arena params, grads, optim, scratch, comm, staging;
};

Engine::Engine(device::Device& device, const spec::ModelSpec& model, const spec::Plan& plan,
               const spec::Backend& backend, const EngineOptions& options, comm::Mesh* mesh)
    : device_(device),
      plan_(checked(model, plan, backend)),
      options_(options),
      loss_scale_(loss_scale_rule(plan_, options.loss_scale)),
      compute_(device.make_stream("compute")),
      progress_(std::make_unique<StepProgress>(*compute_)),
      times_(std::make_unique<StepTimer>(*compute_)),
      groups_(std::make_unique<DataGroups>(plan_, mesh, device, *compute_)),
      tensor_(std::make_unique<TensorGroup>(plan_, mesh, *compute_)),
      context_(std::make_unique<ContextGroup>(plan_, mesh, device, *compute_)),
      experts_(std::make_unique<ExpertGroup>(model, plan_, mesh, device, *compute_)),
      pipe_(std::make_unique<Pipe>(model, plan_, mesh, device, *compute_)),
      arenas_(std::make_unique<Arenas>(device, predicted_memory())),
      gate_(device, mesh),
      model_(model),
      vocab_(std::get<spec::HeadSpec>(model.layers.back()).vocab) {
  options_.capture = options_.capture && is_worth_capturing(model_, plan_);
  watch_streams();
  if (const base::TensorSpec workspace = spec::stream_workspace_spec(backend);
      workspace.shape.ndim() > 0) {
    compute_->set_workspace(arenas_->scratch.take(workspace));
  }
  if (const base::TensorSpec buffer = spec::tensor_buffer(model, plan_); buffer.shape.ndim() > 0) {
    tensor_->set_buffer(arenas_->comm.take(buffer));
  }
  if (const base::TensorSpec buffer = spec::context_buffer(model, plan_); buffer.shape.ndim() > 0) {
    context_->set_buffer(arenas_->comm.take(buffer));
  }
  if (const base::TensorSpec buffer = spec::expert_buffer(model, plan_); buffer.shape.ndim() > 0) {
    experts_->set_buffer(arenas_->comm.take(buffer));
  }
  make_stages(backend);
  inputs_ = std::make_unique<InputStaging>(device, arenas_->staging, spec::local_shape_of(plan_),
                                           plan_.schedule.microbatches, vocab_, context_->rank());
  if (!plan_.inference) {
    // Updates are deferred if no other rank shares them.
    buckets_->set_update([this](int b) {
      if (buckets_->gathers_in_forward(b)) gate_.open_confirmed(*compute_, b, state_);
      update(b);
      codes_->quantize(b, true);
    });
  }
  for (int i = 0; i < (plan_.keeps_losses ? plan_.schedule.microbatches : 1); ++i) {
    token_losses_.push_back(
        arenas_->staging.take(spec::token_losses_spec(spec::local_shape_of(plan_))));
  }
  if (plan_.keeps_losses) sink_.step_losses = token_losses_;
  const spec::StepMemory step_memory = spec::step_memory(plan_);
  record_ = arenas_->optim.take(step_memory.record);
  squares_ = arenas_->optim.take(step_memory.squares);
  device_signals_ = arenas_->optim.take(step_memory.signals);
  sink_.sums = record_.slice_rows(0, spec::step_sums_bytes);
  state_ = device_signals_.slice_rows(0, spec::step_state_bytes);
  if (loss_scale_.is_on()) {
    sink_.loss_factor = device::view_of(state_.data + offsetof(kernels::StepState, loss_factor),
                                        {{1}, base::DType::f32});
  }
  if (groups_->closes_with_peers()) {
    all_records_ =
        arenas_->comm.take({{spec::closing_ranks(plan_.mesh), record_.bytes()}, base::DType::u8});
  }
  if (const base::TensorSpec reports = spec::context_reports(plan_); reports.shape.ndim() > 0) {
    reports_ = arenas_->comm.take(reports);
  }
  for (const device::Tensor& zeroed : {record_, squares_, device_signals_}) {
    ops::fill(*compute_, {.d = zeroed});
  }
  if (plan_.optimizer.kind == spec::OptimizerKind::muon && !plan_.inference) {
    muon_ = std::make_unique<MuonUpdate>(MuonUpdate::Parts{.plan = plan_,
                                                           .groups = *groups_,
                                                           .tensor = *tensor_,
                                                           .buckets = *buckets_,
                                                           .state = *train_state_,
                                                           .gate = gate_,
                                                           .scratch = arenas_->scratch,
                                                           .step_state = state_,
                                                           .changes = wide_sum(plan_.layers())},
                                         options.muon, options.adamw.weight_decay);
  }
  if (!plan_.inference) {
    signals_ = std::make_unique<SignalRing>(device, plan_.layers(), spec::data_ranks(plan_.mesh));
    routers_ =
        std::make_unique<RouterUpdate>(model_, plan_, pipe_->rank(), *train_state_, *compute_);
  }
  access_ = std::make_unique<StateAccess>(StateAccess::Parts{.model = model_,
                                                             .plan = plan_,
                                                             .compute = *compute_,
                                                             .groups = *groups_,
                                                             .tensor = *tensor_,
                                                             .experts = *experts_,
                                                             .pipe = *pipe_,
                                                             .buckets = *buckets_,
                                                             .state = *train_state_,
                                                             .codes = *codes_,
                                                             .step_state = state_});
  access_->init_weights(options.seed);
  if (loss_scale_.is_on()) set_step_state({});
}

void Engine::watch_streams() {
  // Work of other streams makes compute wait where it runs: at events, or, if the stream runs
  // inline, in the call.
  for (device::Stream* stream :
       {compute_.get(), &groups_->stream(), context_->side(), experts_->side()}) {
    if (stream == nullptr) continue;
    if (stream == compute_.get() || stream->host_calls() == device::Stream::HostCalls::immediate) {
      stream->set_waits(&times_->watch());
    }
  }
}

void Engine::make_stages(const spec::Backend& backend) {
  const int rank = pipe_->rank();
  pipe_->set_memory(arenas_->comm, spec::pipe_buffers(model_, plan_, rank));
  std::vector<spec::StashStage> stash = spec::stash_stages(model_, plan_, rank, backend);
  spec::StashLayout layout = spec::stash_layout_of_rank(plan_, rank, stash);
  stash_ = std::make_unique<StashPools>(device_, std::move(stash), std::move(layout));
  const std::vector<device::Tensor> leaves = grads_in_stash();
  buckets_ = std::make_unique<Buckets>(
      model_, plan_, *groups_, *tensor_, *pipe_, gate_,
      Buckets::Memory{arenas_->params, arenas_->grads, arenas_->comm, leaves});
  gate_.set_buckets(buckets_->size());
  train_state_ =
      std::make_unique<TrainState>(model_, plan_, *buckets_, *groups_, *tensor_, arenas_->optim);
  numerics_ = std::make_unique<Numerics>(model_, plan_, rank, *compute_, arenas_->optim);
  delayed_ = std::make_unique<DelayedScales>(model_, plan_, rank, *train_state_, *numerics_,
                                             *compute_, arenas_->optim);
  codes_ = std::make_unique<WeightCodes>(model_, plan_, *buckets_, *train_state_, *groups_,
                                         *numerics_, arenas_->params, arenas_->optim);
  const StageShared shared{.compute = *compute_,
                           .data = groups_->stream(),
                           .tensor = *tensor_,
                           .context = *context_,
                           .experts = *experts_,
                           .buckets = *buckets_,
                           .state = *train_state_,
                           .codes = *codes_,
                           .numerics = *numerics_,
                           .delayed = *delayed_,
                           .stash = *stash_,
                           .scratch = arenas_->scratch,
                           .rope_table = make_rope_table()};
  std::vector<std::unique_ptr<Stage>> stages;
  for (const int stage : schedule::stages_of(plan_.schedule, rank)) {
    stages.push_back(std::make_unique<Stage>(model_, plan_, stage, static_cast<int>(stages.size()),
                                             backend, shared));
  }
  executor_ = std::make_unique<Executor>(plan_, std::move(stages), *pipe_, *buckets_,
                                         stash_->layout(), *progress_);
}

std::vector<device::Tensor> Engine::grads_in_stash() const {
  const std::vector<spec::BucketLayout> layouts =
      spec::bucket_layouts(model_, plan_, pipe_->rank());
  const auto places = spec::grad_places(plan_, stash_->layout(), layouts);
  std::vector<device::Tensor> leaves(layouts.size());
  for (size_t b = 0; b < layouts.size(); ++b) {
    if (places[b])
      leaves[b] = stash_->memory_at(*places[b], spec::grad_specs(plan_, layouts[b].size()).leaf);
  }
  return leaves;
}

device::Tensor Engine::make_rope_table() {
  const base::TensorSpec spec = spec::rope_table_of_rank(model_, plan_, pipe_->rank());
  if (spec.shape.ndim() == 0) return {};
  for (const spec::LayerSpec& layer : model_.layers) {
    const auto* block = std::get_if<spec::BlockSpec>(&layer);
    if (block == nullptr || !block->rope) continue;
    host_rope_table_ = spec::rope_table(*block->rope, block->head_dim, plan_.seq_len);
    break;
  }
  const device::Tensor table = arenas_->params.take(spec);
  compute_->upload(table, std::as_bytes(std::span(host_rope_table_)));
  return table;
}

const spec::MemoryTable& Engine::predicted_memory() const {
  return plan_.predicted.memory[static_cast<size_t>(pipe_->rank())];
}

std::vector<device::Stream*> Engine::streams() {
  std::vector<device::Stream*> all = side_streams();
  all.insert(all.begin(), compute_.get());
  all.push_back(&inputs_->stream());
  return all;
}

std::vector<device::Stream*> Engine::side_streams() {
  std::vector<device::Stream*> all;
  if (groups_->has_peers()) all.push_back(&groups_->stream());
  if (context_->side() != nullptr) all.push_back(context_->side());
  if (experts_->side() != nullptr) all.push_back(experts_->side());
  for (device::Stream* channel : pipe_->streams()) all.push_back(channel);
  return all;
}

Engine::~Engine() = default;

void Engine::close(comm::End end) noexcept {
  if (std::exchange(is_closed_, true)) return;
  if (end == comm::End::abort) gate_.raise();
  // No work that uses the engine's memory may be in flight.
  pipe_->close(end);
  if (context_->side() != nullptr) context_->side()->drain();
  if (experts_->side() != nullptr) experts_->side()->drain();
  groups_->stream().drain();
  compute_->drain();
  captured_.clear();  // before the communicators that graphs use
  context_->close(end);
  groups_->close(end);
}

void Engine::step(MicrobatchSource& source, double learning_rate) {
  const device::Range range(*compute_, "step");
  take_batches(source);
  prepare_scales();
  if (!replay(learning_rate)) {
    run_microbatches();
    apply(learning_rate);
    progress_->end_step();
  }
  times_->end();
  ++steps_;
  device_.ledger().freeze();
}

bool Engine::replay(double learning_rate) {
  // The first step is not captured: libraries choose their algorithms in it, and connect ranks. A
  // step with an observer is not replayed, because a replay does not call the fronts of ops; nor is
  // one whose waits for other ranks are measured, by events that a graph does not record.
  const bool is_held = held_.state() != nullptr;  // a captured graph cannot wait for the event
  const bool is_watched = groups_->closes_with_peers() && times_->measures_waits();
  const bool captures_peers = options_.capture_ranks && groups_->can_be_captured();
  if (!options_.capture || (groups_->closes_with_peers() && !captures_peers) || steps_ == 0 ||
      is_held || is_watched || compute_->observer() != nullptr || has_times_) {
    return false;
  }
  // A step that was not captured may have deferred updates, which use its learning rate.
  buckets_->flush_updates();
  set_learning_rate(learning_rate);
  const auto queue_step = [this] {
    run_microbatches();
    close_step();
    // Deferred ones would use the learning rate of the next step.
    buckets_->flush_updates();
    progress_->end_step();
  };
  try {
    options_.capture = captured_.launch(
        numerics_->measures() ? CapturedSteps::Kind::with_numerics : CapturedSteps::Kind::plain,
        side_streams(), queue_step);
    progress_->launched();
  } catch (...) {  // the step before is the last one that was closed
    progress_->drop_captured();
    buckets_->drop_updates();
    gate_.set_buckets(buckets_->size());
    throw;
  }
  if (options_.capture) signals_->push(*compute_, device_signals_);
  return options_.capture;
}

void Engine::capture_again() {
  compute_->synchronize();
  captured_.clear();
}

void Engine::hold_state(device::Event until) {
  held_ = std::move(until);
  held_at_ = {};
}

void Engine::before_state_changes() {
  if (held_.state() == nullptr) return;
  held_at_ = compute_->record_timed();
  device::wait_for(*compute_, std::exchange(held_, {}), Wait::save);
}

void Engine::watch_actions(ActionTimes* times) {
  executor_->set_times(times);
  has_times_ = times != nullptr;
}

void Engine::accumulate(MicrobatchSource& source) {
  grads_are_open_ = true;
  take_batches(source);
  prepare_scales();
  run_microbatches();
}

void Engine::apply(double learning_rate) {
  buckets_->flush_updates();  // deferred ones use the previous learning rate
  set_learning_rate(learning_rate);
  close_step();
  grads_are_open_ = false;
  signals_->push(*compute_, device_signals_);
}

std::vector<float> Engine::read_grads(const std::string& name) {
  std::vector<float> grads = access_->read_grads(name);
  if (!loss_scale_.is_on()) return grads;
  const kernels::StepState state = access_->step_state();
  const float factor = grads_are_open_ ? state.loss_factor : state.step_factor;
  for (float& grad : grads) grad /= factor;
  return grads;
}

void Engine::take_batches(MicrobatchSource& source) {
  TRIREME_CHECK(!plan_.inference, "a training step under an inference plan");
  inputs_->load(source, plan_.schedule.microbatches);
  times_->begin();
  inputs_->take(*compute_, plan_.schedule.microbatches);
  inputs_->take_counts(*compute_, record_.slice_rows(offsetof(kernels::StepSums, samples),
                                                     spec::batch_counts_bytes));
}

void Engine::set_learning_rate(double learning_rate) {
  // The first field of StepState. The value is a launch argument, so this is never part of a
  // captured step.
  ops::fill(*compute_, {.d = device::view_of(state_.data, {{1}, base::DType::f32}),
                        .value = static_cast<float>(learning_rate)});
}

void Engine::run_microbatches() {
  routers_->begin_step();
  numerics_->begin_step();
  executor_->run(*compute_, *inputs_, sink_);
}

void Engine::prepare_scales() {
  if (!delayed_->is_on() || has_scales_) return;
  has_scales_ = have_histories();
  if (has_scales_) return;
  const spec::TrafficTable before = traffic();
  const kernels::StepState state = access_->step_state();
  prepared_at_ = state.applied + state.skipped;
  run_microbatches();
  collect_magnitudes();
  train_state_->reduce_own(spec::amax_state);
  delayed_->rotate({});
  // What the micro-batches have added up; the sums of the batch follow.
  ops::fill(*compute_, {.d = sink_.sums.slice_rows(0, offsetof(kernels::StepSums, samples))});
  preparation_ = preparation_ + traffic() - before;
  has_scales_ = have_histories();
}

bool Engine::have_histories() {
  const float own = delayed_->is_empty() ? 0 : 1;
  if (!pipe_->has_peers()) return own > 0;
  bool all = true;
  for (int rank = 0; rank < plan_.mesh[spec::Axis::pp]; ++rank) {
    all = pipe_->share(std::span(&own, 1), 1, rank).front() != 0 && all;
  }
  return all;
}

void Engine::collect_magnitudes() {
  if (!delayed_->is_on()) return;
  before_state_changes();
  delayed_->collect();
}

void Engine::close_step() {
  const device::Range range(*compute_, "optimizer");
  // Each element of the gradient is counted by the rank that has reduced it.
  for (int b = 0; b < buckets_->size(); ++b) {
    const Bucket& bucket = (*buckets_)[b];
    const spec::Range& held = bucket.reduced();
    for (const spec::Range& part :
         spec::counted_along_tp(bucket.layout(), held, groups_->coord())) {
      ops::sum_squares(*compute_, {.x = bucket.reduced_grads().slice_rows(part.begin - held.begin,
                                                                          part.end - part.begin),
                                   .squares = wide_sum(buckets_->key(b).layer)});
    }
  }
  routers_->count_overflow(sink_.sums);
  ops::add_layers(*compute_, {.squares = squares_, .record = record_});
  merge_records();
  collect_magnitudes();
  train_state_->reduce_own();
  gate_.step_closes(*compute_);
  ops::step_control(*compute_, {.sums = sink_.sums,
                                .state = state_,
                                .clip = options_.clip.kind,
                                .clip_norm = options_.clip.norm,
                                .guard_multiple = options_.clip.guard_multiple,
                                .skip_row = options_.clip.skip_row,
                                .guard_warmup = options_.clip.guard_warmup,
                                .loss_scale = loss_scale_,
                                .abort_flag = gate_.abort_flag()});
  routers_->update_biases(state_);
  delayed_->rotate(state_);
  gate_.step_closed(*compute_);
  for (int b = 0; b < buckets_->size(); ++b) {
    if (buckets_->defers_updates()) {
      buckets_->defer_update(b);
    } else {
      buckets_->before_change(b);
      update(b);
      if (!codes_->has(b)) buckets_->publish(b);
    }
  }
  if (!buckets_->defers_updates()) publish_codes();
  buckets_->weights_changed();
}

// Scales need the largest weights of all shards: one reduction for all buckets.
void Engine::publish_codes() {
  codes_->reduce();
  for (int b = 0; b < buckets_->size(); ++b) {
    if (!codes_->has(b)) continue;
    codes_->quantize(b, true);
    buckets_->publish(b);
  }
}

void Engine::update(int bucket) {
  before_state_changes();
  gate_.update_begins(*compute_, bucket);
  if (muon_) muon_->update(bucket);
  update_by_adamw(bucket);
  gate_.update_ends(*compute_, bucket);
}

void Engine::update_by_adamw(int bucket) {
  // AdamW updates the elements of which there are moments: all, or those that are in no matrix.
  const Bucket& b = (*buckets_)[bucket];
  const device::Tensor m = train_state_->tensor(bucket, spec::first_moment_state);
  if (m.elements() == 0) return;
  const int64_t first = b.own_params().elements() - m.elements();
  // The change of a weight is counted by the rank that has reduced its gradient.
  std::vector<spec::Range> counted =
      spec::counted_along_tp(b.layout(), b.reduced(), groups_->coord());
  for (spec::Range& range : counted) {
    range.begin -= b.updated().begin + first;
    range.end -= b.updated().begin + first;
  }
  optim::adamw(*compute_,
               {.weights = train_state_->weights(bucket).slice(first, m.elements()),
                .m = m,
                .v = train_state_->tensor(bucket, spec::second_moment_state),
                .grad = b.own_grads().slice_rows(first, m.elements()),
                .decayed = std::clamp<int64_t>(b.layout().decayed - b.updated().begin - first, 0,
                                               m.elements()),
                .changes = wide_sum(plan_.layers()),
                .counted = counted},
               options_.adamw, state_);
  codes_->measure(bucket);
}

device::Tensor Engine::wide_sum(int64_t index) const {
  return squares_.slice_rows(index, 1).reshape({spec::wide_sum_bytes});
}

void Engine::merge_records() {
  const int64_t copies = tensor_->ranks() * plan_.mesh[spec::Axis::pp];
  const int64_t slices = plan_.mesh[spec::Axis::cp];
  device::Tensor records = record_.reshape({1, record_.bytes()});
  if (groups_->closes_with_peers()) {
    records = all_records_;
    gate_.mark(*compute_, sink_.sums);
    groups_->after_compute();
    groups_->gather_records(all_records_, record_);
    groups_->before_compute(Wait::closing);
    ops::merge_sums(
        *compute_, {.parts = all_records_, .sums = sink_.sums, .copies = copies, .slices = slices});
  }
  if (options_.absent_tokens > 0) {
    compute_->upload(sink_.sums.slice_rows(offsetof(kernels::StepSums, tokens),
                                           sizeof(kernels::StepSums::tokens)),
                     std::as_bytes(std::span(&options_.absent_tokens, 1)));
  }
  ops::merge_records(*compute_, {.parts = records,
                                 .totals = device_signals_.slice_rows(
                                     state_.bytes(), device_signals_.bytes() - state_.bytes()),
                                 .copies = copies,
                                 .slices = slices});
}

StateAccess& Engine::trusted() {
  if (gate_.is_raised() && !sealed_step()) {
    throw base::CommAborted(
        "the ranks were aborted between updates of a step, so the state of this rank is that of no "
        "step and must not be used; restore one that was saved");
  }
  return *access_;
}

void Engine::complete_updates() {
  if (!gate_.has_closed()) return;
  if (buckets_->defers_updates()) {
    buckets_->flush_updates();
  } else if (!muon_) {
    for (int b = 0; b < buckets_->size(); ++b) {
      if (gate_.is_missing(b)) update(b);
    }
  }
}

std::optional<int64_t> Engine::sealed_step() {
  TRIREME_CHECK(!plan_.inference, "the step of a state under an inference plan");
  close(comm::End::abort);
  if (gate_.is_late() || (gate_.is_on() && muon_ != nullptr)) return std::nullopt;
  try {
    complete_updates();
  } catch (const base::CommAborted&) {
    // An update needs another rank, so it stays missing.
  }
  compute_->drain();
  kernels::StepState state{};
  compute_->download(std::as_writable_bytes(std::span(&state, 1)), state_);
  compute_->drain();
  const int64_t step = state.applied + state.skipped;
  if (state.skip == kernels::StepSkip::torn || prepared_at_ == step) return std::nullopt;
  if (state.skip == kernels::StepSkip::none && !gate_.has_updated_all()) return std::nullopt;
  if (delayed_->is_on()) delayed_->state_changed();
  routers_->begin_step();
  compute_->drain();
  return step;
}

void Engine::state_changed() {
  access_->state_changed();
  delayed_->state_changed();
  has_scales_ = false;
}

spec::TrafficTable Engine::traffic() const {
  spec::TrafficTable sent = groups_->traffic() + tensor_->traffic() + context_->traffic() +
                            experts_->traffic() + pipe_->traffic() + captured_.replayed() -
                            preparation_;
  sent.other += preparation_.total();
  return sent;
}

std::vector<StepSignals> Engine::drain_signals() {
  compute_->synchronize();
  return signals_->take(*compute_);
}

StepReport Engine::report() {
  const kernels::StepState state = access_->step_state();
  return {.mean_loss = state.mean_loss,
          .tokens = state.tokens,
          .grad_norm = state.grad_norm,
          .clip_limit = state.clip_limit,
          .learning_rate = state.learning_rate,
          .was_skipped = state.skip != 0,
          .sample_hash = state.samples,
          .same_samples = state.unlike == 0,
          .overflow = state.overflow,
          .applied = state.applied,
          .skipped = state.skipped,
          .skipped_in_a_row = state.skipped_in_a_row,
          .row_first = state.row_first,
          .row_norm = state.row_norm,
          .row_mean = state.row_mean,
          .loss_scale = state.step_scale,
          .next_loss_scale = loss_scale_.is_on() ? state.loss_scale : 0,
          .not_finite = state.not_finite};
}

EvalReport Engine::evaluate(MicrobatchSource& source, std::span<float> token_losses) {
  if (!token_losses.empty()) sink_.token_losses = token_losses_.front();
  run_forward(source);
  sink_.token_losses = {};
  const int head_rank = plan_.schedule.lanes.front().back();
  pipe_->share(sink_.sums, head_rank);
  if (!token_losses.empty()) pipe_->share(token_losses_.front(), head_rank);
  if (context_->ranks() > 1) {
    const EvalReport report = gather_report(token_losses);
    ops::fill(*compute_, {.d = sink_.sums});
    compute_->synchronize();
    return report;
  }
  kernels::StepSums sums{};
  compute_->download(std::as_writable_bytes(std::span(&sums, 1)), sink_.sums);
  if (!token_losses.empty()) {
    compute_->download(std::as_writable_bytes(token_losses), token_losses_.front());
  }
  ops::fill(*compute_, {.d = sink_.sums});
  compute_->synchronize();
  return {sums.loss, sums.tokens};
}

EvalReport Engine::gather_report(std::span<float> token_losses) {
  const spec::ContextSplit split = spec::local_shape_of(plan_).context();
  const auto rows = static_cast<size_t>(split.rank_tokens());
  const device::Tensor own = reports_.slice_rows(context_->rank(), 1).reshape({reports_.cols()});
  compute_->copy_bytes(own.slice_rows(0, spec::step_sums_bytes), sink_.sums);
  const device::Tensor losses = token_losses_.front();
  compute_->copy_bytes(own.slice_rows(spec::step_sums_bytes, losses.bytes()),
                       device::view_of(losses.data, {{losses.bytes()}, base::DType::u8}));
  context_->gather(reports_, own);
  std::vector<std::byte> all(static_cast<size_t>(reports_.bytes()));
  compute_->download(all, reports_);
  compute_->synchronize();
  EvalReport report;
  for (int rank = 0; rank < split.cp(); ++rank) {
    const std::byte* from = all.data() + rank * reports_.cols();
    kernels::StepSums sums{};
    std::memcpy(&sums, from, sizeof(sums));
    report.loss_sum += sums.loss;
    report.tokens += sums.tokens;
    if (token_losses.empty()) continue;
    std::vector<float> part(rows);
    std::memcpy(part.data(), from + spec::step_sums_bytes, rows * sizeof(float));
    const spec::Rows at = spec::rank_rows(split, rank, inputs_->host_offsets(0));
    for (size_t t = 0; t < rows; ++t) token_losses[static_cast<size_t>(at[t])] = part[t];
  }
  return report;
}

std::optional<double> Engine::transfer_seconds() {
  if (context_->ranks() == 1) return std::nullopt;
  compute_->synchronize();
  return times_->last_wait(Wait::cp);
}

std::optional<double> Engine::row_transfer_seconds() {
  if (experts_->side() == nullptr) return std::nullopt;
  compute_->synchronize();
  return times_->last_wait(Wait::ep);
}

int64_t Engine::attention_pairs() const {
  int64_t pairs = 0;
  for (int m = 0; m < plan_.schedule.microbatches; ++m) pairs += inputs_->own_pairs(m);
  return pairs;
}

double Engine::pairs_max_over_mean() const {
  double most = 0, mean = 0;
  for (int m = 0; m < plan_.schedule.microbatches; ++m) {
    const std::vector<int64_t>& pairs = inputs_->pairs(m);
    if (pairs.empty()) return 1;
    most += static_cast<double>(*std::ranges::max_element(pairs));
    mean += std::accumulate(pairs.begin(), pairs.end(), 0.0) / static_cast<double>(pairs.size());
  }
  return mean > 0 ? most / mean : 1;
}

std::vector<float> Engine::step_losses() {
  if (!plan_.keeps_losses || pipe_->rank() != plan_.schedule.lanes.front().back()) return {};
  const auto tokens = static_cast<size_t>(plan_.microbatch_tokens());
  const auto own = static_cast<size_t>(plan_.rank_tokens());
  std::vector<float> losses(token_losses_.size() * own);
  for (size_t i = 0; i < token_losses_.size(); ++i) {
    compute_->download(std::as_writable_bytes(std::span(losses).subspan(i * own, own)),
                       token_losses_[i]);
  }
  compute_->synchronize();
  if (context_->ranks() == 1) return losses;
  std::vector<float> by_row(token_losses_.size() * tokens, 0.0F);
  for (size_t i = 0; i < token_losses_.size(); ++i) {
    const spec::Rows& rows = inputs_->rows(static_cast<int>(i));
    for (size_t t = 0; t < own; ++t) {
      by_row[i * tokens + static_cast<size_t>(rows[t])] = losses[i * own + t];
    }
  }
  return by_row;
}

std::vector<float> Engine::logits(MicrobatchSource& source, int64_t token) {
  TRIREME_CHECK(plan_.inference && token >= 0 && token < plan_.microbatch_tokens(),
                "logits of token {}", token);
  const base::TensorSpec spec{{1, vocab_}, base::DType::f32};
  if (!logits_arena_) {
    logits_arena_ =
        std::make_unique<device::Arena>(make_arena(device_, Mem::staging, base::bytes_of(spec)));
  }
  const device::Arena::Mark mark(*logits_arena_);
  sink_.logits = logits_arena_->take(spec);
  sink_.first_logits_row = token;
  run_forward(source);
  std::vector<float> values(static_cast<size_t>(vocab_));
  compute_->download(std::as_writable_bytes(std::span(values)), sink_.logits.reshape({vocab_}));
  ops::fill(*compute_, {.d = sink_.sums});
  compute_->synchronize();
  sink_.logits = {};
  return values;
}

void Engine::run_forward(MicrobatchSource& source) {
  times_->interrupt();
  inputs_->load(source, 1);
  inputs_->take(*compute_, 1);
  executor_->evaluate(*compute_, *inputs_, sink_);
}

spec::MemoryTable Engine::measured() const {
  spec::MemoryTable m;
  m.params = arenas_->params.high_water();
  m.grads = arenas_->grads.high_water();
  m.optim = arenas_->optim.high_water();
  m.scratch = arenas_->scratch.high_water();
  m.comm = arenas_->comm.high_water();
  m.staging = arenas_->staging.high_water();
  m.stash_inputs = stash_->peak(spec::Pool::inputs);
  m.stash_f_to_b = stash_->peak(spec::Pool::f_to_b);
  m.stash_f_to_w = stash_->peak(spec::Pool::f_to_w);
  m.stash_b_to_w = stash_->peak(spec::Pool::b_to_w);
  m.stash_gradients = stash_->peak(spec::Pool::gradients);
  m.stash_recompute = stash_->peak(spec::Pool::recompute);
  m.stash_stream = stash_->peak(spec::Pool::stream);
  m.stash_gaps = stash_->gap_bytes();
  return m;
}

}  // namespace trireme::engine
