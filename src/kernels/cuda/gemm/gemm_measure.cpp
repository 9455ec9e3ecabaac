// SPDX-License-Identifier: Apache-2.0
// Chooses the algorithm of a large product: see gemm_plans.h. Only here and in
// gemm_measure_epilogue.cpp does an op wait for the device or allocate, and only while the device
// permits it.
#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/system/rank_activity.h"
#include "kernels/cuda/gemm/gemm_trial.h"
#include "kernels/cuda/libraries.h"

namespace trireme::kernels::cuda {
namespace {

using device::CudaStream;

// A candidate this much slower than the best in its first timed run is not run again.
constexpr double hopeless = 1.5;
// For products of this size the best algorithms are measured again under full load: those that are
// at most this much slower in single runs, and at most this many.
constexpr double min_sustained_flops = 3e10;
constexpr double near_the_best = 1.08;
constexpr size_t max_finalists = 5;
// The clock may drift by this factor while finalists are measured.
constexpr double drift = 1.02;
// Seconds until the device is at its power limit, and until it has the clock of the next finalist.
constexpr double reaching_the_limit = 0.02, settling = 0.004;
// A product of so many rows loads the kernel of an algorithm. 8-bit operands keep all rows, because
// the layout of their scales depends on the number of rows.
constexpr int64_t few_rows = 256;

}  // namespace

void GemmPlans::measure(CudaStream& stream, Plan& plan, const Matmul& what,
                        const MatmulOperands& operands) {
  if (!is_announced_) base::log_info("measuring matrix products on this GPU: takes seconds, once");
  is_announced_ = true;
  const base::ActivityPhaseScope compiles(base::compile_phase);
  const auto begin = std::chrono::steady_clock::now();
  const double seconds_before = unreported_seconds_;  // measurements may be nested
  std::optional<TrialResult> result;
  try {
    result.emplace(device_, what, &operands);
  } catch (const base::OutOfMemory&) {
    base::log_warning(
        "not enough memory to measure algorithms of the product {}: the first one is used",
        what.to_string());
    plan.is_usable = what.epilogue != MatmulEpilogue::a_sum;
    plan.is_final = true;
    plan.candidates.clear();
    return;
  }
  MatmulOperands trial = operands;
  trial.d = result->data();

  Matmul few = what;
  if (!what.coded) few.m = std::min(what.m, few_rows);
  Plan few_plan;
  describe(few_plan, few);

  std::vector<Admitted> admitted;
  std::optional<Digest> first;
  double best_seconds = std::numeric_limits<double>::infinity();
  for (const cublasLtMatmulAlgo_t& algo : plan.candidates) {
    // The first run is not timed: it loads the kernel. Algorithms that the library proposes and
    // then rejects are no candidates.
    cublasStatus_t status = run(few_plan, algo, few, trial, stream);
    if (status != CUBLAS_STATUS_SUCCESS) status = run(plan, algo, what, trial, stream);
    if (status != CUBLAS_STATUS_SUCCESS) continue;
    result->clear(stream);
    stream.synchronize();
    const double limit = hopeless * best_seconds;
    const double seconds = shortest_run(stream, timed_runs_of(what), limit, [&] {
      if (status == CUBLAS_STATUS_SUCCESS) status = run(plan, algo, what, trial, stream);
    });
    if (status != CUBLAS_STATUS_SUCCESS) continue;
    if (seconds > limit) continue;
    if (device_.options().deterministic) {
      // Every candidate has run the same number of times here, so that results with in-place
      // addends are comparable, too.
      const Digest digest = result->digest(stream, trial.sums);
      if (!first) {
        first = digest;
        plan.algo = algo;
        if (digest.nonzero == 0) return;  // nothing to compare; measured at the next use
      }
      if (digest.sum != first->sum) continue;
    }
    admitted.push_back({algo, seconds});
    best_seconds = std::min(best_seconds, seconds);
  }

  const bool has_choice = !admitted.empty();
  GemmChoice choice = {.is_rejected = !has_choice};
  if (has_choice) {
    const Admitted best = best_of(stream, plan, what, trial, std::move(admitted));
    plan.algo = best.algo;
    choice.algo = best.algo;
    choice.microseconds = 1e6 * best.seconds;
    if (what.epilogue == MatmulEpilogue::gelu_grad) {
      result->clear(stream);
      cublas_check(run(plan, plan.algo, what, trial, stream), "checking an epilogue");
      choice.is_rejected = !is_gelu_grad_right(stream, what, trial, best.seconds);
    } else if (what.epilogue == MatmulEpilogue::a_sum) {
      result.reset();  // memory may not suffice for two
      choice.is_rejected = !is_a_sum_right(stream, plan, what, operands);
    }
  }
  plan.is_usable = !choice.is_rejected;
  plan.is_final = true;
  plan.candidates.clear();
  if (has_choice) choices_.keep(what.to_string(), choice);
  ++unreported_;
  unreported_seconds_ =
      seconds_before +
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Returns the fastest. Large products are run until the device is at its power limit, in turn; then
// those that a drift of the clock may have misplaced, in the opposite order.
GemmPlans::Admitted GemmPlans::best_of(CudaStream& stream, Plan& plan, const Matmul& what,
                                       const MatmulOperands& trial,
                                       std::vector<Admitted> admitted) {
  std::ranges::sort(admitted, {}, &Admitted::seconds);
  if (what.flops() < min_sustained_flops) return admitted.front();
  const double limit = near_the_best * admitted.front().seconds;
  std::erase_if(admitted, [limit](const Admitted& a) { return a.seconds > limit; });
  admitted.resize(std::min(admitted.size(), max_finalists));
  if (admitted.size() == 1) return admitted.front();
  const auto run_for_a_while = [&](Admitted& finalist, double before) {
    return sustained_run(stream, finalist.seconds, before, [&] {
      cublas_check(run(plan, finalist.algo, what, trial, stream), "measuring an algorithm");
    });
  };
  double before = reaching_the_limit;
  for (Admitted& finalist : admitted) {
    finalist.seconds = run_for_a_while(finalist, before);
    before = settling;
  }
  const double best = std::ranges::min(admitted, {}, &Admitted::seconds).seconds;
  std::erase_if(admitted, [best](const Admitted& a) { return a.seconds > drift * best; });
  if (admitted.size() == 1) return admitted.front();
  std::ranges::reverse(admitted);
  for (Admitted& finalist : admitted) {
    finalist.seconds = (finalist.seconds + run_for_a_while(finalist, settling)) / 2;
  }
  return std::ranges::min(admitted, {}, &Admitted::seconds);
}

void GemmPlans::report() {
  const std::string where =
      choices_.file().empty() ? std::string() : "; choices cached in " + choices_.file().string();
  base::log_info("measured {} matrix products in {:.1f} s{}", unreported_, unreported_seconds_,
                 where);
  is_announced_ = false;
  unreported_ = 0;
  unreported_seconds_ = 0;
}

}  // namespace trireme::kernels::cuda
