// SPDX-License-Identifier: Apache-2.0
#include "train/verify/verify.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "train/setup/setup.h"
#include "train/verify/verify_checks.h"
#include "train/verify/verify_experts.h"
#include "train/verify/verify_run.h"
#include "train/verify/verify_scale.h"

namespace trireme::train {
namespace {

constexpr int max_thread_ranks = 64;  // as threads of one process

spec::Backend backend_of(const VerifyJob& job, const VerifyHooks& hooks) {
  spec::Backend backend = make_platform(job.system).backend;
  if (hooks.backend) hooks.backend(backend);
  return backend;
}

// Returns the layout of one rank that does the work of all workers.
spec::Layout alone(spec::Layout l) {
  l.tp = l.cp = l.pp = 1;
  l.context_kind = spec::ContextKind::gather;
  l.context_slices = spec::ContextSlices::zigzag;
  l.ulysses = 1;
  l.ep = l.etp = 1;
  spec::set_data_ranks(l, 1, 0);
  l.custom_schedule.reset();
  l.chunks = 1;
  return l;
}

// If eps is small, an element whose gradient is zero but for rounding (a key's bias) moves by the
// learning rate times the sign of the rounding error.
engine::EngineOptions smooth(engine::EngineOptions options) {
  constexpr float min_eps = 1e-3F;
  options.adamw.eps = std::max(options.adamw.eps, min_eps);
  options.capture = false;
  return options;
}

bool has_own_recipe(const VerifyJob& job) {
  return job.layout.precision != spec::Precision::fp32 ||
         job.layout.grad_dtype != base::DType::f32 || job.layout.reduce_dtype != base::DType::f32;
}

class Verifier {
 public:
  Verifier(const VerifyJob& job, const VerifyHooks& hooks)
      : job_(job), hooks_(hooks), backend_(backend_of(job, hooks)) {
    job_.engine = smooth(job.engine);
    const spec::Plan full =
        spec::solve_or_throw(spec::make_model(job.dims), job.work, job.layout, backend_);
    job_.layout = full.layout;
    scaled_ = scale_down(job.dims, job.work, full, backend_, max_thread_ranks);
    model_ = spec::make_model(scaled_.dims);
    keep_legal();
  }

  VerifyReport run() {
    report_.dims = scaled_.dims;
    report_.layout = scaled_.layout;
    report_.ranks = static_cast<int>(scaled_.layout.ranks());
    report_.notes = scaled_.notes;
    spec::Layout exact = scaled_.layout;
    exact.precision = spec::Precision::fp32;
    exact.grad_dtype = exact.master_dtype = exact.reduce_dtype = base::DType::f32;
    RankRecord reference = run_alone(exact);
    check(exact, reference, reference);
    if (has_own_recipe(job_)) {
      if (scaled_.dims.moe) reference = choose_all(exact);
      const RankRecord twin = run_alone(scaled_.layout);
      check(scaled_.layout, reference, twin);
    }
    return std::move(report_);
  }

 private:
  // Whether a schedule sums gradients in turn may depend on the number of micro-batches.
  void keep_legal() {
    if (scaled_.layout.accumulation == job_.layout.accumulation) return;
    const bool is_legal =
        spec::settle(spec::sizes_of(model_), scaled_.work, 0, scaled_.layout).broken.empty();
    if (!is_legal) scaled_.layout.accumulation = job_.layout.accumulation;
  }

  // Lets every expert process every token from here on. Returns the fp32 rank of that model.
  RankRecord choose_all(const spec::Layout& exact) {
    model_ = spec::make_model(with_all_chosen(scaled_.dims, job_.dims));
    report_.notes.push_back(
        "the last runs let every expert process every token: rounding changes choices");
    return run_alone(exact);
  }

  RankRecord run_alone(const spec::Layout& layout) {
    const spec::Plan plan = spec::solve_or_throw(model_, scaled_.work, alone(layout), backend_);
    return run_one_rank(run_of(plan, "one rank, " + plan.recipe.name));
  }

  void check(const spec::Layout& asked, const RankRecord& reference, const RankRecord& twin) {
    const spec::Plan plan = spec::solve_or_throw(model_, scaled_.work, asked, backend_);
    const VerifyRun run =
        run_of(plan, fmt::format("{} ranks, {}", report_.ranks, plan.recipe.name));
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
  if (!has_own_recipe(job)) return verify_steps * 2;
  return verify_steps * (job.dims.moe ? 5 : 4);
}

VerifyReport verify(const VerifyJob& job, const VerifyHooks& hooks) {
  return Verifier(job, hooks).run();
}

}  // namespace trireme::train
