// SPDX-License-Identifier: Apache-2.0
#include "cli/launch/next_layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/system/regular_file.h"
#include "base/text/json_depth.h"
#include "cli/verbs.h"
#include "config/files/machine_file.h"
#include "config/layout.h"
#include "config/lists/phases.h"
#include "config/schema.h"
#include "obs/run_owner.h"
#include "obs/terminal/number_text.h"
#include "plan/import/config_layout.h"
#include "plan/search/answer.h"
#include "spec/layout/layout_text.h"
#include "train/report/step_prediction.h"

namespace trireme::cli {
namespace {

constexpr int64_t max_prediction_bytes = int64_t{64} << 20;

// Layouts of the same numbers: formats, recipe and experts are not the planner's to change here.
plan::Space space_of(const spec::Layout& present) {
  plan::Space space;
  space.precision = {present.precision};
  space.bf16_first = present.bf16_first;
  space.bf16_last = present.bf16_last;
  space.bf16_blocks = present.bf16_blocks;
  space.grad_dtype = present.grad_dtype;
  space.master_dtype = present.master_dtype;
  space.reduce_dtype = present.reduce_dtype;
  space.deterministic = present.deterministic;
  space.row_budget = present.row_budget;
  space.expert_capacity = present.expert_capacity;
  space.overflow = present.overflow;
  if (present.cp > 1) {
    space.cp.push_back(present.cp);
    space.context_kinds.push_back(present.context_kind);
  }
  return space;
}

// A leg of the run (train/batches/leg.h) as a configuration.
struct LegConfig {
  config::Config config;
  bool has_own_micro_batch = false;  // not training.local_batch_size
  double bytes = 0;                  // of the rank that needs most
};

// Returns the leg that needs the most memory.
LegConfig largest_leg(const config::Config& present, const spec::Machine& machine) {
  LegConfig largest;
  for (const config::PhaseSettings& phase : config::phases_of(present)) {
    LegConfig leg{.config = config::with_phase(present, phase)};
    plan::Job job = plan::job_of(leg.config);
    job.backend = plan::backend_for(machine, job.backend.deterministic);
    const spec::Layout layout = config::settled_layout(leg.config);
    leg.bytes = plan::confirm(job, machine, plan::trireme_stack(), layout).bytes;
    leg.has_own_micro_batch = phase.local_batch_size != present.training.local_batch_size;
    if (leg.bytes > largest.bytes) largest = leg;
  }
  return largest;
}

// Returns the keys of `before` that another layout changes, as options.
std::vector<std::string> changed_words(config::Config before, config::Config after) {
  config::set_layout(before, spec::opened(config::layout_of(before)));
  const std::vector<config::Key> old_keys = keys_of(before), new_keys = keys_of(after);
  std::vector<std::string> words;
  for (size_t i = 0; i < new_keys.size(); ++i) {
    const config::Key& key = new_keys[i];
    if (key.path() == "training.dtype" || value_json(key) == value_json(old_keys[i])) continue;
    const auto* const* text = std::get_if<std::string*>(&key.field);
    words.push_back(fmt::format("--{}={}", key.path(), text ? **text : value_text(key)));
  }
  return words;
}

// Returns the configuration with another layout. Throws ConfigError if a phase does not allow it.
config::Config with_layout(const config::Config& present, const spec::Layout& layout,
                           bool has_own_micro_batch) {
  config::Config after = present;
  config::set_layout(after, spec::opened(layout));
  after.training.global_batch_size = present.training.global_batch_size;
  if (has_own_micro_batch) after.training.local_batch_size = present.training.local_batch_size;
  (void)config::solved(after, 0);
  return after;
}

// Returns the machine of the configuration, or that of the run's prediction (prediction.json in its
// folder); none, with a warning, if neither names one.
std::optional<spec::Machine> machine_of_run(const config::Config& config) {
  if (auto configured = train::configured_machine(config, machine_folders())) return configured;
  const std::filesystem::path file =
      std::filesystem::path(config.job.dump_folder) / "prediction.json";
  const base::Result<std::string> text = base::read_regular_file(file, max_prediction_bytes);
  const base::Json json = text ? base::parse_shallow_json(text.value()) : base::Json();
  const auto name = json.is_object() ? json.value("machine", base::Json()) : base::Json();
  if (name.is_string()) {
    return config::machine_from_file(name.get<std::string>(), machine_folders());
  }
  base::log_warning(
      "the planner is not asked for another layout: {} names no machine; `trireme calibrate` "
      "writes its file, and system.machine names it",
      file.string());
  return std::nullopt;
}

}  // namespace

std::optional<NextLayout> next_layout(const config::Config& present, const spec::Machine& machine,
                                      double share) {
  const LegConfig leg = largest_leg(present, machine);
  plan::Job job = plan::job_of(leg.config);
  job.backend = plan::backend_for(machine, job.backend.deterministic);
  const spec::Layout layout = config::settled_layout(leg.config);
  spec::Machine smaller = machine;
  smaller.processor.memory_bytes = share * leg.bytes;
  plan::SearchOptions options;
  options.gpus = layout.ranks();
  options.space = space_of(layout);
  if (leg.has_own_micro_batch) options.space.micro_batch = {layout.micro_batch};
  options.memory_fraction = 1;
  const plan::Answer answer = plan::answer(job, smaller, plan::trireme_stack(), options,
                                           {.known = {}, .progress = {}, .is_brief = true});
  if (!answer.best || !answer.best->confirmed.has_plan) return std::nullopt;
  const plan::Proposal& best = *answer.best;
  const config::Config after =
      with_layout(present, best.confirmed.plan.layout, leg.has_own_micro_batch);
  return NextLayout{.words = changed_words(present, after),
                    .text = fmt::format(
                        "{}: {} instead of {} a rank, {:.3g} s a step", spec::words(best.layout),
                        obs::bytes_text(static_cast<int64_t>(best.confirmed.bytes)),
                        obs::bytes_text(static_cast<int64_t>(leg.bytes)), best.confirmed.seconds)};
}

std::vector<std::string> layout_after_lack(const config::Config& config, int ranks,
                                           double started) {
  const std::optional<obs::OwnerRecord> owner = obs::read_owner(config.job.dump_folder);
  if (!owner || owner->since < started) return {};
  try {
    const std::optional<spec::Machine> machine = machine_of_run(config);
    if (!machine) return {};
    const bool is_gpu = machine->processor.bf16_flops > machine->processor.fp32_flops;
    const config::Config settled = config::settle_dtype(config::solved(config, ranks), is_gpu);
    const std::optional<NextLayout> next = next_layout(settled, *machine);
    base::log_info("planner   {}", next ? next->text : "no layout needs clearly less memory");
    return next ? next->words : std::vector<std::string>();
  } catch (const base::Error& error) {
    base::log_warning("the planner found no other layout: {}", error.what());
    return {};
  }
}

}  // namespace trireme::cli
