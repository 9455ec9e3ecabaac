// SPDX-License-Identifier: Apache-2.0
#include "plan/validate/band.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/price/expert_cost.h"
#include "spec/model.h"

namespace trireme::plan {
namespace {

// Mean absolute error on held-out published runs (docs/planner.md), a larger one for questions
// unlike those runs, and the range of those runs.
constexpr double dense_error = 0.08, other_error = 0.15, expert_error = 0.22;
constexpr double memory_error = 0.03;
constexpr int64_t max_compared_gpus = 3072;
constexpr double min_parameters = 1e8, max_parameters = 1.1e12;

}  // namespace

Band band_of(const Job& job, const spec::Machine& machine, const Stack& stack, const Layout& l) {
  Band band{.time = dense_error, .memory = memory_error};
  const auto widen = [&](double error, const std::string& why) {
    band.time = std::max(band.time, error);
    band.warnings.push_back(why);
  };
  if (machine.time_error > 0) {
    band.time = machine.time_error;
  } else {
    widen(other_error, fmt::format("no measured run on {} to compare with", machine.name));
  }
  if (machine.memory_error > 0) band.memory = machine.memory_error;
  if (has_experts(job)) {
    widen(expert_error,
          fmt::format("experts: published runs differ from their predictions by {:.0f} % in the "
                      "mean",
                      100 * expert_error));
    const double share = busiest_share(job, *spec::moe_of(job.model), l.ep);
    if (stack.is_engine() && share > l.row_budget) {
      band.warnings.push_back(
          fmt::format("the busiest rank has {:.3g} times the mean of rows, above the row budget of "
                      "{:.3g}: give --row-budget {:.3g}",
                      share, l.row_budget, share));
    }
  }
  if (l.cp > 1) {
    widen(other_error, "context parallelism: few runs to compare with");
  }
  if (l.precision == Precision::fp4) {
    widen(other_error, fmt::format("unaudited: the engine has no {}", name_of(l.precision)));
  }
  if (spec::is_fp8(l.precision)) {
    widen(other_error, fmt::format("{}: few runs to compare with", name_of(l.precision)));
  }
  if (l.ranks() > max_compared_gpus) {
    widen(other_error, fmt::format("{} GPUs: the largest measured run to compare with had {}",
                                   l.ranks(), max_compared_gpus));
  }
  const auto parameters = static_cast<double>(spec::parameter_count(job.model));
  if (parameters < min_parameters || parameters > max_parameters) {
    const auto count = [](double n) {
      return n < 1e9 ? fmt::format("{:.3g} M", n / 1e6) : fmt::format("{:.4g} B", n / 1e9);
    };
    widen(other_error,
          fmt::format("{} parameters: the measured runs to compare with had {} to {}",
                      count(parameters), count(min_parameters), count(max_parameters)));
  }
  const bool is_gpu = machine.processor.bf16_flops > machine.processor.fp32_flops;
  if (stack.is_engine() && l.ranks() > 1 && is_gpu) {
    widen(other_error, "Trireme on several GPUs was not measured: overlap is assumed");
  }
  return band;
}

}  // namespace trireme::plan
