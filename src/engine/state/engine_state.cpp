// SPDX-License-Identifier: Apache-2.0
// Engine: the state that a checkpoint saves.
#include "base/check.h"
#include "engine/engine.h"
#include "engine/state/host_floats.h"

namespace trireme::engine {

void Engine::flush_updates() {
  TRIREME_CHECK(optimizer_ != nullptr, "state under an inference plan");
  buckets_->flush_updates();
}

std::vector<Engine::StateRange> Engine::state() {
  flush_updates();
  const std::vector<int> layers = spec::layers_of_rank(model_, plan_, pipe_->rank());
  std::vector<StateRange> all;
  for (int b = 0; b < buckets_->size(); ++b) {
    const int layer = layers[static_cast<size_t>(b)];
    const spec::Range range = (*buckets_)[b].updated();
    all.push_back({layer, StateKind::weight, range, optimizer_->weights(b)});
    all.push_back({layer, StateKind::first_moment, range, {optimizer_->first_moment(b)}});
    all.push_back({layer, StateKind::second_moment, range, {optimizer_->second_moment(b)}});
  }
  return all;
}

void Engine::hold_state(device::Event until) { held_ = std::move(until); }

std::vector<float> Engine::read_state(const StateRange& range) {
  return download_floats(*compute_, range.floats);
}

void Engine::write_state(const StateRange& range, std::span<const float> values) {
  // With split fp32 weights this writes parameters, which another rank may still be reading.
  buckets_->before_change(buckets_->index_of_layer(range.layer));
  upload_floats(*compute_, range.floats, values);
}

void Engine::state_changed() {
  for (int b = 0; b < buckets_->size(); ++b) {
    buckets_->before_change(b);
    publish_weights(b);
  }
  buckets_->weights_changed();
}

kernels::StepState Engine::step_state() {
  kernels::StepState state{};
  compute_->download(std::as_writable_bytes(std::span(&state, 1)), state_);
  compute_->synchronize();
  return state;
}

void Engine::set_step_state(const kernels::StepState& state) {
  compute_->upload(state_, std::as_bytes(std::span(&state, 1)));
  compute_->synchronize();
}

}  // namespace trireme::engine
