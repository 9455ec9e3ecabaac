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

// Steps before which a median says little.
constexpr int64_t fewest_steps = 3;
// Of a part of the step that is worth naming.
constexpr double worth_naming = 0.01;

// Returns the machine whose file names `hardware`.
std::optional<spec::Machine> machine_of(const std::string& hardware,
                                        const std::vector<std::filesystem::path>& folders) {
  for (const std::string& name : config::machine_names(folders)) {
    try {
      const spec::Machine machine = config::machine_from_file(name, folders);
      if (!machine.processor.name.empty() && machine.processor.name == hardware) return machine;
    } catch (const base::Error& error) {
      // The run is over: a bad file of another machine must not make it fail.
      base::log_warning("machine {} not looked at: {}", name, error.what());
    }
  }
  return {};
}

std::vector<std::string> causes_of(const config::Config& config, const TrainSummary& s,
                                   const StepPrediction& step) {
  std::vector<std::string> causes;
  const bool is_gpu = s.driver_used_bytes > 0;
  if (step.gap() < 0) {
    causes.emplace_back("the machine's file is of a slower machine: trireme calibrate measures it");
    return causes;
  }
  const double saving = s.checkpoints.stall_seconds / std::max(s.seconds, 1e-9);
  if (saving > worth_naming) {
    causes.push_back(
        fmt::format("checkpoints held the host up for {:.0f} % of the time: save less "
                    "often (checkpoint.interval), or to a faster disk",
                    100 * saving));
  }
  if (is_gpu && config.training.document_mask) {
    causes.emplace_back(
        "training.document_mask: attention runs on a kernel of Trireme's own, many "
        "times slower than the library's");
  }
  if (is_gpu && !s.was_captured) {
    causes.emplace_back(
        "the step was not captured: kernels are sent one by one (traced steps, "
        "or ranks as threads)");
  }
  if (is_gpu && config.dims.vocab % 8 != 0) {
    causes.push_back(
        fmt::format("a vocabulary of {} is no multiple of 8: products with it are slow "
                    "(model.vocab_size)",
                    config.dims.vocab));
  }
  if (!is_gpu && s.ranks.size() > 1) {
    causes.emplace_back(
        "ranks are threads that share the cores of one machine; the prediction "
        "gives each a core");
  }
  causes.emplace_back(
      "another program on the device, or a lower clock: compare trireme calibrate "
      "with the machine's file");
  causes.emplace_back(
      "the host is late with batches, or a rank is slow: --trace-steps shows who "
      "waits for whom");
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
  if (s.tokens_per_second <= 0 || s.steps - s.resumed_from < fewest_steps) return {};
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
