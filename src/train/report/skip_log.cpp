// SPDX-License-Identifier: Apache-2.0
#include "train/report/skip_log.h"

#include <cmath>

#include "base/error.h"

namespace trireme::train {
namespace {

constexpr int64_t max_skips_in_a_row = 100;
// Enough to bring a loss scale from the largest value to the smallest one.
constexpr int64_t max_overflows_in_a_row = 50;

std::string ended_line(int64_t first, int64_t skipped, int64_t step) {
  return fmt::format("guard     step{} skipped; step {} is applied",
                     skipped == 1 ? fmt::format(" {} was", first)
                                  : fmt::format("s {} to {} were", first, first + skipped - 1),
                     step);
}

}  // namespace

// Separates what earlier attempts skipped from what this one skipped in its first step.
void SkipLog::begin_attempt(const engine::StepReport& report) {
  first_skipped_ = report.skipped - (report.was_skipped ? 1 : 0);
  skipped_ = first_skipped_;
  logged_row_ = report.was_skipped ? 0 : report.row_first;
}

std::vector<std::string> SkipLog::add(int64_t step, const engine::StepReport& report) {
  if (first_skipped_ < 0) begin_attempt(report);
  std::vector<std::string> lines;
  if (report.row_first > logged_row_) {
    logged_row_ = report.row_first;
    is_row_open_ = true;
    skipped_before_row_ =
        report.skipped_in_a_row > 0 ? report.skipped - report.skipped_in_a_row : skipped_;
    lines.push_back(began_line(report));
  }
  if (is_row_open_ && report.skipped_in_a_row == 0) {
    is_row_open_ = false;
    lines.push_back(ended_line(report.row_first, report.skipped - skipped_before_row_, step));
  }
  newly_skipped_ = report.skipped - skipped_;
  skipped_ = report.skipped;
  return lines;
}

std::string SkipLog::began_line(const engine::StepReport& report) const {
  if (!std::isfinite(report.row_norm)) {
    return fmt::format(
        "guard     step {} skipped: the gradient norm is not finite{}", report.row_first,
        report.loss_scale > 0 ? fmt::format("; the loss scale is {:.10g}", report.next_loss_scale)
                              : "");
  }
  return fmt::format(
      "guard     step {} skipped: gradient norm {:.4g} is {:.3g} x its running "
      "mean {:.4g}; training.skip_norm_multiple = {:g}",
      report.row_first, report.row_norm, report.row_norm / report.row_mean, report.row_mean,
      norm_multiple_);
}

void SkipLog::check(int64_t step, const engine::StepReport& report) const {
  if (report.loss_scale > 0 && !std::isfinite(report.grad_norm) &&
      report.skipped_in_a_row >= max_overflows_in_a_row) {
    throw base::Diverged(fmt::format(
        "step {}: {} steps in a row were skipped because the gradient is not finite, also with a "
        "loss scale of {:.10g}: values exceed 65,504, the largest number of fp16; {}set "
        "precision.recipe = \"bf16\", or lower optimizer.lr, and continue from a checkpoint "
        "before step {}",
        step, report.skipped_in_a_row, report.loss_scale,
        report.loss_scale > 1 ? "lower precision.loss_scale and precision.loss_scale_min, or " : "",
        report.row_first));
  }
  if (report.skipped_in_a_row < max_skips_in_a_row) return;
  throw base::Diverged(fmt::format(
      "step {}: {} steps in a row were skipped because the gradient norm ({}) is not finite or "
      "above {} times its running mean; lower optimizer.lr, or set training.skip_norm_multiple",
      step, report.skipped_in_a_row, report.grad_norm, norm_multiple_));
}

}  // namespace trireme::train
