// SPDX-License-Identifier: Apache-2.0
// The training state between engines, by names and boxes: from one layout into another, and from
// the memory of some ranks to a rank that has none.
#include <gtest/gtest.h>

#include <mutex>
#include <optional>
#include <string>

#include "base/error.h"
#include "tests/ranks/ranks_rig.h"
#include "train/run/state/epoch_state.h"

namespace trireme::tests {
namespace {

using train::EngineState;

void train_steps(RankRig& rig, int from, int to) {
  for (int step = 0; step < to; ++step) {
    if (step >= from) rig.engine.step(rig.source, 1e-3);
    rig.next_step();
  }
}

const spec::Coord& coord_of(const RankRig& rig) { return rig.mesh.coord(); }

TEST(EngineStateTest, shards_of_a_layout_continue_in_another_one) {
  for (const auto optimizer : {spec::OptimizerKind::adamw, spec::OptimizerKind::muon}) {
    const Layout one{.dims = tiny_llama(), .logical_dp = 4, .optimizer = optimizer};
    Layout sharded = one, tp = one;
    sharded.zero = 4;
    sharded.stage = 1;
    tp.tp = 2;
    tp.dp = 2;
    std::string expected;
    run_layout(one, [&](RankRig& rig) {
      train_steps(rig, 0, 5);
      expected = rig.engine.weights_sha256();
    });
    EngineState all;  // of all ranks
    std::mutex mutex;
    run_layout(sharded, [&](RankRig& rig) {
      train_steps(rig, 0, 3);
      EngineState own = train::take_state(rig.engine, rig.model, coord_of(rig));
      EXPECT_EQ(own.bytes(),
                train::state_copy_bytes(rig.model, rig.engine.plan(), rig.mesh.world().rank()));
      const std::scoped_lock lock(mutex);
      all.step = own.step;
      for (EngineState::Part& part : own.parts) all.parts.push_back(std::move(part));
    });
    run_layout(one, [&](RankRig& rig) {
      train::put_state(rig.engine, rig.model, coord_of(rig), all);
      train_steps(rig, 3, 5);
      EXPECT_EQ(rig.engine.weights_sha256(), expected);
    });
    // Another cut of the tensors. Its sums have another order, so only the state is compared.
    std::optional<EngineState> taken;
    run_layout(tp, [&](RankRig& rig) {
      train::put_state(rig.engine, rig.model, coord_of(rig), all);
      if (rig.mesh.world().rank() == 0) {
        taken = train::take_state(rig.engine, rig.model, coord_of(rig));
      }
    });
    EXPECT_EQ(taken->step.applied, 3);
  }
}

TEST(EngineStateTest, a_state_that_lacks_a_box_is_refused) {
  const Layout one{.dims = tiny_llama(), .logical_dp = 4};
  Layout sharded = one;
  sharded.zero = 4;
  sharded.stage = 1;
  EngineState part;
  run_layout(sharded, [&](RankRig& rig) {
    if (rig.mesh.world().rank() == 1) {
      part = train::take_state(rig.engine, rig.model, coord_of(rig));
    }
  });
  run_layout(one, [&](RankRig& rig) {
    EXPECT_THROW(train::put_state(rig.engine, rig.model, coord_of(rig), part), base::Error);
  });
}

}  // namespace
}  // namespace trireme::tests
