// SPDX-License-Identifier: Apache-2.0
#include "train/run/step_reporter.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "train/report/throughput.h"
#include "train/run/validation.h"

namespace trireme::train {

StepReporter::StepReporter(const Context& context, const RunPosition& position)
    : to_(context),
      position_(position),
      data_watch_(context.parts.data, context.parts.data_identity),
      skips_(context.parts.config.training.skip_norm_multiple),
      logged_step_(position.first_step - 1) {}

void StepReporter::log_step(int64_t step, double data_seconds) {
  data_watch_.check();
  const engine::StepReport report = to_.parts.engine.report();
  check_samples(report, to_.parts.plan(), step - 1, position_.shift);
  if (step == position_.first_step) to_.clock.leave_out();  // it warms up
  for (const std::string& line : skips_.add(step, report)) to_.log(line);
  const StepFigures figures = figures_of(step, report, data_seconds);
  logged_step_ = step;
  logged_data_seconds_ = data_seconds;

  to_.summary.loss = report.mean_loss;
  to_.summary.loss_curve.push_back({static_cast<double>(step), report.mean_loss});
  to_.summary.skipped_steps = report.skipped;
  to_.summary.attempt_skipped_steps = skips_.attempt_skipped();
  to_.log(obs::step_line(step_line_of(figures)));
  if (to_.output != nullptr) to_.output->add("train", step, step_metrics(figures));
  skips_.check(step, report);
}

StepFigures StepReporter::figures_of(int64_t step, const engine::StepReport& report,
                                     double data_seconds) {
  Incarnation& parts = to_.parts;
  const double seconds = to_.clock.lap();
  const double rate = static_cast<double>(step_tokens(parts.plan())) / seconds;
  const int64_t samples = step * parts.step_samples() + position_.shift;
  StepFigures figures{
      .step = step,
      .report = report,
      .total_tokens = to_.summary.total_tokens,
      .tokens_per_second = rate,
      .step_seconds = seconds,
      .data_seconds =
          (data_seconds - logged_data_seconds_) / static_cast<double>(step - logged_step_),
      .tflops = formula_flops_per_token(parts.model, parts.plan().seq_len) * rate / 1e12,
      .epoch = static_cast<double>(samples) / static_cast<double>(parts.data.train().samples()),
      .memory_bytes = parts.platform.device->ledger().live(),
      .newly_skipped = skips_.newly_skipped()};
  if (parts.platform.memory_bytes > 0) {
    figures.memory_fraction = static_cast<double>(figures.memory_bytes) /
                              static_cast<double>(parts.platform.memory_bytes);
  }
  if (parts.peaks.flops) {
    const Utilisation u =
        utilisation(parts.model, parts.plan(), rate, parts.peaks.flops->per_second);
    figures.mfu = u.mfu;
    figures.hfu = u.hfu;
  }
  return figures;
}

void StepReporter::log_validation(int64_t step) {
  Incarnation& parts = to_.parts;
  const engine::EvalReport sum = validate(parts.engine, parts.rank, *parts.data.validation(),
                                          config::validation_samples(parts.config));
  const double loss = sum.loss_sum / static_cast<double>(std::max<int64_t>(1, sum.tokens));
  to_.summary.validation_loss = loss;
  to_.summary.validation_curve.push_back({static_cast<double>(step), loss});
  to_.log(fmt::format("validate step: {}  loss: {:8.5f}  tokens: {}", step, loss, sum.tokens));
  const std::array<obs::Metric, 2> metrics = {
      {{"validation_metrics/loss", loss},
       {"validation_metrics/tokens", static_cast<double>(sum.tokens)}}};
  if (to_.output != nullptr) to_.output->add("validation", step, metrics);
}

}  // namespace trireme::train
