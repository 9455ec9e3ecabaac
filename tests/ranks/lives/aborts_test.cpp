// SPDX-License-Identifier: Apache-2.0
// After an abort, state is not trusted: ranks are aborted at random ops, in calls that end without
// an error as on a GPU, and a rank whose Engine::sealed_step() has a value has the state of that
// step of a quiet run, bit by bit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "base/sha256.h"
#include "comm/failure/faulty.h"
#include "kernels/ops.h"
#include "spec/experts/router_state.h"
#include "tests/ranks/ranks_rig.h"

namespace trireme::tests {
namespace {

constexpr int abort_steps = 3;
const std::vector<comm::Fault> silent_ends = {{.what = comm::Fault::What::silent_end}};

// Calls `fire` at the `left`-th op that is queued.
class AtOp final : public kernels::OpObserver {
 public:
  AtOp(int64_t left, std::function<void()> fire) : left_(left), fire_(std::move(fire)) {}
  void op(const device::Stream&, const spec::OpCost&) override {
    ++count_;
    if (--left_ == 0) fire_();
  }
  int64_t count() const { return count_; }

 private:
  int64_t left_, count_ = 0;
  std::function<void()> fire_;
};

void observe(engine::Engine& engine, kernels::OpObserver* observer) {
  for (device::Stream* stream : engine.streams()) stream->set_observer(observer);
}

// The hash of all that is carried from step to step. The ranges are those of an earlier
// Engine::state().
std::string hash_of(engine::Engine& engine, const std::vector<engine::Engine::StateRange>& ranges) {
  base::Sha256 sha;
  for (const engine::Engine::StateRange& range : ranges) {
    // What a step counts; the next one begins with zeros.
    if (range.tensor.name == spec::router_stats_state) continue;
    if (range.tensor.name == spec::router_fill_state) continue;
    const std::vector<float> values = engine.read_state(range);
    sha.update(std::as_bytes(std::span(values)));
  }
  kernels::StepState carried = engine.step_state();
  // The results of the last step are not carried.
  carried.learning_rate = carried.grad_scale = carried.grad_norm = carried.clip_limit = 0;
  carried.step_scale = carried.step_factor = 0;
  carried.mean_loss = 0;
  carried.tokens = carried.unlike = carried.overflow = 0;
  carried.samples = 0;
  carried.skip = kernels::StepSkip::none;
  sha.update(std::as_bytes(std::span(&carried, 1)));
  return sha.hex();
}

void run_with(const Layout& layout, const std::vector<comm::Fault>& faults,
              const std::function<void(RankRig&)>& body) {
  comm::ThreadWorld world(ranks_of(layout), 60);
  comm::run_ranks(world, [&](int rank) {
    device::CpuDevice device(kernels::cpu_kernels(), {.streams = layout.streams});
    comm::FaultyCommunicator communicator(world.communicator(rank, {.name = "world"}), faults);
    run_rank(layout, communicator, device, body);
  });
}

struct QuietRun {
  std::vector<std::vector<std::string>> hashes;  // by rank and step, the initial state first
  std::vector<int64_t> ops;                      // by rank
};

QuietRun quiet_run(const Layout& layout) {
  QuietRun run;
  run.hashes.resize(static_cast<size_t>(ranks_of(layout)));
  run.ops.resize(run.hashes.size());
  run_with(layout, {}, [&](RankRig& rig) {
    const auto rank = static_cast<size_t>(rig.mesh.world().rank());
    AtOp counter(0, [] {});
    run.hashes[rank].push_back(hash_of(rig.engine, rig.engine.state()));
    observe(rig.engine, &counter);
    for (int step = 0; step < abort_steps; ++step) {
      rig.engine.step(rig.source, 1e-3);
      rig.next_step();
      run.hashes[rank].push_back(hash_of(rig.engine, rig.engine.state()));
    }
    observe(rig.engine, nullptr);
    run.ops[rank] = counter.count();
  });
  return run;
}

// How the ranks are aborted.
enum class Abort : uint8_t {
  by_a_failure,   // the rank throws, which unwinds its step
  by_a_verdict,   // the rank goes on until a call throws
  in_the_stream,  // the same, in the order of compute: the host has gone on
  count
};

struct Outcomes {
  std::mutex mutex;  // guards all
  int sealed = 0;    // ranks whose state is that of a step
  int none = 0;
  int wrong = 0;            // of the sealed ones: the state differs from the quiet run
  int wrong_unchecked = 0;  // of all: the same, if the state is taken at once
  std::map<std::string, std::pair<int, int>> by_layout;  // sealed, none
};

struct Planned {
  int rank = 0;
  int64_t op = 1;
  Abort how = Abort::by_a_failure;
};

void abort_once(const Layout& layout, const QuietRun& quiet, const Planned& planned,
                const std::vector<comm::Fault>& faults, Outcomes& outcomes) {
  run_with(layout, faults, [&](RankRig& rig) {
    comm::Communicator& world = rig.mesh.world();
    const auto rank = static_cast<size_t>(world.rank());
    const std::vector<engine::Engine::StateRange> ranges = rig.engine.state();
    AtOp trigger(planned.rank == world.rank() ? planned.op : 0, [&] {
      if (planned.how == Abort::in_the_stream) {
        rig.engine.compute().call_host([&world] { world.abort("planted"); });
        return;
      }
      world.abort("planted");
      if (planned.how == Abort::by_a_failure) throw std::runtime_error("planted");
    });
    world.barrier();  // all have built their engines
    observe(rig.engine, &trigger);
    try {
      for (int step = 0; step < abort_steps; ++step) {
        rig.engine.step(rig.source, 1e-3);
        rig.next_step();
      }
      rig.engine.compute().synchronize();
      world.barrier();
    } catch (const base::CommAborted&) {
      // Expected: the ranks are aborted.
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "planted");
    }
    observe(rig.engine, nullptr);
    bool is_wrong_unchecked = false;
    if (layout.streams == device::StreamMode::inline_calls) {
      const kernels::StepState state = rig.engine.step_state();
      const auto step = static_cast<size_t>(state.applied + state.skipped);
      is_wrong_unchecked = hash_of(rig.engine, ranges) != quiet.hashes[rank].at(step);
    }
    const std::optional<int64_t> sealed = rig.engine.sealed_step();
    bool is_wrong = false;
    if (sealed) {
      is_wrong = hash_of(rig.engine, ranges) != quiet.hashes[rank].at(static_cast<size_t>(*sealed));
    } else {
      EXPECT_THROW((void)rig.engine.state(), base::CommAborted);
    }
    const std::scoped_lock lock(outcomes.mutex);
    ++(sealed ? outcomes.sealed : outcomes.none);
    auto& [with, without] = outcomes.by_layout[to_string(layout)];
    ++(sealed ? with : without);
    outcomes.wrong += is_wrong ? 1 : 0;
    outcomes.wrong_unchecked += is_wrong_unchecked ? 1 : 0;
  });
}

// `count` aborts at random ops of random ranks.
void abort_often(const Layout& layout, int count, uint64_t seed, Outcomes& outcomes,
                 const std::vector<comm::Fault>& faults) {
  const QuietRun quiet = quiet_run(layout);
  auto draw = [&, next = uint64_t{0}](int64_t below) mutable {
    return static_cast<int64_t>(base::rng_below(seed, next++, static_cast<uint64_t>(below)));
  };
  for (int i = 0; i < count; ++i) {
    Planned planned;
    planned.rank = static_cast<int>(draw(ranks_of(layout)));
    planned.op = 1 + draw(quiet.ops[static_cast<size_t>(planned.rank)]);
    planned.how = static_cast<Abort>(draw(static_cast<int64_t>(Abort::count)));
    SCOPED_TRACE(fmt::format("{}: seed {}, abort {} at op {} of rank {}, {}", to_string(layout),
                             seed, i, planned.op, planned.rank, static_cast<int>(planned.how)));
    abort_once(layout, quiet, planned, faults, outcomes);
  }
}

// Large enough for products in 8 bits.
spec::ModelDims coded_llama() {
  spec::ModelDims dims = tiny_llama();
  dims.name += "-coded";
  dims.hidden = 64;
  dims.heads = dims.kv_heads = 4;
  dims.head_dim = 16;
  dims.ffn = 96;
  dims.max_seq = 32;
  return dims;
}

std::vector<Layout> aborted_layouts() {
  const auto muon = spec::OptimizerKind::muon;
  std::vector<Layout> all = {
      {.dims = tiny_llama(), .dp = 2, .logical_dp = 2},
      {.dims = tiny_llama(), .zero = 2, .stage = 1, .logical_dp = 2},
      {.dims = tiny_llama(), .zero = 2, .stage = 2, .logical_dp = 2},
      {.dims = tiny_llama(), .zero = 2, .stage = 3, .recipe = "bf16", .logical_dp = 2},
      {.dims = tiny_llama(), .dp = 2, .zero = 2, .stage = 3, .logical_dp = 4},
      {.dims = tiny_llama(), .tp = 2, .sequence_parallel = true, .logical_dp = 1},
      {.dims = tiny_llama(), .pp = 2, .logical_dp = 1, .microbatches = 2},
      {.dims = tiny_llama(), .dp = 2, .logical_dp = 2, .optimizer = muon},
      {.dims = tiny_llama(), .zero = 2, .stage = 2, .logical_dp = 2, .optimizer = muon},
      {.dims = tiny_shared_moe(), .dp = 2, .ep = 2, .logical_dp = 2, .seq_len = 8},
      {.dims = coded_llama(), .dp = 2, .recipe = "fp8-delayed", .logical_dp = 2, .seq_len = 16},
      {.dims = tiny_llama(), .zero = 2, .stage = 1, .pp = 2, .recipe = "fp16", .logical_dp = 2}};
  const size_t inline_ones = all.size();
  for (size_t i = 0; i < inline_ones; ++i) {
    all.push_back(all[i]);
    all.back().streams = device::StreamMode::worker_threads;
  }
  return all;
}

// 24 aborts; 504 with TRIREME_FULL=1.
TEST(AbortsTest, no_wrong_state_is_ever_sealed) {
  const int count = std::getenv("TRIREME_FULL") != nullptr ? 21 : 1;
  Outcomes outcomes;
  uint64_t seed = 4500;
  for (const Layout& layout : aborted_layouts()) {
    // Counts of rows that have not arrived would lead experts out of their memory.
    const bool has_counts = layout.ep > 1;
    abort_often(layout, count, seed++, outcomes,
                has_counts ? std::vector<comm::Fault>{} : silent_ends);
  }
  EXPECT_EQ(outcomes.wrong, 0);
  // Most of the ranks have the state of the last step or of the one
  // before.
  EXPECT_GT(outcomes.sealed, outcomes.none);
  for (const auto& [layout, counts] : outcomes.by_layout) {
    fmt::print("{:4} of {:4} ranks sealed  {}\n", counts.first, counts.first + counts.second,
               layout);
  }
  fmt::print("{} of {} ranks sealed\n", outcomes.sealed, outcomes.sealed + outcomes.none);
}

// The plant "live state taken unchecked": the comparison with the quiet run finds it, in the middle
// of deferred updates and where a call has ended silently.
TEST(AbortsTest, state_that_is_taken_unchecked_is_found) {
  const Layout layout = {.dims = tiny_llama(), .dp = 2, .logical_dp = 2};
  Outcomes outcomes;
  abort_often(layout, 24, 4545, outcomes, silent_ends);
  EXPECT_GT(outcomes.wrong_unchecked, 0);
  EXPECT_EQ(outcomes.wrong, 0);
}

// Without flags no gate closes, and updates run on what aborted calls have left.
TEST(AbortsTest, without_gates_wrong_states_are_found) {
  const Layout layout = {.dims = tiny_llama(), .zero = 2, .stage = 1, .logical_dp = 2};
  Outcomes gated, open;
  abort_often(layout, 24, 4546, gated, silent_ends);
  abort_often(layout, 24, 4546, open,
              {{.what = comm::Fault::What::silent_end}, {.what = comm::Fault::What::unflagged}});
  EXPECT_EQ(gated.wrong, 0);
  EXPECT_GT(open.wrong, 0);
}

}  // namespace
}  // namespace trireme::tests
