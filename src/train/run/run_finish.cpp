// SPDX-License-Identifier: Apache-2.0
// Run: exported weights, the last checkpoint, and the figures of its summary.
#include <filesystem>
#include <system_error>

#include "analysis/outcome/onset.h"
#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "ckpt/generation/folder.h"
#include "device/accelerator.h"
#include "obs/clock.h"
#include "obs/terminal/number_text.h"
#include "spec/parallel/data_parallel.h"
#include "train/checkpointing/saver.h"
#include "train/report/throughput.h"
#include "train/run/run.h"

namespace trireme::train {

void Run::count_steps() {
  summary_.steps = timeline_.step();
  summary_.attempt_steps = timeline_.attempt_steps();
  summary_.tokens = timeline_.attempt_tokens();
  summary_.total_tokens = timeline_.tokens_at(timeline_.step());
}

void Run::finish() {
  record_steps(true);
  count_steps();
  parts_->checkpoints->finish();
  if (parts_->peers) {
    parts_->peers->sender().stop();  // before others end
    parts_->peers->settle();
  }
  summary_.checkpoints = parts_->checkpoints->figures();
  summary_.copies = parts_->checkpoints->copy_figures();
  summary_.saved_step = parts_->rank.gather(summary_.saved_step).front();
  find_divergence();
  if (summary_.was_stopped && summary_.saved_step == summary_.steps) {
    log(fmt::format("stopped   step {} is saved; --resume auto continues", summary_.steps));
  } else if (summary_.was_stopped) {
    log(fmt::format("stopped   step {} is not saved", summary_.steps));
  }
  if (exports_weights(config_) && !(timeline_.step() < epoch_first_step_ && has_final_weights())) {
    export_weights(summary_.was_stopped ? ckpt::generation_name(summary_.steps) : "final");
  }
  summarise();
  parts_->rank.barrier();  // no rank leaves while another still reads
}

// The first rank has the record; all need the exit code.
void Run::find_divergence() {
  summary_.divergence = bench_.run_log.divergence(summary_.was_stopped);
  const bool is_of_this_attempt = timeline_.attempt_steps() > 0;
  if (!summary_.divergence.empty() && is_of_this_attempt) {
    summary_.divergence += mark_divergence();
  }
  const uint8_t own = summary_.divergence.empty() ? 0 : 1;
  summary_.has_diverged = parts_->rank.gather(own).front() != 0;
}

std::string Run::mark_divergence() {
  if (!output_) return "";
  output_->write_steps(true);
  try {
    const analysis::Onset onset =
        analysis::onset_of_divergence(analysis::read_run(output_->folder(), obs::wall_seconds()));
    bench_.run_log.dates_divergence(onset.step);
    if (marks_) marks_->diverged(onset.first_bad_state(), onset.text);
    return "; " + onset.text;
  } catch (const base::IoError& error) {
    base::log_warning("the divergence is not dated: {}", error.what());
    return "";
  }
}

// Returns on every rank what the first one finds.
bool Run::has_final_weights() {
  std::error_code ignored;
  const bool exists =
      output_ && std::filesystem::exists(output_->saver().folder() / "final", ignored);
  return parts_->rank.gather(static_cast<uint8_t>(exists ? 1 : 0)).front() != 0;
}

// A failing export is reported; what it would have exported is in the checkpoint.
void Run::export_weights(const std::string& name) {
  const obs::PhaseClock::Scope scope(phases(), obs::Phase::exporting);
  count_steps();
  const SavedWeights saved =
      save_weights(*parts_->engine, parts_->rank, output_ ? &output_->saver() : nullptr, name);
  summary_.weights = saved.path;
  summary_.export_problem = saved.problem;
  if (saved.problem.empty()) {
    log(fmt::format("weights   {} ({} in {:.2f} s)", saved.path.string(),
                    obs::bytes_text(saved.bytes), saved.seconds));
    if (output_) output_->add(summary_.steps, saved);
    bench_.run_log.add({.kind = obs::EventKind::exported,
                        .step = summary_.steps,
                        .text = fmt::format("weights were written to {}", saved.path.string()),
                        .data = {{"bytes", saved.bytes}, {"seconds", saved.seconds}}});
  } else {
    log(fmt::format("weights   not exported: {}; {}", saved.problem,
                    export_advice(summary_, config_.job.dump_folder)));
    bench_.run_log.add({.kind = obs::EventKind::export_failed,
                        .step = summary_.steps,
                        .severity = obs::Severity::error,
                        .text = fmt::format("the weights were not exported: {}", saved.problem)});
  }
}

int64_t Run::predicted_sent_bytes() const {
  const spec::TrafficTable sent = spec::predict_traffic(bench_.model, parts_->plan(),
                                                        parts_->rank.coord(), parts_->rank.nodes());
  return timeline_.engine_steps() * (sent.total() - sent.other);
}

HostMemory Run::host_memory() const {
  const device::Ledger& used = bench_.platform.device->host_ledger();
  return {.buffers = {.predicted_bytes = parts_->host_bytes().buffer_bytes,
                      .measured_bytes = used.live(device::Mem::staging)},
          .checkpoints = parts_->checkpoints->memory(),
          .rebuild = parts_->rebuild_memory,
          .copies = parts_->checkpoints->copy_memory(),
          .kept = {.predicted_bytes = parts_->kept_bytes,
                   .measured_bytes = parts_->peers ? parts_->peers->reserved_bytes() : 0}};
}

void Run::summarise() {
  const RankFigures own{.predicted = parts_->engine->predicted_memory(),
                        .measured = parts_->engine->measured(),
                        .ledger_bytes = bench_.platform.device->ledger().live(),
                        .host = host_memory(),
                        .predicted_traffic_bytes = predicted_sent_bytes_ + predicted_sent_bytes(),
                        .counted_traffic_bytes = sent_bytes_};
  set_ranks(summary_, parts_->rank.gather(own));
  summary_.ledger_bytes = own.ledger_bytes;
  summary_.driver_used_bytes = device::driver_used_bytes(*bench_.platform.device);
  if (bench_.platform.is_gpu() && parts_->rank.is_alone()) {
    log(memory_line(summary_.ledger_bytes, summary_.driver_used_bytes));
  }
  summary_.seconds = clock_.seconds();
  if (clock_.median_lap() > 0) {
    summary_.tokens_per_second =
        static_cast<double>(step_tokens(parts_->plan())) / clock_.median_lap();
  } else if (clock_.seconds() > 0) {  // too few steps were logged for a median
    summary_.tokens_per_second = static_cast<double>(summary_.tokens) / clock_.seconds();
  }
  const RunPeaks& peaks = parts_->peaks;
  const auto against = [this](const Peak& peak) {
    return utilisation(bench_.model, parts_->plan(), summary_.tokens_per_second, peak.per_second);
  };
  if (peaks.flops) {
    summary_.mfu = against(*peaks.flops).mfu;
    summary_.hfu = against(*peaks.flops).hfu;
    summary_.peak_flops = peaks.flops->per_second;
    summary_.peak_source = peaks.flops->source;
  }
  if (peaks.gemm) summary_.gemm_utilisation = against(*peaks.gemm).mfu;
}

}  // namespace trireme::train
