// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts whose routers choose unevenly: all tokens to one expert, experts without
// tokens, one expert a rank, all experts for every token; budgets and capacities that some pairs
// exceed, counted by plain loops over the choices.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <mutex>

#include "base/error.h"
#include "spec/experts/expert_rows.h"
#include "spec/experts/router_state.h"
#include "tests/ranks/ranks_rig.h"

namespace trireme::tests {
namespace {

constexpr int64_t skew_experts = 8, skew_tokens = 12;

// Two blocks with a bias, by which a test decides what is chosen.
spec::ModelDims skew_model(int64_t chosen) {
  spec::ModelDims dims = tiny_moe();
  dims.moe->router = {.experts = skew_experts,
                      .chosen = chosen,
                      .score = spec::RouterScore::sigmoid,
                      .renormalizes = true,
                      .has_bias = true};
  return dims;
}

Layout skewed(int64_t chosen, int dp, int ep) {
  return {.dims = skew_model(chosen),
          .dp = dp,
          .ep = ep,
          .logical_dp = 4,
          .seq_len = skew_tokens,
          .adam_eps = 0.1F};
}

using Bias = std::vector<float>;
const Bias by_score(skew_experts, 0.0F);
// Every token chooses these experts first.
Bias preferring(std::initializer_list<size_t> experts) {
  Bias bias = by_score;
  for (const size_t e : experts) bias[e] = 100;
  return bias;
}

void write_bias(engine::Engine& engine, const Bias& bias) {
  for (const engine::Engine::StateRange& part : engine.state()) {
    if (part.tensor.name != spec::router_bias_state) continue;
    ASSERT_EQ(part.range.end - part.range.begin, skew_experts);
    engine.write_state(part, bias);
  }
  engine.state_changed();
}

// ---- the choices of a step, as route_rows receives them

struct Routed {
  std::vector<int32_t> choice;
  int64_t chosen = 0, blocks = 1, block_rows = 0, capacity = 0;
};
thread_local std::vector<Routed>* routed_here = nullptr;  // streams run inline, on a rank's thread

const kernels::Kernels& recording_kernels() {
  static const kernels::Kernels table = [] {
    kernels::Kernels k = kernels::cpu_kernels();
    k.route_rows = [](device::Stream& s, const kernels::RouteRowsArgs& a) {
      if (routed_here != nullptr) {
        Routed r{std::vector<int32_t>(static_cast<size_t>(a.choice.elements())), a.choice.cols(),
                 a.blocks, a.pair.elements() / a.blocks, a.capacity};
        std::memcpy(r.choice.data(), a.choice.data, r.choice.size() * sizeof(int32_t));
        routed_here->push_back(std::move(r));
      }
      kernels::cpu_kernels().route_rows(s, a);
    };
    return k;
  }();
  return table;
}

struct Drops {
  int64_t dropped = 0, lost = 0, overflow = 0;
  bool operator==(const Drops&) const = default;
};

// Goes through the experts of each block, and for each through the pairs that chose it.
Drops drops_of(const Routed& r) {
  Drops drops;
  const size_t tokens = r.choice.size() / static_cast<size_t>(r.chosen);
  std::vector<int64_t> kept(tokens, 0);
  const int64_t neighbours = skew_experts / r.blocks;
  for (int64_t block = 0; block < r.blocks; ++block) {
    int64_t rows = 0;
    for (int64_t e = block * neighbours; e < (block + 1) * neighbours; ++e) {
      int64_t of_expert = 0;
      for (size_t pair = 0; pair < r.choice.size(); ++pair) {
        if (r.choice[pair] != e) continue;
        if (r.capacity > 0 && of_expert == r.capacity) {
          ++drops.dropped;
        } else if (++of_expert; rows == r.block_rows) {
          ++drops.dropped;
          ++drops.overflow;
        } else {
          ++rows;
          ++kept[pair / static_cast<size_t>(r.chosen)];
        }
      }
    }
  }
  drops.lost = std::count(kept.begin(), kept.end(), 0);
  return drops;
}

// ---- runs

struct SkewResults {
  std::map<std::string, std::vector<float>> grads, weights;  // of the first step; at the end
  std::vector<double> losses;
  std::vector<engine::RouterUpdate::LayerStats> routers;  // of the last step
  std::vector<Routed> routed;                             // of all ranks in the last step
  engine::StepReport report;
};

void run_recorded(const Layout& layout, const std::function<void(RankRig&)>& body) {
  comm::ThreadWorld world(ranks_of(layout), 60);
  comm::run_ranks(world, [&](int rank) {
    device::CpuDevice device(recording_kernels(), {});
    const auto communicator = world.communicator(rank, {.name = "world"});
    run_rank(layout, *communicator, device, body);
  });
}

SkewResults train_skewed(const Layout& layout, const Bias& bias, int steps) {
  SkewResults results;
  std::mutex mutex;  // guards results
  run_recorded(layout, [&](RankRig& rig) {
    write_bias(rig.engine, bias);
    std::vector<Routed> routed;
    SkewResults own;
    for (int step = 0; step < steps; ++step) {
      routed.clear();
      routed_here = &routed;
      rig.engine.accumulate(rig.source);
      routed_here = nullptr;
      for (const auto& param : rig.engine.parameters()) {
        if (step == 0) own.grads[param.name] = rig.engine.read_grads(param.name);
      }
      rig.engine.apply(1e-3);
      rig.next_step();
      own.report = rig.engine.report();
      own.losses.push_back(own.report.mean_loss);
    }
    for (const auto& param : rig.engine.parameters()) {
      own.weights[param.name] = rig.engine.read_weights(param.name);
    }
    own.routers = rig.engine.router_stats();
    const std::lock_guard lock(mutex);
    own.routed = std::move(results.routed);
    own.routed.insert(own.routed.end(), routed.begin(), routed.end());
    results = std::move(own);
  });
  return results;
}

Drops counted(const SkewResults& results) {
  Drops sum;
  for (const auto& layer : results.routers) {
    const auto at = [&](int64_t i) {
      return static_cast<int64_t>(layer.stats[static_cast<size_t>(i)]);
    };
    sum.dropped += at(layer.at.dropped());
    sum.lost += at(layer.at.lost());
    sum.overflow += at(layer.at.overflow());
  }
  return sum;
}

Drops naive(const SkewResults& results) {
  Drops sum;
  for (const Routed& routed : results.routed) {
    const Drops drops = drops_of(routed);
    sum.dropped += drops.dropped;
    sum.lost += drops.lost;
    sum.overflow += drops.overflow;
  }
  return sum;
}

double norm_of_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double squares = 0, size = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    squares += std::pow(double{a[i]} - double{b[i]}, 2);
    size += std::pow(double{b[i]}, 2);
  }
  return squares == 0 ? 0 : std::sqrt(squares / size);
}

