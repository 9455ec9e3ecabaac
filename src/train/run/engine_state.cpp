// SPDX-License-Identifier: Apache-2.0
#include "train/run/engine_state.h"

#include "base/check.h"
#include "comm/mesh.h"
#include "spec/parallel/bucket.h"
#include "spec/parallel/data_parallel.h"
#include "spec/state/state_layout.h"

namespace trireme::train {

int64_t EngineState::bytes() const {
  int64_t sum = 0;
  for (const std::vector<float>& range : ranges) {
    sum += std::ssize(range) * static_cast<int64_t>(sizeof(float));
  }
  return sum;
}

int64_t state_copy_bytes(const spec::ModelSpec& model, const spec::Plan& plan, int rank) {
  const spec::Coord coord = comm::coord_of(plan.mesh, rank);
  int64_t elements = 0;
  for (const int layer : spec::layers_of_rank(model, plan, coord[spec::Axis::pp])) {
    const std::vector<spec::StateTensor> state = spec::state_of(model, layer, plan);
    for (const spec::StateTensor& tensor : state) {
      if (tensor.is_own()) elements += spec::own_state_spec(tensor, plan.mesh).shape.elements();
    }
    for (const spec::BucketLayout& layout :
         spec::layer_buckets(model, layer, plan.recipe, plan.mesh)) {
      for (const spec::StateTensor& tensor : spec::bucket_state(state, layout)) {
        if (tensor.is_own()) continue;
        const spec::Range range = spec::state_range(tensor, plan, coord, layout);
        elements += range.end - range.begin;
      }
    }
  }
  return elements * static_cast<int64_t>(sizeof(float));
}

EngineState take_state(engine::Engine& engine) {
  EngineState state;
  for (const engine::Engine::StateRange& range : engine.state()) {
    state.ranges.push_back(engine.read_state(range));
  }
  state.step = engine.step_state();
  state.step.overflow = 0;  // the new engine repeats the step
  return state;
}

void put_state(engine::Engine& engine, const EngineState& state) {
  const std::vector<engine::Engine::StateRange> ranges = engine.state();
  TRIREME_CHECK(ranges.size() == state.ranges.size(), "{} ranges of state for {}",
                state.ranges.size(), ranges.size());
  for (size_t i = 0; i < ranges.size(); ++i) engine.write_state(ranges[i], state.ranges[i]);
  engine.set_step_state(state.step);
  engine.state_changed();
}

}  // namespace trireme::train
