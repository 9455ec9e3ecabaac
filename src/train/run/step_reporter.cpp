// SPDX-License-Identifier: Apache-2.0
#include "train/run/step_reporter.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "train/report/expert_figures.h"
#include "train/report/losses/source_losses.h"
#include "train/report/throughput.h"
#include "train/run/validation.h"

namespace trireme::train {

StepReporter::StepReporter(const Context& context, const Timeline& timeline)
    : to_(context),
      timeline_(timeline),
      data_watch_(context.parts.bench.data, context.parts.bench.data_contents),
      skips_(context.parts.bench.config.training.skip_norm_multiple),
      logged_step_(timeline.step()) {}

void StepReporter::log_step(int64_t step, double data_seconds, const TrainBatches& batches) {
  data_watch_.check();
  const engine::StepReport report = to_.parts.engine->report();
  check_samples(report, to_.parts.plan(), step - 1, to_.parts.leg->shift + timeline_.shift());
  for (const std::string& line : skips_.add(step, report)) to_.log(line);
  const StepFigures figures = figures_of(step, report, data_seconds);
  logged_step_ = step;
  logged_data_seconds_ = data_seconds;

  to_.parts.bench.run_log.add_log(step, figures.step_seconds);
  to_.summary.loss = report.mean_loss;
  to_.summary.loss_curve.push_back({static_cast<double>(step), report.mean_loss});
  to_.summary.skipped_steps = report.skipped;
  to_.summary.attempt_skipped_steps = skips_.attempt_skipped();
  to_.log(obs::step_line(step_line_of(figures)));
  if (to_.output != nullptr) {
    to_.output->add_logged_step(step, step_metrics(figures), report.sample_hash);
  }
  if (to_.parts.plan().keeps_losses) log_source_losses(step, batches);
  if (spec::moe_of(to_.parts.bench.model) != nullptr) log_experts(step);
  skips_.check(step, report);
}

void StepReporter::log_source_losses(int64_t step, const TrainBatches& batches) {
  const DataSets& data = to_.parts.bench.data;
  const std::vector<SequenceLoss> sums =
      source_losses(*to_.parts.engine, to_.parts.rank, data, batches);
  to_.log(source_losses_line(data, sums));
  if (to_.output == nullptr) return;
  std::deque<std::string> names;
  std::vector<obs::Metric> metrics;
  for (size_t i = 0; i < sums.size(); ++i) {
    if (sums[i].tokens == 0) continue;
    names.push_back("loss_metrics/by_data/" + data.sources()[i].name());
    metrics.push_back({names.back(), sums[i].loss_sum / static_cast<double>(sums[i].tokens)});
  }
  to_.output->add("by_data", step, metrics);
}

void StepReporter::log_experts(int64_t step) {
  Incarnation& parts = to_.parts;
  const std::vector<ExpertFigures> figures =
      expert_figures(*parts.engine, parts.rank, parts.bench.model, parts.bench.platform.backend);
  to_.log(experts_line(figures));
  if (to_.output == nullptr) return;
  const ExpertMetrics metrics = expert_metrics(figures);
  to_.output->add("experts", step, metrics.metrics());
}

StepFigures StepReporter::figures_of(int64_t step, const engine::StepReport& report,
                                     double data_seconds) {
  Incarnation& parts = to_.parts;
  const double seconds = to_.clock.lap();
  const int64_t since_logged = timeline_.tokens_at(step) - timeline_.tokens_at(logged_step_);
  const double rate =
      static_cast<double>(since_logged) / (seconds * static_cast<double>(step - logged_step_));
  const int64_t seq_len = parts.plan().seq_len;
  const int64_t epoch_tokens = parts.bench.data.epoch_samples(seq_len) * seq_len;
  const int64_t read = parts.bench.data.tokens_until(step) + timeline_.shift() * seq_len;
  StepFigures figures{
      .step = step,
      .report = report,
      .total_tokens = timeline_.tokens_at(step),
      .tokens_per_second = rate,
      .step_seconds = seconds,
      .data_seconds =
          (data_seconds - logged_data_seconds_) / static_cast<double>(step - logged_step_),
      .tflops = formula_flops_per_token(parts.bench.model, parts.plan().seq_len) * rate / 1e12,
      .epoch = static_cast<double>(read) / static_cast<double>(epoch_tokens),
      .memory_bytes = parts.bench.platform.device->ledger().live(),
      .newly_skipped = skips_.newly_skipped()};
  if (parts.bench.platform.memory_bytes > 0) {
    figures.memory_fraction = static_cast<double>(figures.memory_bytes) /
                              static_cast<double>(parts.bench.platform.memory_bytes);
  }
  if (parts.plan().mesh[spec::Axis::cp] > 1) {
    figures.pairs_max_over_mean = parts.engine->pairs_max_over_mean();
    figures.transfer_seconds = parts.engine->transfer_seconds();
  }
  figures.row_transfer_seconds = parts.engine->row_transfer_seconds();
  if (parts.peaks.flops) {
    const Utilisation u =
        utilisation(parts.bench.model, parts.plan(), rate, parts.peaks.flops->per_second);
    figures.mfu = u.mfu;
    figures.hfu = u.hfu;
  }
  return figures;
}

void StepReporter::log_validation(int64_t step) {
  Incarnation& parts = to_.parts;
  const size_t sets = parts.bench.data.validations();
  ValidationFigures figures;
  for (size_t i = 0; i < sets; ++i) {
    figures.sets.push_back(
        {parts.bench.data.validation_name(i),
         validate(*parts.engine, parts.rank, parts.bench.data.validation(i, parts.plan().seq_len),
                  config::validation_samples(parts.bench.config),
                  parts.bench.tokenizer.token_bytes())});
  }
  const double loss = figures.loss();
  to_.summary.validation_loss = loss;
  to_.summary.validation = figures;
  to_.summary.validation_curve.push_back({static_cast<double>(step), loss});
  for (const std::string& line : validation_lines(step, figures)) to_.log(line);
  if (to_.output != nullptr) {
    to_.output->add("validation", step, validation_metrics(figures).metrics);
  }
}

}  // namespace trireme::train
