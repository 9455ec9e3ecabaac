// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/rng.h"
#include "base/sha256.h"
#include "kernels/ops.h"
#include "kernels/step_state.h"
#include "spec/predict.h"

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

// Layers times micro-batches of a step that is worth capturing: a layer is about thirty nodes of a
// graph, and the host needs about a second to prepare 25,000.
constexpr int most_captured_layers = 800;

// Fills the flat stretch `d`, which holds `pieces` of a parameter, as its description says.
void init_param(device::Stream& stream, const spec::Param& param, uint64_t seed,
                const std::vector<spec::Piece>& pieces, device::Tensor d) {
  if (param.init != spec::Init::normal) {
    ops::fill(stream, {.d = d, .value = param.init == spec::Init::ones ? 1.0F : 0.0F});
    return;
  }
  const base::RngKey key = base::rng_key(seed, param.shard.name);
  for (const spec::Piece& piece : pieces) {
    TRIREME_CHECK(piece.lo.size() == 2, "'{}' is drawn but not a matrix", param.shard.name);
    const int64_t rows = piece.hi[0] - piece.lo[0], cols = piece.hi[1] - piece.lo[1];
    const int64_t width = param.shard.shape[1];
    ops::init_normal(stream, {.d = d.slice_rows(piece.local, rows * cols).reshape({rows, cols}),
                              .key = key,
                              .first = static_cast<uint64_t>(piece.lo[0] * width + piece.lo[1]),
                              .global_row_stride = static_cast<uint64_t>(width),
                              .std_dev = param.init_std});
  }
}

// A flat f32 or bf16 tensor as floats. Both wait for the device.
std::vector<float> download_floats(device::Stream& stream, const device::Tensor& from) {
  std::vector<float> values(static_cast<size_t>(from.elements()));
  if (from.dtype == base::DType::f32) {
    stream.download(std::as_writable_bytes(std::span(values)), from);
    stream.synchronize();
    return values;
  }
  std::vector<base::Bf16> stored(values.size());
  stream.download(std::as_writable_bytes(std::span(stored)), from);
  stream.synchronize();
  std::transform(stored.begin(), stored.end(), values.begin(),
                 [](base::Bf16 v) { return static_cast<float>(v); });
  return values;
}

void upload_floats(device::Stream& stream, const device::Tensor& to,
                   std::span<const float> values) {
  if (to.dtype == base::DType::f32) {
    stream.upload(to, std::as_bytes(values));
    stream.synchronize();
    return;
  }
  std::vector<base::Bf16> stored(values.size());
  std::transform(values.begin(), values.end(), stored.begin(),
                 [](float v) { return base::Bf16(v); });
  stream.upload(to, std::as_bytes(std::span(stored)));
  stream.synchronize();
}

}  // namespace

struct Engine::Arenas {
  Arenas(device::Device& device, const spec::MemoryTable& m)
      : params(make_arena(device, Mem::params, m.params)),
        grads(make_arena(device, Mem::grads, m.grads)),
        optim(make_arena(device, Mem::optim, m.optim)),
        scratch(make_arena(device, Mem::scratch, m.scratch)),
        staging(make_arena(device, Mem::staging, m.staging)) {}

  device::Arena params, grads, optim, scratch, staging;
};

Engine::Engine(device::Device& device, const spec::ModelSpec& model, const spec::Plan& plan,
               const spec::Backend& backend, const EngineOptions& options)
    : device_(device),
      plan_(checked(model, plan, backend)),
      options_(options),
      compute_(device.make_stream("compute")),
      arenas_(std::make_unique<Arenas>(device, plan_.predicted.memory.front())) {
  if (const base::TensorSpec workspace = spec::stream_workspace_spec(backend);
      workspace.shape.ndim() > 0) {
    compute_->set_workspace(arenas_->scratch.take(workspace));
  }
  stage_ = std::make_unique<Stage>(model, plan_, 0, backend, device, *compute_,
                                   StageMemory{arenas_->params, arenas_->grads, arenas_->scratch});
  inputs_ = std::make_unique<InputStaging>(device, arenas_->staging, spec::local_shape_of(plan_),
                                           plan_.schedule.microbatches,
                                           std::get<spec::HeadSpec>(model.layers.back()).vocab);
  executor_ = std::make_unique<Executor>(plan_.schedule, 0, std::vector<Stage*>{stage_.get()});
  vocab_ = std::get<spec::HeadSpec>(model.layers.back()).vocab;
  if (!plan_.inference) {
    std::vector<optim::ShardView> shards;
    for (const Bucket& bucket : stage_->buckets()) {
      shards.push_back({bucket.flat_params(), bucket.flat_grads(), bucket.layout().decayed});
    }
    optimizer_ = std::make_unique<optim::AdamW>(*compute_, arenas_->optim, shards, options.adamw);
  }
  token_losses_ = arenas_->staging.take(spec::token_losses_spec(spec::local_shape_of(plan_)));
  sink_.sums = arenas_->optim.take({{spec::step_sums_bytes}, base::DType::u8});
  state_ = arenas_->optim.take({{spec::step_state_bytes}, base::DType::u8});
  ops::fill(*compute_, {.d = sink_.sums});
  ops::fill(*compute_, {.d = state_});
  init_weights(options.seed);
}

