// SPDX-License-Identifier: Apache-2.0
// Times of steps by rank: classes sum to the time of the steps, waits are in the class of the axis
// that causes them, and the rank that is late waits least.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <numeric>
#include <thread>

#include "kernels/ops.h"
#include "tests/ranks/near_rig.h"

namespace trireme::tests {
namespace {

using engine::StepTimes;
using engine::Wait;

constexpr int timed_steps = 4;

double wait_of(const StepTimes& times, Wait wait) { return times.wait[static_cast<size_t>(wait)]; }

void expect_closed(const StepTimes& times, const std::string& what) {
  const double sum = std::accumulate(times.wait.begin(), times.wait.end(), 0.0);
  EXPECT_GT(times.compute, 0) << what;
  EXPECT_GE(times.gap, 0) << what;
  EXPECT_LE(std::abs(times.compute + times.gap + sum - times.seconds), 1e-9 * times.seconds)
      << what;
  EXPECT_LE(times.max_seconds, times.seconds) << what;
  EXPECT_GE(times.max_seconds * static_cast<double>(times.steps), times.seconds * (1 - 1e-9))
      << what;
}

// Makes every op of a rank slower.
class SlowOps final : public kernels::OpObserver {
 public:
  void op(const device::Stream&, const spec::OpCost&) override {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
};

// Returns the times of `timed_steps` steps by rank; `slow`: the rank whose ops are slower.
std::vector<StepTimes> times_of(const Layout& layout, int slow = -1) {
  std::vector<StepTimes> all(static_cast<size_t>(ranks_of(layout)));
  run_layout(layout, [&](RankRig& rig) {
    SlowOps slow_ops;
    const int rank = rig.mesh.world().rank();
    rig.engine.watch_waits(true);
    rig.engine.step(rig.source, 1e-3);  // warms up, and is not counted
    if (rank == slow) rig.engine.compute().set_observer(&slow_ops);
    for (int i = 0; i < timed_steps; ++i) rig.engine.step(rig.source, 1e-3);
    rig.engine.compute().synchronize();
    StepTimes& times = all[static_cast<size_t>(rank)];
    times = rig.engine.take_times();
    EXPECT_EQ(rig.engine.take_times().steps, 0);
    const std::string what = to_string(layout) + ", rank " + std::to_string(rank);
    EXPECT_EQ(times.steps, timed_steps) << what;
    EXPECT_EQ(times.measured_steps, timed_steps) << what;
    expect_closed(times, what);
    rig.engine.compute().set_observer(nullptr);
  });
  return all;
}

spec::ModelDims even_llama() {
  spec::ModelDims dims = tiny_llama();
  dims.name += "-even";
  dims.hidden = 32;
  dims.heads = dims.kv_heads = 4;
  dims.ffn = 48;
  dims.layers = 4;
  return dims;
}
spec::ModelDims even_moe() {
  spec::ModelDims dims = tiny_moe();
  dims.name += "-even";
  dims.moe->router.experts = 8;
  return dims;
}

struct Case {
  const char* name;
  Layout layout;
  Wait expected;  // the class of the layout's axis
};

std::vector<Case> cases() {
  const Layout base{.dims = even_llama(), .logical_dp = 2, .microbatches = 1, .seq_len = 8};
  const auto with = [&base](auto change) {
    Layout layout = base;
    change(layout);
    return layout;
  };
  return {
      {"dp", with([](Layout& l) { l.dp = 2; }), Wait::data},
      {"zero-1", with([](Layout& l) { l.zero = 2, l.stage = 1; }), Wait::data},
      {"zero-3", with([](Layout& l) { l.zero = 2, l.stage = 3; }), Wait::data},
      {"tp", with([](Layout& l) { l.tp = 2; }), Wait::tp},
      {"sp", with([](Layout& l) { l.tp = 2, l.sequence_parallel = true; }), Wait::tp},
      {"cp ring", with([](Layout& l) { l.cp = 2, l.context_kind = spec::ContextKind::ring; }),
       Wait::cp},
      {"cp gather", with([](Layout& l) { l.cp = 2; }), Wait::cp},
      {"ulysses", with([](Layout& l) { l.cp = 2, l.context_kind = spec::ContextKind::ulysses; }),
       Wait::cp},
      {"pp", with([](Layout& l) { l.pp = 2, l.microbatches = 3, l.logical_dp = 1; }), Wait::pp},
      {"ep", with([](Layout& l) { l.dims = even_moe(), l.dp = 2, l.ep = 2; }), Wait::ep},
  };
}

// Data ranks sum gradients in every layout with more than one of them.
bool has_data_ranks(const Layout& l) { return l.dp * l.zero * l.cp > 1; }

TEST(StepTimesTest, waits_are_in_the_class_of_their_axis) {
  for (const auto streams :
       {device::StreamMode::inline_calls, device::StreamMode::worker_threads}) {
    for (Case& c : cases()) {
      c.layout.streams = streams;
      const std::vector<StepTimes> all = times_of(c.layout);
      for (const StepTimes& times : all) {
        SCOPED_TRACE(to_string(c.layout));
        EXPECT_GT(wait_of(times, c.expected), 0) << c.name;
        EXPECT_GT(wait_of(times, Wait::closing), 0) << c.name;
        for (const Wait other : {Wait::tp, Wait::cp, Wait::ep, Wait::pp, Wait::data}) {
          const bool may_wait =
              other == c.expected || (other == Wait::data && has_data_ranks(c.layout));
          if (may_wait) continue;
          EXPECT_EQ(wait_of(times, other), 0) << c.name << ", " << device::name_of(other);
        }
        EXPECT_EQ(wait_of(times, Wait::save), 0);
      }
    }
  }
}

TEST(StepTimesTest, late_rank_waits_least) {
  size_t late = 0;
  for (const Case& c : cases()) {
    if (c.expected == Wait::pp) continue;  // stages wait for each other in every healthy step
    late = 1 - late;
    const std::vector<StepTimes> all = times_of(c.layout, static_cast<int>(late));
    SCOPED_TRACE(to_string(c.layout));
    EXPECT_GT(all[late].compute, all[1 - late].compute) << c.name;
    EXPECT_LT(wait_of(all[late], c.expected), wait_of(all[1 - late], c.expected)) << c.name;
  }
}

TEST(StepTimesTest, interrupted_time_belongs_to_no_step) {
  run_layout({.dims = tiny_llama(), .logical_dp = 1}, [](RankRig& rig) {
    const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); };
    rig.engine.step(rig.source, 1e-3);
    pause();
    rig.engine.step(rig.source, 1e-3);
    const StepTimes paused = rig.engine.take_times();
    EXPECT_EQ(paused.steps, 1);
    EXPECT_EQ(paused.measured_steps, 0);
    EXPECT_GE(paused.gap, 0.05);
    pause();
    rig.engine.interrupt_times();
    rig.engine.step(rig.source, 1e-3);
    const StepTimes interrupted = rig.engine.take_times();
    EXPECT_EQ(interrupted.steps, 1);
    EXPECT_EQ(interrupted.gap, 0);
    rig.engine.evaluate(rig.source);
    rig.engine.step(rig.source, 1e-3);
    EXPECT_EQ(rig.engine.take_times().gap, 0);
    expect_closed(paused, "paused");
  });
}

// Steps whose waits are not measured are divided as those whose waits are.
TEST(StepTimesTest, unmeasured_steps_are_divided_as_measured_ones) {
  run_layout({.dims = even_llama(), .dp = 2, .logical_dp = 2}, [](RankRig& rig) {
    for (int i = 0; i < 7; ++i) {
      rig.engine.watch_waits(i % 3 == 0);
      rig.engine.step(rig.source, 1e-3);
    }
    const StepTimes times = rig.engine.take_times();
    EXPECT_EQ(times.steps, 6);
    EXPECT_EQ(times.measured_steps, 2);
    EXPECT_GT(wait_of(times, Wait::data), 0);
    expect_closed(times, "some are measured");
  });
}

}  // namespace
}  // namespace trireme::tests