void expect_same(const SkewResults& found, const SkewResults& wanted, const std::string& what) {
  constexpr double bound = 1e-5;
  for (size_t i = 0; i < wanted.losses.size(); ++i) {
    EXPECT_NEAR(found.losses[i] / wanted.losses[i], 1, bound) << what;
  }
  for (const auto& [name, grads] : wanted.grads) {
    EXPECT_LT(norm_of_difference(found.grads.at(name), grads), bound) << name << ", " << what;
    EXPECT_LT(norm_of_difference(found.weights.at(name), wanted.weights.at(name)), bound)
        << name << ", " << what;
  }
  EXPECT_EQ(counted(found), counted(wanted)) << what;
}

TEST(ExpertSkew, one_expert_for_all_tokens_trains_as_on_one_rank) {
  for (const int64_t chosen : {1, 2}) {
    for (const Bias& bias : {preferring({0}), preferring({7}), preferring({3, 4})}) {
      const SkewResults wanted = train_skewed(skewed(chosen, 1, 1), bias, 2);
      for (const int ep : {1, 2, 4}) {
        const SkewResults found = train_skewed(skewed(chosen, 4, ep), bias, 2);
        expect_same(found, wanted, fmt::format("chosen {}, ep {}", chosen, ep));
        EXPECT_EQ(counted(found), Drops{});
      }
    }
  }
}