Engine::~Engine() { compute_->synchronize(); }

void Engine::init_weights(uint64_t seed) {
  for (size_t b = 0; b < stage_->buckets().size(); ++b) {
    const Bucket& bucket = stage_->buckets()[b];
    const device::Tensor flat = flat_weights(static_cast<int>(b));
    ops::fill(*compute_, {.d = flat});  // padding too: it must stay zero
    for (const spec::BucketEntry& entry : bucket.layout().entries) {
      const spec::Param& param = bucket.specs()[static_cast<size_t>(entry.param)];
      init_param(*compute_, param, seed,
                 spec::pieces(param.shard, plan_.mesh, {}, {0, entry.elements}),
                 flat.slice_rows(entry.offset, entry.elements));
    }
  }
  if (optimizer_) optimizer_->publish(*compute_);
}

void Engine::step(MicrobatchSource& source, double learning_rate) {
  const device::Range range(*compute_, "step");
  take_batches(source);
  set_learning_rate(learning_rate);
  const auto queue = [this] {
    run_microbatches();
    close_step();
  };
  // The first step is run as it is: libraries choose their algorithms then. A step that somebody
  // watches is not replayed, because a replay passes no fronts.
  const bool is_replayed = options_.capture && steps_ > 0 && compute_->observer() == nullptr &&
                           plan_.schedule.microbatches * stage_->layers() <= most_captured_layers;
  if (is_replayed && !graph_) graph_ = compute_->capture(queue);
  if (is_replayed && graph_) {
    compute_->launch(*graph_);
  } else {
    queue();
  }
  ++steps_;
  device_.ledger().freeze();
}

void Engine::accumulate(MicrobatchSource& source) {
  take_batches(source);
  run_microbatches();
}

void Engine::apply(double learning_rate) {
  set_learning_rate(learning_rate);
  close_step();
}

void Engine::take_batches(MicrobatchSource& source) {
  TRIREME_CHECK(!plan_.inference, "a training step under an inference plan");
  inputs_->load(source, plan_.schedule.microbatches);
  inputs_->take(*compute_, plan_.schedule.microbatches);
}

void Engine::set_learning_rate(double learning_rate) {
  // The first field of StepState. The value is an argument of the launch, so this is never part of
  // a captured step.
  ops::fill(*compute_, {.d = device::view_of(state_.data, {{1}, base::DType::f32}),
                        .value = static_cast<float>(learning_rate)});
}

void Engine::run_microbatches() {
  stage_->zero_grads(*compute_);
  executor_->run(*compute_, *inputs_, sink_);
}

void Engine::close_step() {
  const device::Range range(*compute_, "optimizer");
  for (const Bucket& bucket : stage_->buckets()) {
    ops::sum_squares(*compute_, {.x = bucket.flat_grads(), .sums = sink_.sums});
  }
  ops::step_control(*compute_, {.sums = sink_.sums,
                                .state = state_,
                                .clip = options_.clip.kind,
                                .clip_norm = options_.clip.norm,
                                .guard_multiple = options_.clip.guard_multiple,
                                .guard_warmup = options_.clip.guard_warmup});
  optimizer_->step(*compute_, state_);
}

