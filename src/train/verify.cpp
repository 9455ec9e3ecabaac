// SPDX-License-Identifier: Apache-2.0
#include "train/verify.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "train/setup.h"
#include "train/verify_checks.h"
#include "train/verify_run.h"
#include "train/verify_scale.h"

namespace trireme::train {
namespace {

constexpr int most_thread_ranks = 64;  // as threads of one process

spec::Backend backend_of(const config::System& system) { return make_platform(system).backend; }

// The one rank that does all workers' work.
spec::SplitOptions alone(const spec::SplitOptions& split) {
  spec::SplitOptions one;
  one.logical_dp = split.logical_dp != 0 ? split.logical_dp : split.dp * split.zero;
  one.reduce = split.reduce;
  one.reduce_dtype = split.reduce_dtype;
  return one;
}

// An element whose gradient is zero but for rounding (a key's bias) moves by the learning rate
// times its sign where eps is small, and the sign is that of the rounding.
engine::EngineOptions smooth(engine::EngineOptions options) {
  constexpr float least_eps = 1e-3F;
  options.adamw.eps = std::max(options.adamw.eps, least_eps);
  options.capture = false;
  return options;
}

bool has_own_recipe(const VerifyJob& job) {
  return job.one_rank.recipe != spec::recipe_from_name("fp32") ||
         job.split.reduce_dtype != base::DType::f32;
}

class Verifier {
 public:
  Verifier(const VerifyJob& job, const VerifyHooks& hooks)
      : job_(job), hooks_(hooks), backend_(backend_of(job.system)) {
    job_.engine = smooth(job.engine);
    const spec::Plan full =
        spec::parallel_plan(spec::make_model(job.dims), job.one_rank, job.split, backend_);
    scaled_ = scale_down(job.dims, job.one_rank, job.split, full, backend_, most_thread_ranks);
    model_ = spec::make_model(scaled_.dims);
    keep_legal();
  }

  VerifyReport run() {
    report_.dims = scaled_.dims;
    report_.split = scaled_.split;
    report_.ranks = scaled_.split.dp * scaled_.split.zero * scaled_.split.tp * scaled_.split.pp;
    report_.notes = scaled_.notes;
    spec::OneRankOptions one = scaled_.one_rank;
    spec::SplitOptions split = scaled_.split;
    one.recipe = spec::recipe_from_name("fp32");
    one.master = base::DType::f32;
    split.reduce_dtype = base::DType::f32;
    const RankRecord reference = run_alone(one, split);
    check(one, split, reference, reference);
    if (has_own_recipe(job_)) {
      const RankRecord twin = run_alone(scaled_.one_rank, scaled_.split);
      check(scaled_.one_rank, scaled_.split, reference, twin);
    }
    return std::move(report_);
  }

 private:
  // Whether a schedule sums gradients in turn may depend on the number of micro-batches.
  void keep_legal() {
    if (scaled_.one_rank.microbatches == job_.one_rank.microbatches) return;
    try {
      (void)spec::parallel_plan(model_, scaled_.one_rank, scaled_.split, backend_);
    } catch (const base::ConfigError&) {
      scaled_.one_rank.microbatches = job_.one_rank.microbatches;
    }
  }

  RankRecord run_alone(const spec::OneRankOptions& one, const spec::SplitOptions& split) {
    const spec::Plan plan = spec::parallel_plan(model_, one, alone(split), backend_);
    return run_one_rank(run_of(plan, "one rank, " + one.recipe.name));
  }

  void check(const spec::OneRankOptions& one, const spec::SplitOptions& split,
             const RankRecord& reference, const RankRecord& twin) {
    const spec::Plan plan = spec::parallel_plan(model_, one, split, backend_);
    const VerifyRun run = run_of(plan, fmt::format("{} ranks, {}", report_.ranks, one.recipe.name));
    const LayoutResult layout = run_layout(run, reference, twin, hooks_);
    for (VerifyCheck& found :
         checks_of({model_, plan, reference, twin, layout, bounds_of(plan, backend_)})) {
      report_.checks.push_back(std::move(found));
    }
    if (layout.ranks.empty()) return;
    report_.by_rank.clear();
    for (const RankResult& rank : layout.ranks) {
      report_.by_rank.push_back(rank.table);
      if (&reference != &twin) continue;  // not the fp32 run
      for (size_t i = 0; i < rank.params.size(); ++i) {
        if (!report_.worst_parameter.empty() && rank.params[i].grad <= report_.worst_error) {
          continue;
        }
        report_.worst_parameter = reference.names[i];
        report_.worst_error = rank.params[i].grad;
      }
    }
  }

  VerifyRun run_of(const spec::Plan& plan, const std::string& what) {
    return {model_, plan, backend_, job_, [this, what] {
              ++done_;
              if (job_.progress) job_.progress(done_, what);
            }};
  }

  VerifyJob job_;
  const VerifyHooks& hooks_;
  spec::Backend backend_;
  ScaledJob scaled_;
  spec::ModelSpec model_;
  VerifyReport report_;
  int64_t done_ = 0;
};

}  // namespace

bool VerifyReport::ok() const { return first_failed() == nullptr; }

const VerifyCheck* VerifyReport::first_failed() const {
  const auto found = std::find_if(checks.begin(), checks.end(),
                                  [](const VerifyCheck& check) { return !check.ok; });
  return found == checks.end() ? nullptr : &*found;
}

int64_t verify_total_steps(const VerifyJob& job) {
  return verify_steps * (has_own_recipe(job) ? 4 : 2);
}

VerifyReport verify(const VerifyJob& job, const VerifyHooks& hooks) {
  return Verifier(job, hooks).run();
}

}  // namespace trireme::train
