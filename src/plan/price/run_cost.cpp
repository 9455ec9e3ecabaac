// SPDX-License-Identifier: Apache-2.0
#include "plan/price/run_cost.h"

#include <cmath>

#include "base/check.h"

namespace trireme::plan {

RunCost run_cost(const RunQuestion& q) {
  const auto step_tokens = static_cast<double>(q.step_tokens);
  TRIREME_CHECK(q.tokens >= step_tokens && q.tokens <= 1e18, "{} tokens, {} in a step", q.tokens,
                q.step_tokens);
  RunCost cost;
  cost.tokens = q.tokens;
  cost.steps = static_cast<int64_t>(std::ceil(q.tokens / step_tokens));
  const double hours = static_cast<double>(cost.steps) * q.step_seconds / 3600;
  cost.days = hours / 24;
  cost.gpu_hours = hours * static_cast<double>(q.gpus);
  if (q.dollars_per_gpu_hour) cost.dollars = cost.gpu_hours * *q.dollars_per_gpu_hour;
  return cost;
}

double best_save_interval(double save_seconds, double failure_seconds) {
  return std::sqrt(2 * save_seconds * failure_seconds);
}

}  // namespace trireme::plan
