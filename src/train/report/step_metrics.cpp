// SPDX-License-Identifier: Apache-2.0
#include "train/report/step_metrics.h"

namespace trireme::train {

obs::StepLine step_line_of(const StepFigures& f) {
  return {.step = f.step,
          .loss = f.report.mean_loss,
          .grad_norm = static_cast<double>(f.report.grad_norm),
          .learning_rate = static_cast<double>(f.report.learning_rate),
          .tokens = f.total_tokens,
          .tokens_per_second = f.tokens_per_second,
          .step_seconds = f.step_seconds,
          .memory_bytes = f.memory_bytes,
          .memory_fraction = f.memory_fraction,
          .mfu = f.mfu,
          .skipped = f.newly_skipped};
}

std::vector<obs::Metric> step_metrics(const StepFigures& f) {
  std::vector<obs::Metric> metrics = {
      {"loss_metrics/global_avg_loss", f.report.mean_loss},
      {"grad_norm", static_cast<double>(f.report.grad_norm)},
      {"lr", static_cast<double>(f.report.learning_rate)},
      {"throughput(tps)", f.tokens_per_second},
      {"tflops", f.tflops},
      {"tokens", static_cast<double>(f.total_tokens)},
      {"epoch", f.epoch},
      {"time_metrics/end_to_end(s)", f.step_seconds},
      {"time_metrics/data_loading(s)", f.data_seconds},
      {"memory/max_active(GiB)", static_cast<double>(f.memory_bytes) / 0x1p30},
      {"skipped_steps", static_cast<double>(f.report.skipped)}};
  if (f.report.loss_scale > 0) {
    metrics.push_back({"loss_scale", static_cast<double>(f.report.loss_scale)});
  }
  if (f.mfu) metrics.push_back({"mfu(%)", 100 * *f.mfu});
  if (f.hfu) metrics.push_back({"hfu(%)", 100 * *f.hfu});
  if (f.pairs_max_over_mean) {
    metrics.push_back({"context/pairs_max_over_mean", *f.pairs_max_over_mean});
  }
  if (f.transfer_seconds) {
    metrics.push_back({"context/exposed_transfers(s)", *f.transfer_seconds});
  }
  if (f.row_transfer_seconds) {
    metrics.push_back({"experts/exposed_transfers(s)", *f.row_transfer_seconds});
  }
  return metrics;
}

}  // namespace trireme::train
