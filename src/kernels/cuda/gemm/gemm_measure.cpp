// SPDX-License-Identifier: Apache-2.0
// How the algorithm of a large product is chosen: see gemm_plans.h. Only here and in
// gemm_measure_epilogue.cpp does a row wait for the device or allocate, and only while the device
// may.
#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "kernels/cuda/gemm/gemm_trial.h"
#include "kernels/cuda/libraries.h"

namespace trireme::kernels::cuda {
namespace {

using device::CudaStream;

// A candidate this much slower than the best in its first timed run is not run again.
constexpr double hopeless = 1.5;
// The best of products this large are measured again under full load: those that are at most so
// much slower in single runs, and so many.
constexpr double min_sustained_flops = 3e10;
constexpr double near_the_best = 1.08;
constexpr size_t max_finalists = 5;

}  // namespace

void GemmPlans::measure(CudaStream& stream, Plan& plan, const Matmul& what,
                        const MatmulOperands& operands) {
  if (!is_announced_) base::log_info("measuring matrix products on this GPU: some seconds, once");
  is_announced_ = true;
  const auto begin = std::chrono::steady_clock::now();
  const double seconds_before = unreported_seconds_;  // a measurement may hold another
  std::optional<TrialResult> result;
  try {
    result.emplace(device_, what, &operands);
  } catch (const base::OutOfMemory&) {
    base::log_warning("no memory to measure algorithms of the product {}: the first is taken",
                      what.to_string());
    plan.is_usable = what.epilogue != MatmulEpilogue::a_sum;
    plan.is_final = true;
    plan.candidates.clear();
    return;
  }
  MatmulOperands trial = operands;
  trial.d = result->data();

  std::vector<Admitted> admitted;
  std::optional<Digest> first;
  double best_seconds = std::numeric_limits<double>::infinity();
  for (const cublasLtMatmulAlgo_t& algo : plan.candidates) {
    result->clear(stream);
    // The first run is not timed: it loads the kernel. What is proposed and then refused is no
    // candidate.
    if (run(plan, algo, what, trial, stream) != CUBLAS_STATUS_SUCCESS) continue;
    stream.synchronize();
    const double limit = hopeless * best_seconds;
    const double seconds = shortest_run(stream, limit, [&] {
      cublas_check(run(plan, algo, what, trial, stream), "measuring an algorithm");
    });
    if (seconds > limit) continue;
    if (device_.options().deterministic) {
      // Every candidate that comes here has run the same number of times: with in-place addends
      // the results are comparable, too.
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
      result.reset();  // there may be no memory for two
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

// The fastest. Large products are run on until the device is at its power limit, in turn and then
// in the opposite order, so that a drift of the clock falls on all alike.
GemmPlans::Admitted GemmPlans::best_of(CudaStream& stream, Plan& plan, const Matmul& what,
                                       const MatmulOperands& trial,
                                       std::vector<Admitted> admitted) {
  std::ranges::sort(admitted, {}, &Admitted::seconds);
  if (what.flops() < min_sustained_flops) return admitted.front();
  const double limit = near_the_best * admitted.front().seconds;
  std::erase_if(admitted, [limit](const Admitted& a) { return a.seconds > limit; });
  admitted.resize(std::min(admitted.size(), max_finalists));
  if (admitted.size() == 1) return admitted.front();
  std::vector<double> sustained(admitted.size());
  for (const bool backwards : {false, true}) {
    for (size_t i = 0; i < admitted.size(); ++i) {
      const size_t at = backwards ? admitted.size() - 1 - i : i;
      sustained[at] += sustained_run(stream, admitted[at].seconds, [&] {
        cublas_check(run(plan, admitted[at].algo, what, trial, stream), "measuring an algorithm");
      });
    }
  }
  return admitted[static_cast<size_t>(std::ranges::min_element(sustained) - sustained.begin())];
}

void GemmPlans::report() {
  const std::string where =
      choices_.file().empty() ? std::string() : "; choices kept in " + choices_.file().string();
  base::log_info("measured {} matrix products in {:.1f} s{}", unreported_, unreported_seconds_,
                 where);
  is_announced_ = false;
  unreported_ = 0;
  unreported_seconds_ = 0;
}

}  // namespace trireme::kernels::cuda
