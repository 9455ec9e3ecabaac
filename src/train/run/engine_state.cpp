// SPDX-License-Identifier: Apache-2.0
#include "train/run/engine_state.h"

#include "base/check.h"

namespace trireme::train {

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
