// SPDX-License-Identifier: Apache-2.0
#include "plan/validate/fit.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "plan/samples_test.h"
#include "spec/layout/layout_text.h"

namespace trireme::plan {
namespace {

using Runs = std::vector<PublishedRun>;

PublishedRun run_of(const std::string& id, const std::string& source, const std::string& model,
                    const std::string& layout, int64_t gpus) {
  PublishedRun run;
  run.id = id;
  run.source = source;
  run.job = job_of(model, 64, 2048);
  run.layout = layout_from_text(layout, gpus);
  run.machine = shipped_machine("a100-80gb");
  run.stack = shipped_stack("megatron-2022");
  return run;
}

double predicted(const PublishedRun& run) {
  return Pricer(run.job, run.machine, run.stack).price(run.layout).seconds;
}

// Returns runs of three sources whose times are those of a stack with these constants.
Runs planted(double gemm, double streaming) {
  Runs runs;
  int number = 0;
  for (const std::string source : {"one", "two", "three"}) {
    for (const std::string model : {"gpt2-350m", "llama-1b", "llama-8b"}) {
      for (const std::string layout : {"tp=8 sp", "tp=2 micro=4", "tp=4 pp=2 full"}) {
        runs.push_back(run_of(fmt::format("run {}", number++), source, model, layout, 8));
      }
    }
  }
  for (PublishedRun& run : runs) {
    run.stack.gemm = gemm;
    run.stack.streaming = streaming;
    run.seconds = predicted(run);
    run.stack = shipped_stack("megatron-2022");
  }
  return runs;
}

const Fitted& named(const std::vector<Fitted>& all, const std::string& name) {
  return *std::ranges::find(all, name, &Fitted::name);
}

TEST(Fit, planted_constants_are_recovered) {
  for (const auto& [gemm, streaming] : {std::pair{1.25, 3.0}, {0.95, 1.5}}) {
    Runs train = planted(gemm, streaming), apply = planted(gemm, streaming);
    const std::vector<Fitted> fitted = fit(train, apply);
    EXPECT_NEAR(named(fitted, "megatron-2022.gemm").fitted, gemm, 0.01);
    EXPECT_NEAR(named(fitted, "megatron-2022.streaming").fitted, streaming, 0.1);
    EXPECT_EQ(named(fitted, "megatron-2022.gemm").runs, 27);
    EXPECT_EQ(named(fitted, "fsdp.gemm").runs, 0);
    for (const PublishedRun& run : apply) {
      EXPECT_NEAR(predicted(run) / run.seconds, 1, 0.01) << run.id;
    }
  }
}

TEST(Fit, shipped_constants_have_no_influence) {
  Runs train = planted(1.2, 2.5), apply;
  Runs other = train;
  for (PublishedRun& run : other) {
    run.stack.gemm = 1.39;
    run.stack.streaming = 4.9;
  }
  const std::vector<Fitted> a = fit(train, apply), b = fit(other, apply);
  EXPECT_EQ(named(a, "megatron-2022.gemm").fitted, named(b, "megatron-2022.gemm").fitted);
  EXPECT_EQ(named(a, "megatron-2022.streaming").fitted, named(b, "megatron-2022.streaming").fitted);
}

TEST(Fit, runs_without_time_or_with_a_reason_do_not_count) {
  Runs train = planted(1.2, 2.5), apply;
  Runs more = train;
  PublishedRun wrong = more.front();
  wrong.seconds = 1e6;
  wrong.reason = "no reason";
  more.push_back(wrong);
  wrong.reason.clear();
  wrong.seconds = 0;
  more.push_back(wrong);
  const std::vector<Fitted> a = fit(train, apply), b = fit(more, apply);
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].fitted, b[i].fitted) << a[i].name;
    EXPECT_EQ(a[i].runs, b[i].runs) << a[i].name;
  }
}

// Returns the predicted seconds by the id of a run.
std::map<std::string, double> by_id(const HeldOut& held) {
  std::map<std::string, double> all;
  for (const Validated& row : held.rows) all[row.run->id] = row.price.seconds;
  return all;
}

TEST(Fit, a_held_out_source_does_not_affect_its_own_predictions) {
  const Runs runs = planted(1.2, 2.5);
  Runs changed = runs;
  for (PublishedRun& run : changed) {
    if (run.source == "two") run.seconds *= 1.3;
  }
  const auto before = by_id(leave_one_source_out(runs, {}));
  const auto after = by_id(leave_one_source_out(changed, {}));
  ASSERT_EQ(before.size(), runs.size());
  int others = 0;
  for (const PublishedRun& run : runs) {
    if (run.source == "two") {
      EXPECT_EQ(before.at(run.id), after.at(run.id)) << run.id;
    } else if (before.at(run.id) != after.at(run.id)) {
      ++others;
    }
  }
  EXPECT_GT(others, 0);  // fits that include source "two"
}

TEST(Fit, a_held_out_half_does_not_affect_its_own_predictions) {
  const Runs runs = planted(1.2, 2.5);
  const auto before = by_id(hash_split(runs, {}));
  ASSERT_EQ(before.size(), runs.size());
  int changed_others = 0;
  for (size_t i = 0; i < 3; ++i) {
    Runs changed = runs;
    changed[i].seconds *= 2;
    const auto after = by_id(hash_split(changed, {}));
    EXPECT_EQ(before.at(runs[i].id), after.at(runs[i].id));
    for (const auto& [id, seconds] : after) changed_others += before.at(id) != seconds ? 1 : 0;
  }
  EXPECT_GT(changed_others, 0);
}

TEST(Fit, progress_ends_at_one) {
  double last = 0;
  (void)leave_one_source_out(planted(1.1, 2), [&](double done) {
    EXPECT_GT(done, last);
    last = done;
  });
  EXPECT_EQ(last, 1);
}

TEST(Fit, knobs_start_inside_their_range_and_have_one_name) {
  std::set<std::string> names;
  for (const Knob& knob : knobs()) {
    EXPECT_TRUE(names.insert(knob.name).second) << knob.name;
    EXPECT_LT(knob.low, knob.high);
    EXPECT_GE(knob.start, knob.low) << knob.name;
    EXPECT_LE(knob.start, knob.high) << knob.name;
  }
}

}  // namespace
}  // namespace trireme::plan
