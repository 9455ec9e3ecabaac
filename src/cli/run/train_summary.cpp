// SPDX-License-Identifier: Apache-2.0
#include "cli/run/train_summary.h"

#include <string_view>
#include <vector>

#include "agent/exit_codes.h"
#include "base/text/json.h"
#include "cli/shell/environment.h"
#include "cli/shell/terminal_style.h"
#include "obs/terminal/curve.h"
#include "obs/terminal/number_text.h"
#include "train/record/ending.h"
#include "train/report/memory_table.h"
#include "train/report/throughput.h"

namespace trireme::cli {
namespace {

std::string steps_text(int64_t count) {
  return fmt::format("{} step{}", obs::grouped(count), count == 1 ? "" : "s");
}

// How the text of a summary begins.
std::string_view end_word(const train::TrainSummary& s) {
  switch (train::ending_of(s).kind) {
    case analysis::OutcomeKind::healthy:
      return "done:";
    case analysis::OutcomeKind::diverged:
      return "diverged after";
    default:
      return s.was_stopped ? "stopped after" : "failed after";
  }
}

}  // namespace

int exit_code_of(const train::TrainSummary& s) {
  switch (train::ending_of(s).kind) {
    case analysis::OutcomeKind::healthy:
      return agent::exit_done;
    case analysis::OutcomeKind::stopped:
      return agent::exit_stopped;
    case analysis::OutcomeKind::diverged:
      return agent::exit_diverged;
    default:
      return agent::exit_failed;
  }
}

base::Json summary_json(const train::TrainSummary& s) {
  const auto bytes = [](const spec::MemoryTable& m) {
    return base::Json{{"params", m.params},   {"grads", m.grads},     {"optim", m.optim},
                      {"stash", m.stash()},   {"scratch", m.scratch}, {"comm", m.comm},
                      {"staging", m.staging}, {"total", m.total()}};
  };
  base::Json out = {{"ok", exit_code_of(s) == agent::exit_done},
                    {"steps", s.steps},
                    {"attempt_steps", s.attempt_steps},
                    {"tokens", s.tokens},
                    {"total_tokens", s.total_tokens},
                    {"skipped_steps", s.skipped_steps},
                    {"stopped", s.was_stopped},
                    {"parameters", s.parameters},
                    {"device", s.hardware},
                    {"captured", s.was_captured},
                    {"startup_seconds", s.startup_seconds},
                    {"train_seconds", s.seconds},
                    {"tokens_per_second", s.tokens_per_second},
                    {"memory_predicted_bytes", bytes(s.predicted)},
                    {"memory_measured_bytes", bytes(s.measured)},
                    {"run_folder", s.run_folder.string()},
                    {"weights", s.weights.string()}};
  if (s.loss) out["loss"] = *s.loss;
  if (const std::string problem = train::ending_of(s).problem; !problem.empty()) {
    out["error"] = problem;
  }
  out["ranks"] = base::Json::array();
  for (const train::RankFigures& rank : s.ranks) {
    out["ranks"].push_back({{"memory_predicted_bytes", rank.predicted.total()},
                            {"memory_measured_bytes", rank.measured.total()},
                            {"buffers_predicted_bytes", rank.host.buffers.predicted_bytes},
                            {"buffers_measured_bytes", rank.host.buffers.measured_bytes},
                            {"checkpoints_predicted_bytes", rank.host.checkpoints.predicted_bytes},
                            {"checkpoints_measured_bytes", rank.host.checkpoints.measured_bytes},
                            {"rebuild_predicted_bytes", rank.host.rebuild.predicted_bytes},
                            {"rebuild_measured_bytes", rank.host.rebuild.measured_bytes},
                            {"copies_predicted_bytes", rank.host.copies.predicted_bytes},
                            {"copies_measured_bytes", rank.host.copies.measured_bytes},
                            {"kept_copies_predicted_bytes", rank.host.kept.predicted_bytes},
                            {"kept_copies_measured_bytes", rank.host.kept.measured_bytes},
                            {"traffic_predicted_bytes", rank.predicted_traffic_bytes},
                            {"traffic_counted_bytes", rank.counted_traffic_bytes}});
  }
  if (s.validation_loss) out["validation_loss"] = *s.validation_loss;
  if (s.validation) out["validation"] = train::to_json(*s.validation);
  out["first_batch"] = fmt::format("{:016x}", s.first_batch_hash);
  if (s.mfu) {
    out["mfu"] = *s.mfu;
    out["hfu"] = *s.hfu;
    out["mfu_formula"] = train::mfu_formula;
    out["peak_tflops"] = s.peak_flops / 1e12;
    out["peak_source"] = s.peak_source;
  }
  if (s.gemm_utilisation) out["utilisation_of_gemm_peak"] = *s.gemm_utilisation;
  if (s.driver_used_bytes > 0) {
    out["ledger_bytes"] = s.ledger_bytes;
    out["driver_used_bytes"] = s.driver_used_bytes;
    out["library_bytes"] = s.driver_used_bytes - s.ledger_bytes;
  }
  if (!s.trace.empty()) out["trace"] = s.trace.string();
  if (!s.picture.empty()) out["picture"] = s.picture.string();
  if (s.resumed_from > 0) out["resumed_from"] = s.resumed_from;
  if (s.saved_step >= 0) out["saved_step"] = s.saved_step;
  if (s.checkpoints.saves + s.checkpoints.failed > 0) {
    out["checkpoints"] = {{"saved", s.checkpoints.saves},
                          {"failed", s.checkpoints.failed},
                          {"bytes", s.checkpoints.bytes},
                          {"predicted_file_bytes", s.checkpoint_bytes},
                          {"stall_seconds", s.checkpoints.stall_seconds},
                          {"durable_seconds", s.checkpoints.durable_seconds},
                          {"memory_predicted_bytes", s.host_memory.checkpoints.predicted_bytes},
                          {"memory_measured_bytes", s.host_memory.checkpoints.measured_bytes}};
  }
  if (s.copies.copies + s.copies.skipped > 0) {
    out["copies"] = {{"made", s.copies.copies},
                     {"skipped", s.copies.skipped},
                     {"failed", s.copies.failed},
                     {"interval_steps", s.copies.interval},
                     {"exposed_seconds", s.copies.exposed_seconds},
                     {"sent", s.copies.sent},
                     {"sent_bytes", s.copies.sent_bytes},
                     {"send_failed", s.copies.send_failed}};
  }
  return out;
}

void print_summary(const train::TrainSummary& s, bool with_curve) {
  if (with_curve && s.loss_curve.size() > 1) {
    std::vector<obs::CurveSeries> series = {{"training loss", s.loss_curve}};
    if (!s.validation_curve.empty()) series.push_back({"validation loss", s.validation_curve});
    fmt::print("\n{}",
               obs::curve_text(series, {.is_unicode = is_utf8_locale(process_environment())}));
  }
  if (s.attempt_steps > 0) {
    fmt::print("\n{}\n", train::memory_table_text(s.predicted, s.measured, s.host_memory));
  }
  if (s.attempt_steps > 0 && s.ranks.size() > 1)
    fmt::print("{}\n", train::ranks_table_text(s.ranks));
  if (s.attempt_steps == 0) {
    fmt::print("nothing to do: the run is at step {}\n", obs::grouped(s.steps));
  } else {
    fmt::print("{} {}{}, {} tokens in {} ({} tokens/s)\n", end_word(s), steps_text(s.steps),
               s.attempt_steps < s.steps
                   ? fmt::format(" ({} in this attempt)", obs::grouped(s.attempt_steps))
                   : "",
               obs::grouped(s.tokens), obs::duration_text(s.seconds),
               obs::grouped(static_cast<int64_t>(s.tokens_per_second)));
  }
  if (s.loss) fmt::print("loss {:.4f} nats per token", *s.loss);
  if (s.validation_loss) fmt::print(", validation {:.4f}", *s.validation_loss);
  if (s.skipped_steps > 0) {
    fmt::print(", {} skipped", steps_text(s.skipped_steps));
  }
  if (s.mfu) {
    fmt::print(", MFU {:.1f} %, HFU {:.1f} % of {:g} TFLOP/s ({})", 100 * *s.mfu, 100 * *s.hfu,
               s.peak_flops / 1e12, s.peak_source);
  }
  if (s.gemm_utilisation)
    fmt::print(", {:.1f} % of the measured GEMM peak", 100 * *s.gemm_utilisation);
  fmt::print("\n");
  if (!s.trace.empty()) fmt::print("trace in {}\n", s.trace.string());
  if (!s.weights.empty()) fmt::print("weights in {}\n", s.weights.string());
}

}  // namespace trireme::cli