// Without tokens an expert has no gradient, on whichever rank it is.
TEST(ExpertSkew, experts_without_tokens_have_no_gradient) {
  const SkewResults found = train_skewed(skewed(1, 4, 4), preferring({5}), 1);
  for (const std::string name : {"blocks.0.experts.down.weight", "blocks.1.experts.gate_up.weight"}) {
    ASSERT_TRUE(found.grads.contains(name)) << name;
    const std::vector<float>& grads = found.grads.at(name);
    const size_t of_expert = grads.size() / skew_experts;
    for (size_t e = 0; e < skew_experts; ++e) {
      const auto first = grads.begin() + static_cast<std::ptrdiff_t>(e * of_expert);
      const bool is_zero = std::all_of(first, first + static_cast<std::ptrdiff_t>(of_expert),
                                       [](float g) { return g == 0; });
      EXPECT_EQ(is_zero, e != 5) << name << ", expert " << e;
    }
  }
}

TEST(ExpertSkew, one_expert_a_rank_and_all_experts_for_every_token) {
  Layout layout = skewed(2, 1, 1);
  layout.logical_dp = 8;
  const SkewResults wanted = train_skewed(layout, by_score, 2);
  layout.dp = layout.ep = 8;
  expect_same(train_skewed(layout, by_score, 2), wanted, "one expert a rank");

  layout = skewed(skew_experts, 1, 1);
  const SkewResults all = train_skewed(layout, by_score, 2);
  for (const int ep : {2, 4}) {
    layout.dp = 4;
    layout.ep = ep;
    layout.row_budget = 1;  // every rank receives the mean
    expect_same(train_skewed(layout, by_score, 2), all, "all experts");
  }
}

TEST(ExpertSkew, more_ranks_than_experts_are_refused) {
  Layout layout = skewed(2, 16, 16);
  layout.logical_dp = 16;
  try {
    plan_of(layout, spec::make_model(layout.dims));
    FAIL() << "it was accepted";
  } catch (const base::ConfigError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("ep = 16: 8 experts do not divide by it; nearest: 8"), std::string::npos)
        << text;
    EXPECT_NE(text.find("[ep.divides]"), std::string::npos) << text;
  }
}

TEST(ExpertSkew, dropped_pairs_are_counted) {
  for (const int64_t chosen : {1, 3}) {
    for (const Bias& bias : {by_score, preferring({0}), preferring({2, 6, 7})}) {
      for (const int ep : {2, 4}) {
        Layout layout = skewed(chosen, 4, ep);
        layout.overflow = spec::Overflow::drop;
        for (const double budget : {1.0, 1.2}) {
          layout.row_budget = budget;
          const SkewResults found = train_skewed(layout, bias, 2);
          const Drops wanted = naive(found);
          EXPECT_EQ(counted(found), wanted) << ep << ", budget " << budget;
          EXPECT_EQ(wanted.overflow, wanted.dropped);
          EXPECT_EQ(found.report.overflow, 0);
          EXPECT_EQ(found.report.applied, 2);
          EXPECT_TRUE(std::isfinite(found.report.mean_loss));
          if (bias == by_score) continue;
          EXPECT_GT(wanted.dropped, 0) << ep << ", budget " << budget;
          EXPECT_EQ(chosen == 1, wanted.lost > 0 && wanted.lost == wanted.dropped);
        }
      }
    }
  }
}

