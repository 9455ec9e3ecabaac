// SPDX-License-Identifier: Apache-2.0
#include "train/record/run_prediction.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/log.h"
#include "base/text/json.h"
#include "config/files/machine_file.h"
#include "plan/import/config_layout.h"
#include "plan/search/answer.h"
#include "plan/search/feasible.h"
#include "train/report/throughput.h"
#include "train/run/incarnation.h"

namespace trireme::train {
namespace {

// Returns the machine whose file names `hardware`.
std::optional<spec::Machine> machine_of(const std::string& hardware,
                                        const std::vector<std::filesystem::path>& folders) {
  for (const std::string& name : config::machine_names(folders)) {
    try {
      const spec::Machine machine = config::machine_from_file(name, folders);
      if (!machine.processor.name.empty() && machine.processor.name == hardware) return machine;
    } catch (const base::Error& error) {
      // A bad file of another machine must not make the run fail.
      base::log_warning("machine {} ignored: {}", name, error.what());
    }
  }
  return {};
}

// The simulated pipeline replaces the price's bubble and messages.
std::vector<double> terms_of(const plan::Proposal& proposal, bool has_stages) {
  const auto& seconds = proposal.price.seconds_of;
  std::vector<double> terms(seconds.begin(), seconds.end());
  if (has_stages) {
    terms[static_cast<size_t>(plan::Term::messages)] = 0;
    double& bubble = terms[static_cast<size_t>(plan::Term::bubble)];
    bubble = 0;
    double others = 0;
    for (const double term : terms) others += term;
    bubble = proposal.confirmed.seconds - others;
  }
  return terms;
}

void predict_time(const config::Config& config, const spec::Machine& machine,
                  RunPrediction& prediction) {
  plan::Job job = plan::job_of(config);
  job.backend = plan::backend_for(machine, job.backend.deterministic);
  const spec::Layout layout = plan::layout_of(config);
  prediction.why = plan::broken_rule(job, layout);
  if (prediction.why.empty()) {
    prediction.why = plan::missing_in_machine(machine, layout.ranks(), layout.precision);
  }
  if (!prediction.why.empty()) return;
  const plan::Proposal proposal = plan::propose(job, machine, plan::trireme_stack(), layout);
  prediction.seconds = proposal.confirmed.seconds;
  prediction.band = proposal.band.time;
  prediction.terms = terms_of(proposal, layout.pp > 1);
  prediction.stage_seconds = proposal.confirmed.stage_seconds;
}

base::Json number_or_null(bool has, double value) { return has ? base::Json(value) : base::Json(); }

base::Json memory_json(const Incarnation& parts) {
  const spec::MemoryTable& memory = parts.plan().predicted.largest();
  const Platform& platform = parts.bench.platform;
  base::Json json = {{"limit_bytes", nullptr},
                     {"items",
                      {{"params", memory.params},
                       {"grads", memory.grads},
                       {"optim", memory.optim},
                       {"stash", memory.stash()},
                       {"scratch", memory.scratch},
                       {"comm", memory.comm},
                       {"staging", memory.staging}}},
                     {"total_bytes", memory.total()}};
  if (platform.memory_bytes > 0) {
    json["limit_bytes"] = platform.memory_bytes;
  } else if (platform.host_available_bytes < std::numeric_limits<int64_t>::max()) {
    json["limit_bytes"] = platform.host_available_bytes / parts.start.device_sharers;
  }
  return json;
}

// The memory of the same layout if nothing is recomputed; null if nothing is.
base::Json memory_without_recompute(const Incarnation& parts) {
  if (parts.job->layout.recompute == spec::Recompute::none) return nullptr;
  spec::Layout layout = parts.job->layout;
  layout.recompute = spec::Recompute::none;
  layout.recompute_blocks = -1;
  const spec::Solved solved =
      spec::solve(parts.bench.model, parts.job->work, layout, parts.bench.platform.backend);
  if (!solved.broken.empty()) return nullptr;
  return solved.plan.predicted.largest().total();
}

}  // namespace

RunPrediction predict_run(const config::Config& config, const std::string& hardware,
                          const MachineFiles& files) {
  RunPrediction prediction;
  const auto machine = files.configured ? files.configured : machine_of(hardware, files.folders);
  if (config.system.price_per_hour > 0) prediction.price_per_hour = config.system.price_per_hour;
  if (!machine) {
    prediction.why = fmt::format(
        "no machine file names this hardware ({}); `trireme calibrate` writes one, and "
        "system.machine selects it",
        hardware);
    return prediction;
  }
  prediction.machine = machine->name;
  if (!prediction.price_per_hour && machine->price_per_hour > 0) {
    prediction.price_per_hour = machine->price_per_hour;
  }
  try {
    predict_time(config, *machine, prediction);
  } catch (const base::Error& error) {  // a run is not refused for want of a prediction
    prediction.why = error.what();
  }
  return prediction;
}

base::Json prediction_json(const RunPrediction& prediction, const Incarnation& parts) {
  const spec::Plan& plan = parts.plan();
  const int sharers = parts.start.device_sharers;
  const int devices = (parts.start.ranks + sharers - 1) / sharers;
  const bool has_time = prediction.has_time();
  base::Json json = {
      {"machine", prediction.machine.empty() ? base::Json() : base::Json(prediction.machine)},
      {"why", prediction.why},
      {"seconds", number_or_null(has_time, prediction.seconds)},
      {"band", number_or_null(has_time, prediction.band)},
      {"terms", nullptr},
      {"stage_seconds", nullptr}};
  if (has_time) {
    base::Json& terms = json["terms"] = base::Json::object();
    for (size_t i = 0; i < prediction.terms.size(); ++i) {
      terms[std::string(name_of(static_cast<plan::Term>(i)))] = prediction.terms[i];
    }
    if (!prediction.stage_seconds.empty()) json["stage_seconds"] = prediction.stage_seconds;
  }
  json["memory"] = memory_json(parts);
  json["model_flops"] = plan.predicted.model_flops;
  json["hardware_flops"] = plan.predicted.hardware_flops;
  const std::optional<Peak>& peak = parts.peaks.flops;  // of all devices
  json["peak_flops"] = number_or_null(peak.has_value(), peak ? peak->per_second / devices : 0);
  json["peak_source"] = peak ? peak->source : "";
  json["ranks"] = parts.start.ranks;
  json["devices"] = devices;
  json["tokens_per_step"] = step_tokens(plan);
  json["seq_len"] = plan.seq_len;
  json["mfu_formula"] = mfu_formula;
  json["formula_flops_per_token"] = formula_flops_per_token(parts.bench.model, plan.seq_len);
  json["price_per_hour"] =
      number_or_null(prediction.price_per_hour.has_value(), prediction.price_per_hour.value_or(0));
  json["recompute"] = spec::name_of(plan.layout.recompute);
  json["memory_without_recompute_bytes"] = memory_without_recompute(parts);
  return json;
}

}  // namespace trireme::train
