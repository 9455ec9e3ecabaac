// SPDX-License-Identifier: Apache-2.0
#include "train/report/step_prediction.h"

#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "base/text/json.h"
#include "config/files/machine_file.h"
#include "plan/import/config_layout.h"

namespace trireme::train {
namespace {

// With fewer steps the median is not reliable.
constexpr int64_t min_steps = 3;
// The smallest share of the time that is named as a cause.
constexpr double min_cause_share = 0.01;

std::vector<std::string> causes_of(const config::Config& config, const TrainSummary& s,
                                   const StepPrediction& step) {
  std::vector<std::string> causes;
  const bool is_gpu = s.driver_used_bytes > 0;
  if (step.gap() < 0) {
    causes.emplace_back(
        "the machine file describes a slower machine: trireme calibrate measures this one");
    return causes;
  }
  const double saving = s.checkpoints.stall_seconds / std::max(s.seconds, 1e-9);
  if (saving > min_cause_share) {
    causes.push_back(
        fmt::format("checkpoints blocked the host for {:.0f} % of the time: save less often "
                    "(checkpoint.interval), or to a faster disk",
                    100 * saving));
  }
  if (is_gpu && config.training.document_mask) {
    causes.emplace_back(
        "training.document_mask: attention runs on Trireme's kernel, which is many times slower "
        "than "
        "cuDNN's");
  }
  if (is_gpu && !s.was_captured) {
    causes.emplace_back(
        "the step was not captured as a graph: kernels are launched one by one (traced steps, or "
        "ranks as threads)");
  }
  if (is_gpu && config.dims.vocab % 8 != 0) {
    causes.push_back(fmt::format(
        "the vocabulary of {} is not a multiple of 8: products with it are slow (model.vocab_size)",
        config.dims.vocab));
  }
  if (!is_gpu && s.ranks.size() > 1) {
    causes.emplace_back(
        "ranks are threads that share the cores of one machine; the prediction assumes a core for "
        "each");
  }
  causes.emplace_back(
      "another program on the device, or a lower clock: compare the result of trireme calibrate "
      "with the machine file");
  causes.emplace_back(
      "the host is late with batches, or a rank is slow: --trace-steps shows which rank waits for "
      "which");
  return causes;
}

}  // namespace

std::optional<spec::Machine> configured_machine(const config::Config& config,
                                                const std::vector<std::filesystem::path>& folders) {
  if (config.system.machine.empty()) return {};
  return config::machine_from_file(config.system.machine, folders);
}

std::optional<StepPrediction> step_prediction(const config::Config& config, const TrainSummary& s,
                                              const MachineFiles& files) {
  if (s.tokens_per_second <= 0 || s.steps - s.resumed_from < min_steps) return {};
  const RunPrediction predicted =
      s.prediction ? *s.prediction : predict_run(config, s.hardware, files);
  if (predicted.machine.empty()) return {};
  if (!predicted.has_time()) {
    base::log_warning("no time is predicted: {}", predicted.why);
    return {};
  }
  StepPrediction step;
  step.machine = predicted.machine;
  step.predicted = predicted.seconds;
  step.measured = static_cast<double>(plan::job_of(config).tokens()) / s.tokens_per_second;
  step.band = predicted.band;
  if (std::abs(step.gap()) > step.band) step.causes = causes_of(config, s, step);
  return step;
}

base::Json to_json(const StepPrediction& step) {
  return {{"machine", step.machine},
          {"predicted_seconds", step.predicted},
          {"measured_seconds", step.measured},
          {"gap", step.gap()},
          {"band", step.band},
          {"causes", step.causes}};
}

}  // namespace trireme::train
