// SPDX-License-Identifier: Apache-2.0
#include "train/report/step_prediction.h"

#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "base/text/json.h"
#include "config/files/machine_file.h"
#include "plan/import/config_layout.h"
#include "plan/search/answer.h"
#include "plan/search/feasible.h"

namespace trireme::train {
namespace {

// With fewer steps the median is not reliable.
constexpr int64_t min_steps = 3;
// The smallest share of the time that is named as a cause.
constexpr double min_share = 0.01;

// Returns the machine whose file names `hardware`.
std::optional<spec::Machine> machine_of(const std::string& hardware,
                                        const std::vector<std::filesystem::path>& folders) {
  for (const std::string& name : config::machine_names(folders)) {
    try {
      const spec::Machine machine = config::machine_from_file(name, folders);
      if (!machine.processor.name.empty() && machine.processor.name == hardware) return machine;
    } catch (const base::Error& error) {
      // The run is over: a bad file of another machine must not make it fail.
      base::log_warning("machine {} ignored: {}", name, error.what());
    }
  }
  return {};
}

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
  if (saving > min_share) {
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
                                              const std::optional<spec::Machine>& configured,
                                              const std::vector<std::filesystem::path>& folders) {
  if (s.tokens_per_second <= 0 || s.steps - s.resumed_from < min_steps) return {};
  const auto machine = configured ? configured : machine_of(s.hardware, folders);
  if (!machine) return {};
  plan::Job job = plan::job_of(config);
  job.backend = plan::backend_for(*machine, job.backend.deterministic);
  const spec::Layout layout = plan::layout_of(config);
  if (const std::string rule = plan::broken_rule(job, layout); !rule.empty()) {
    base::log_warning("no time is predicted: {}", rule);
    return {};
  }
  if (const std::string gap = plan::missing_in_machine(*machine, layout.ranks(), layout.precision);
      !gap.empty()) {
    base::log_warning("no time is predicted: {}", gap);
    return {};
  }
  const plan::Proposal proposal = plan::propose(job, *machine, plan::trireme_stack(), layout);
  StepPrediction step;
  step.machine = machine->name;
  step.predicted = proposal.confirmed.seconds;
  step.measured = static_cast<double>(job.tokens()) / s.tokens_per_second;
  step.band = proposal.band.time;
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
