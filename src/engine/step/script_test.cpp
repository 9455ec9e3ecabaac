// SPDX-License-Identifier: Apache-2.0
#include "engine/step/script.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace trireme::engine {
namespace {

using Kind = Step::Kind;
using spec::Recompute;

constexpr int layers = 5;
const std::vector<int> phases = {1, 2, 2, 3, 1};
const std::vector<Recompute> recompute = {Recompute::none, Recompute::full, Recompute::none,
                                          Recompute::selective, Recompute::none};

ScriptOptions options(bool params_sharded, int prefetch) {
  return {.phases_by_layer = phases,
          .recompute = recompute,
          .residency = {.params = params_sharded, .grads = params_sharded, .optim = true},
          .prefetch = prefetch,
          .reduces = params_sharded};
}

int count(const std::vector<Step>& steps, Kind kind, int layer) {
  return static_cast<int>(std::count_if(steps.begin(), steps.end(), [&](const Step& s) {
    return s.kind == kind && s.layer == layer;
  }));
}

TEST(ScriptTest, every_phase_runs_once_in_order) {
  const std::vector<Step> f = script(Walk::forward, options(false, 1));
  std::vector<Step> expected;
  for (int16_t l = 0; l < layers; ++l) {
    for (int16_t p = 0; p < phases[static_cast<size_t>(l)]; ++p) {
      expected.push_back({Kind::forward, l, p});
    }
  }
  EXPECT_EQ(f, expected);
}

TEST(ScriptTest, merged_backward_finishes_a_layer_before_the_next) {
  const std::vector<Step> b = script(Walk::backward, options(false, 1));
  int last = layers;
  for (const Step& step : b) {
    EXPECT_TRUE(step.layer == last || step.layer == last - 1);
    last = step.layer;
  }
  for (int l = 0; l < layers; ++l) {
    const int n = phases[static_cast<size_t>(l)];
    const bool again = recompute[static_cast<size_t>(l)] != Recompute::none;
    EXPECT_EQ(count(b, Kind::recompute, l), again ? n : 0);
    EXPECT_EQ(count(b, Kind::backward_input, l), n);
    EXPECT_EQ(count(b, Kind::backward_weight, l), 1);
  }
  EXPECT_EQ(b.front(), (Step{Kind::backward_input, 4, 0}));
  EXPECT_EQ(b[2], (Step{Kind::recompute, 3, 0}));
}

TEST(ScriptTest, parts_of_a_split_backward_make_the_merged_one) {
  const auto b = script(Walk::backward_input, options(false, 1));
  const auto w = script(Walk::backward_weight, options(false, 1));
  EXPECT_EQ(b.size() + w.size(), script(Walk::backward, options(false, 1)).size());
}

// Walks a script as the stage does; returns the largest number of layers gathered at one time.
size_t max_gathered(const std::vector<Step>& steps, const ScriptOptions& o) {
  std::set<int> gathered;
  size_t most = 0;
  for (const Step& step : steps) {
    if (step.kind == Kind::gather) {
      EXPECT_TRUE(gathered.insert(step.layer).second) << "gathered twice";
    } else if (step.kind == Kind::release) {
      EXPECT_EQ(gathered.erase(step.layer), 1U);
    } else if (step.kind != Kind::reduce && step.kind != Kind::zero) {
      EXPECT_TRUE(gathered.contains(step.layer)) << "layer " << step.layer << " is not gathered";
      if (step.kind == Kind::forward && step.layer == o.head && o.stays >= 0) {
        EXPECT_TRUE(gathered.contains(o.stays));
      }
    }
    most = std::max(most, gathered.size());
  }
  EXPECT_TRUE(gathered.empty());
  return most;
}

TEST(ScriptTest, sharded_parameters_are_gathered_when_needed_and_never_more_than_prefetched) {
  for (const Walk walk : {Walk::forward, Walk::backward, Walk::backward_input}) {
    for (int prefetch = 0; prefetch <= 3; ++prefetch) {
      for (const bool after : {false, true}) {
        ScriptOptions o = options(true, prefetch);
        o.prefetch_after = after;
        const size_t window = static_cast<size_t>(prefetch) + 1;
        const bool is_after = after && walk != Walk::forward && prefetch > 0;
        EXPECT_EQ(max_gathered(script(walk, o), o), is_after ? window - 1 : window);
        o.head = layers - 1;
        o.stays = 0;
        EXPECT_LE(max_gathered(script(walk, o), o), window + 1);
      }
    }
  }
}

TEST(ScriptTest, parameters_that_stay_are_gathered_and_released_once) {
  const auto count = [](const std::vector<Step>& steps, Step::Kind kind) {
    return std::count_if(steps.begin(), steps.end(),
                         [kind](const Step& step) { return step.kind == kind; });
  };
  ScriptOptions o = options(true, 1);
  o.releases = false;
  const std::vector<Step> first = script(Walk::forward, o);
  EXPECT_EQ(count(first, Step::Kind::gather), layers);
  EXPECT_EQ(count(first, Step::Kind::release), 0);
  o.gathers = false;
  const std::vector<Step> middle = script(Walk::backward, o);
  EXPECT_EQ(count(middle, Step::Kind::gather) + count(middle, Step::Kind::release), 0);
  o.releases = true;
  const std::vector<Step> last = script(Walk::backward, o);
  EXPECT_EQ(count(last, Step::Kind::gather), 0);
  EXPECT_EQ(count(last, Step::Kind::release), layers);
}

TEST(ScriptTest, prefetch_after_sends_gradients_first) {
  ScriptOptions o = options(true, 1);
  const auto order = [&o] {
    const std::vector<Step> b = script(Walk::backward, o);
    const auto at = [&b](const Step& step) { return std::find(b.begin(), b.end(), step); };
    return at({Kind::gather, 2, 0}) < at({Kind::reduce, 3, 0});
  };
  EXPECT_TRUE(order());
  o.prefetch_after = true;
  EXPECT_FALSE(order());
}

TEST(ScriptTest, gradients_begin_before_anything_is_added) {
  ScriptOptions o = options(false, 1);
  o.head = layers - 1;
  o.begins = true;
  const auto f = script(Walk::forward, o), b = script(Walk::backward, o);
  for (int l = 0; l < layers; ++l) {
    EXPECT_EQ(count(f, Kind::zero, l), l == o.head ? 1 : 0);
    EXPECT_EQ(count(b, Kind::zero, l), l == o.head ? 0 : 1);
  }
  for (const Step& step : b) {
    if (step.layer == o.head) continue;
    EXPECT_EQ(step.kind, Kind::zero);
    break;
  }
  EXPECT_EQ(count(script(Walk::backward_weight, o), Kind::zero, 1), 0);
}

TEST(ScriptTest, gradients_are_reduced_once_per_layer_after_its_weight_gradient) {
  const auto b = script(Walk::backward, options(true, 1));
  for (int l = 0; l < layers; ++l) EXPECT_EQ(count(b, Kind::reduce, l), 1);
  for (size_t i = 1; i < b.size(); ++i) {
    if (b[i].kind != Kind::reduce) continue;
    EXPECT_EQ(b[i - 1].kind, Kind::backward_weight);
  }
}

}  // namespace
}  // namespace trireme::engine