// A capacity is of an expert and the tokens of a rank: it drops the same pairs for every ep.
TEST(ExpertSkew, capacities_drop_by_position) {
  for (const double capacity : {0.5, 1.0, 1.7}) {
    for (const Bias& bias : {by_score, preferring({1, 2})}) {
      Layout layout = skewed(2, 1, 1);
      layout.expert_capacity = capacity;
      const SkewResults wanted = train_skewed(layout, bias, 2);
      EXPECT_EQ(counted(wanted), naive(wanted));
      EXPECT_EQ(counted(wanted).overflow, 0);
      EXPECT_GT(counted(wanted).dropped, 0);
      layout.dp = 4;
      for (const int ep : {1, 2, 4}) {
        layout.ep = ep;
        const SkewResults found = train_skewed(layout, bias, 2);
        EXPECT_EQ(counted(found), naive(found));
        expect_same(found, wanted, fmt::format("capacity {}, ep {}", capacity, ep));
      }
    }
  }
}

// ---- strict budgets

using RankState = std::vector<std::vector<float>>;

RankState state_of(engine::Engine& engine) {
  RankState all;
  for (const auto& part : engine.state()) all.push_back(engine.read_state(part));
  return all;
}

// All tokens choose one expert from the third step on, which exceeds a budget of 1.75 of 2.
TEST(ExpertSkew, a_step_with_overflow_is_not_applied_until_the_budget_grows) {
  constexpr int even_steps = 2, all_steps = 4;
  Layout tight = skewed(1, 2, 2), wide = tight;
  tight.row_budget = 1.75;
  wide.row_budget = 2;
  const auto step = [](RankRig& rig, int number) {
    if (number == even_steps) write_bias(rig.engine, preferring({0}));
    rig.engine.step(rig.source, 1e-3);
    rig.next_step();
  };
  std::string wanted;
  run_layout(wide, [&](RankRig& rig) {
    for (int i = 0; i < all_steps; ++i) step(rig, i);
    EXPECT_EQ(rig.engine.report().overflow, 0);
    const std::string hash = rig.engine.weights_sha256();
    if (rig.mesh.world().rank() == 0) wanted = hash;
  });

  std::vector<RankState> states(2);
  std::vector<kernels::StepState> step_states(2);
  run_layout(tight, [&](RankRig& rig) {
    for (int i = 0; i < even_steps; ++i) step(rig, i);
    EXPECT_EQ(rig.engine.report().overflow, 0);
    const std::string before = rig.engine.weights_sha256();
    const auto expect_nothing_applied = [&] {
      const engine::StepReport report = rig.engine.report();
      EXPECT_GT(report.overflow, 0);
      EXPECT_TRUE(report.was_skipped);
      EXPECT_EQ(report.applied, even_steps);
      EXPECT_EQ(report.skipped, 0);
      EXPECT_EQ(rig.engine.weights_sha256(), before);
    };
    step(rig, even_steps);
    expect_nothing_applied();
    const auto rank = static_cast<size_t>(rig.mesh.world().rank());
    states[rank] = state_of(rig.engine);
    step_states[rank] = rig.engine.step_state();
    // Later steps are not applied either, although none of their blocks is too full.
    write_bias(rig.engine, by_score);
    rig.engine.step(rig.source, 1e-3);
    expect_nothing_applied();
  });

  run_layout(wide, [&](RankRig& rig) {
    const auto rank = static_cast<size_t>(rig.mesh.world().rank());
    size_t at = 0;
    for (const auto& part : rig.engine.state()) rig.engine.write_state(part, states[rank][at++]);
    rig.engine.state_changed();
    step_states[rank].overflow = 0;
    rig.engine.set_step_state(step_states[rank]);
    for (int i = 0; i < even_steps; ++i) rig.next_step();
    for (int i = even_steps; i < all_steps; ++i) step(rig, i);
    EXPECT_EQ(rig.engine.report().applied, all_steps);
    EXPECT_EQ(rig.engine.weights_sha256(), wanted);
  });
}

}  // namespace
}  // namespace trireme::tests