StepReport Engine::report() {
  kernels::StepState state{};
  compute_->download(std::as_writable_bytes(std::span(&state, 1)), state_);
  compute_->synchronize();
  return {.mean_loss = state.mean_loss,
          .tokens = state.tokens,
          .grad_norm = state.grad_norm,
          .clip_limit = state.clip_limit,
          .learning_rate = state.learning_rate,
          .was_skipped = state.skip != 0,
          .applied = state.applied,
          .skipped = state.skipped,
          .skipped_in_a_row = state.skipped_in_a_row};
}

EvalReport Engine::evaluate(MicrobatchSource& source, std::span<float> token_losses) {
  if (!token_losses.empty()) sink_.token_losses = token_losses_;
  run_forward(source);
  sink_.token_losses = {};
  kernels::StepSums sums{};
  compute_->download(std::as_writable_bytes(std::span(&sums, 1)), sink_.sums);
  if (!token_losses.empty()) {
    compute_->download(std::as_writable_bytes(token_losses), token_losses_);
  }
  ops::fill(*compute_, {.d = sink_.sums});
  compute_->synchronize();
  return {sums.loss, sums.tokens};
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
  inputs_->load(source, 1);
  inputs_->take(*compute_, 1);
  stage_->evaluate(*compute_, 0, inputs_->batch(0), sink_);
}

std::vector<Engine::ParamInfo> Engine::parameters() const {
  std::vector<ParamInfo> all;
  for (const Bucket& bucket : stage_->buckets()) {
    for (const spec::Param& param : bucket.specs()) {
      if (param.tied_copy || param.shard.shape.empty()) continue;
      all.push_back({param.shard.name, param.shard.shape});
    }
  }
  return all;
}

std::vector<float> Engine::read_weights(const std::string& name) {
  return download_floats(*compute_, weights_of(locate(name)));
}

void Engine::write_weights(const std::string& name, std::span<const float> values) {
  const Located at = locate(name);
  if (static_cast<int64_t>(values.size()) != at.elements) {
    throw base::ConfigError(
        fmt::format("'{}' has {} elements, {} were given", name, at.elements, values.size()));
  }
  upload_floats(*compute_, weights_of(at), values);
  if (optimizer_) optimizer_->publish(*compute_);
  compute_->synchronize();
}

std::vector<float> Engine::read_grads(const std::string& name) {
  TRIREME_CHECK(!plan_.inference, "gradients under an inference plan");
  const Located at = locate(name);
  const Bucket& bucket = stage_->buckets()[static_cast<size_t>(at.bucket)];
  return download_floats(*compute_, bucket.flat_grads().slice_rows(at.offset, at.elements));
}

std::string Engine::weights_sha256() {
  base::Sha256 sha;
  for (const ParamInfo& param : parameters()) {
    const std::vector<float> values = read_weights(param.name);
    sha.update(std::as_bytes(std::span(values)));
  }
  return sha.hex();
}

spec::MemoryTable Engine::measured() const {
  spec::MemoryTable m;
  m.params = arenas_->params.high_water();
  m.grads = arenas_->grads.high_water();
  m.optim = arenas_->optim.high_water();
  m.scratch = arenas_->scratch.high_water();
  m.staging = arenas_->staging.high_water();
  m.stash_f_to_b = stage_->stash().peak(spec::Pool::f_to_b);
  m.stash_f_to_w = stage_->stash().peak(spec::Pool::f_to_w);
  m.stash_b_to_w = stage_->stash().peak(spec::Pool::b_to_w);
  m.stash_recompute = stage_->stash().peak(spec::Pool::recompute);
  m.stash_stream = stage_->stash().peak(spec::Pool::stream);
  return m;
}

Engine::Located Engine::locate(const std::string& name) const {
  for (size_t b = 0; b < stage_->buckets().size(); ++b) {
    const Bucket& bucket = stage_->buckets()[b];
    const int param = bucket.find(name);
    if (param < 0) continue;
    for (const spec::BucketEntry& entry : bucket.layout().entries) {
      if (entry.param == param) return {static_cast<int>(b), param, entry.offset, entry.elements};
    }
  }
  throw base::ConfigError(fmt::format("the model has no parameter '{}'", name));
}

device::Tensor Engine::flat_weights(int bucket) const {
  return optimizer_ ? optimizer_->weights(bucket)
                    : stage_->buckets()[static_cast<size_t>(bucket)].flat_params();
}

device::Tensor Engine::weights_of(const Located& at) const {
  return flat_weights(at.bucket).slice_rows(at.offset, at.elements);
}

}  // namespace trireme::engine
