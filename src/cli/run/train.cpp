// SPDX-License-Identifier: Apache-2.0
// trireme train: a run from a configuration file.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>

#include "base/error.h"
#include "base/log.h"
#include "base/text/json.h"
#include "cli/launch/rank_errors.h"
#include "cli/run/imported_config.h"
#include "cli/run/notices.h"
#include "cli/run/resume_options.h"
#include "cli/run/step_prediction_text.h"
#include "cli/run/stop_signals.h"
#include "cli/run/train_call.h"
#include "cli/run/train_summary.h"
#include "cli/shell/build_info.h"
#include "cli/shell/config_options.h"
#include "cli/shell/device_options.h"
#include "cli/shell/environment.h"
#include "cli/shell/progress.h"
#include "cli/verbs.h"
#include "cli/watch/short_findings.h"
#include "comm/world/epochs.h"
#include "comm/world/rank_env.h"
#include "config/config.h"
#include "config/schema.h"
#include "obs/process_start.h"
#include "obs/run_owner.h"
#include "train/checkpointing/resume_point.h"
#include "train/record/ending.h"
#include "train/run/trainer.h"
#include "train/setup/asked_plan.h"
#include "train/setup/setup.h"
#include "train/setup/spare/spare_warm_up.h"

namespace trireme::cli {
namespace {

// For tests of alarms: see train/numerics/drift_plant.h.
train::DriftOptions planted_drift() {
  const comm::Environment environment = process_environment();
  const auto found = environment.find("TRIREME_PLANT_DRIFT");
  return found == environment.end() ? train::DriftOptions{}
                                    : train::drift_options_from(found->second);
}

train::TraceSteps trace_of(const Args& args, const config::Config& config) {
  if (!args.has("--trace-steps")) return {};
  return train::trace_steps_from(args.text("--trace-steps"), config.training.steps);
}

// Returns the overrides of keys that decide the folder of a run.
std::vector<std::string> folder_overrides(const Args& args) {
  std::vector<std::string> words;
  bool takes_value = false;  // of "--section.key value"
  for (const std::string& word : overrides_of(args)) {
    const bool decides = word.starts_with("--job.") || word.starts_with("--model.") ||
                         word.starts_with("--training.init_from");
    if (decides || (takes_value && !word.starts_with("--"))) words.push_back(word);
    takes_value = decides && word.find('=') == std::string::npos;
  }
  return words;
}

void print_keys(bool as_json) {
  if (!as_json) {
    fmt::print("{}", config::help_text());
    return;
  }
  fmt::print("{}\n", base::Json{{"ok", true}, {"keys", config::help_json()}}.dump());
}

bool reads_once(const Args& args) {
  return args.has("config") && config::is_read_once(args.text("config"));
}

// Throws ConfigError for a pipe or standard input with several processes: each process has another
// standard input, or none, and a pipe has one reader.
config::ConfigText config_text_of(const Args& args, const comm::RankInfo& info) {
  if (reads_once(args) && info.world > 1) {
    throw base::ConfigError(
        fmt::format("{}: with {} processes, standard input or a pipe reaches one of them or none; "
                    "give a file that all can read, or start the ranks with `trireme launch`",
                    args.text("config"), info.world));
  }
  return config_text_of(args);
}

// Returns the overrides of a call. A run.json in the folder of its run stands for that run also
// after the folder was moved, unless the call's own keys, which win, name another folder.
std::vector<std::string> in_own_folder(const Args& args, std::vector<std::string> overrides) {
  if (!args.has("config")) return overrides;
  const std::filesystem::path file = args.text("config");
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
  std::error_code unknown;
  const bool is_of_run = file.filename() == obs::RunDir::config_name &&
                         std::filesystem::exists(folder / obs::RunOwner::record_name, unknown);
  if (is_of_run) overrides.insert(overrides.begin(), "--job.dump_folder=" + folder.string());
  return overrides;
}

// `given`: the configuration, if it has already been read.
int run_as(const comm::RankInfo& info, const Args& args, const StopSignals& signals,
           std::optional<config::ConfigText> given) {
  if (!given) given = config_text_of(args, info);
  const bool is_first = info.rank == 0;
  if (is_first) {
    for (const std::string& warning : info.warnings) base::log_warning("{}", warning);
  }
  // Without a launcher, the ranks are threads of this process, as many as the degrees require.
  const bool is_launched = info.world > 1 || info.source == comm::RankSource::trireme;
  const config::Config config =
      train::settled(train_config(args, *given, is_launched ? info.world : 0));
  const std::optional<spec::Machine> machine = train::configured_machine(config, machine_folders());
  const train::TraceSteps trace = trace_of(args, config);
  // Otherwise `trireme launch` watches.
  const bool watches = info.local_rank == 0 && info.source != comm::RankSource::trireme;
  const std::unique_ptr<agent::NoticeWatch> notices = watches ? watch_notices(config) : nullptr;
  Progress progress("train", "steps", config.training.steps);
  if (is_first) {
    if (!import_option(args).empty()) {
      for (const std::string& note :
           import_notes(imported_config(args, {.data = args.text("--data")}))) {
        progress.line(note);
      }
    }
    for (const std::string& note : config.notes) progress.line("note      " + note);
  }
  const train::TrainHooks hooks{
      .log = [&progress](std::string_view text) { progress.line(text); },
      .begins = [&progress](int64_t done) { progress.begin(done); },
      .progress = [&progress](int64_t done, std::string_view note) { progress.update(done, note); },
      .paused = [&progress](double seconds) { progress.exclude(seconds); },
      .stop = signals.stop(),
      .save = signals.save(),
      .trace = trace,
      .cache_folder = default_cache_folder(),
      .resume = resume_of(args),
      .takes_over = args.flag("--take-over"),
      .program = {.version = build_info().version, .commit = build_info().commit},
      .environment = environment_words({}),
      .machines = {.configured = machine, .folders = machine_folders()},
      .drift = planted_drift(),
      .process_start = obs::process_start_seconds()};
  const train::TrainSummary summary = train::train(config, run_mode(args), hooks, info);
  progress.finish();
  if (!is_first) return exit_code_of(summary);
  std::optional<train::StepPrediction> step;
  if (summary.attempt_steps > 0) {
    step = train::step_prediction(config, summary, hooks.machines);
  }
  const std::optional<analysis::Diagnosis> diagnosis = diagnosis_of(summary.run_folder);
  const std::vector<analysis::Finding> findings =
      diagnosis ? diagnosis->findings : std::vector<analysis::Finding>();
  // Causes with evidence replace those that are merely possible.
  const bool is_explained = std::any_of(findings.begin(), findings.end(),
                                        [](const auto& finding) { return finding.share > 0; });
  if (step && is_explained) step->causes.clear();
  try {
    if (args.wants_json()) {
      base::Json json = summary_json(summary);
      if (step) json["step"] = to_json(*step);
      json["findings"] = analysis::to_json(findings);
      if (diagnosis) json["outcome"] = analysis::to_json(diagnosis->outcome);
      json["name"] = config.job.name;
      if (!config.notes.empty()) json["notes"] = config.notes;
      fmt::print("{}\n", json.dump());
    } else {
      print_summary(summary, args.flag("--curve"));
      if (step) fmt::print("{}", to_text(*step));
      if (diagnosis) fmt::print("{}", short_text(*diagnosis, config.job.name, summary.run_folder));
    }
  } catch (const std::system_error& error) {
    if (error.code().value() != EPIPE) throw;  // the reader has gone away: the run has not failed
  }
  if (const std::string problem = train::ending_of(summary).problem; !problem.empty()) {
    std::fflush(stdout);  // the error is the last line, also where both streams go to one file
    base::log(base::LogLevel::error, problem);
  }
  return exit_code_of(summary);
}

// Waits as a spare until there is a rank to replace.
comm::RankInfo await_part(const Args& args, comm::RankInfo info) {
  const train::SpareWarmUp warm_up(
      asked_config(args, config_text_of(args, info), info.world).system);
  return comm::await_part(std::move(info));
}

int run_train(const Args& args) {
  if (args.flag("--keys")) {
    print_keys(args.wants_json());
    return 0;
  }
  comm::RankInfo info = comm::detect_rank(process_environment());
  // Before signal handlers are installed: Ctrl-C ends a call that waits for its standard input.
  std::optional<config::ConfigText> given;
  if (reads_once(args) && info.world == 1) given = config_text_of(args);
  StopSignals signals;  // before the start-up, so that a request during it is kept
  if (info.has_launcher) signals.watch_launcher(info.life_line);
  info.stop = signals.stop();
  if (!info.spare.empty()) info = await_part(args, std::move(info));
  if (info.is_elastic) info.next_epoch = comm::next_epoch_of(info);
  return run_rank(
      info, {.wants_json = args.wants_json(), .run_folder = [&] { return run_folder_of(args); }},
      [&](const comm::RankInfo& rank) { return run_as(rank, args, signals, given); });
}

}  // namespace

config::Config asked_config(const Args& args, const config::ConfigText& given, int world) {
  return config::load(given, {.overrides = in_own_folder(args, overrides_of(args)),
                              .model_folders = model_folders(),
                              .world = world});
}

config::Config train_config(const Args& args, const config::ConfigText& given, int world) {
  const config::Config asked = asked_config(args, given, world);
  return train::plan_for(asked, world, train::find_resume_point(asked, resume_of(args)));
}

void check_run_options(const Args& args, const config::Config& config) {
  (void)trace_of(args, config);
  (void)train::configured_machine(config, machine_folders());
}

std::string run_folder_of(const Args& args) {
  if (reads_once(args)) return "";
  try {
    return config::load(config_text_of(args),
                        {.overrides = in_own_folder(args, folder_overrides(args)),
                         .model_folders = model_folders()})
        .job.dump_folder;
  } catch (const base::Error&) {  // the caller has the error already
    return "";
  }
}

obs::RunMode run_mode(const Args& args) {
  return args.flag("--overwrite") ? obs::RunMode::overwrite : obs::RunMode::fresh;
}

void check_run_folder(const Args& args, const config::Config& config) {
  const std::filesystem::path folder = config.job.dump_folder;
  const bool resumes = resume_of(args).from != train::Resume::From::start && obs::holds_run(folder);
  obs::RunDir::check(folder, resumes ? obs::RunMode::resume : run_mode(args));
  const std::string refusal = obs::RunOwner::refusal(folder, args.flag("--take-over"));
  if (!refusal.empty()) throw base::IoError(refusal);
}

Verb train_verb() {
  Verb verb = {
      .name = "train",
      .summary = "Train a model from a configuration file",
      .details =
          "The configuration is a file, - for standard input, or options alone (--model and "
          "--data;\n"
          "all other keys have defaults). --section.key=value sets any key; docs/configuration.md\n"
          "lists them. The resolved configuration is written to run.json in the run's folder, and\n"
          "can be run again from there.\n"
          "Ctrl-C, SIGTERM, SIGHUP, SIGUSR2 and SIGXCPU finish the step, save a checkpoint and "
          "end\n"
          "the run with exit code 75; --resume auto continues from it. A second Ctrl-C after 3 s\n"
          "ends the process at once. SIGUSR1 saves a checkpoint and continues. Exit codes: 0 "
          "done,\n"
          "1 failed, 2 bad call or configuration, 75 stopped and saved, 93 do not requeue.\n"
          "Degrees of [parallelism] above 1 run as threads of this process; under `trireme\n"
          "launch`, torchrun, Slurm or MPI each process is one rank.\n"
          "--trace-steps writes to the run's folder: trace_steps_first-last.json for\n"
          "ui.perfetto.dev, with all streams of all ranks: every operation with its layer, shape\n"
          "and cost, every collective and message, the waits between streams, and the time when\n"
          "the host queued them; collectives.json with the time of communication by group, and\n"
          "with a pipeline pipeline_steps_first-last.svg and pipeline.json, with the actions of "
          "all\n"
          "stages as measured and as simulated. Traced steps are not replayed from a captured\n"
          "graph, so they are slower if kernel launches dominate.\n\nExamples:\n"
          "  trireme train configs/kjv.toml\n"
          "  trireme train configs/kjv.toml --training.steps=300 --job.dump_folder=runs/short\n"
          "  trireme train configs/kjv.toml --parallelism.data_parallel_shard_degree=2 "
          "--job.dump_folder=runs/threads\n"
          "  trireme train --model kjv-llama --data runs/kjv-data/kjv.txt --steps 300\n"
          "  trireme train runs/kjv/run.json --overwrite --json",
      .options =
          {{.name = "--keys",
            .kind = Kind::flag,
            .help = "Print all keys of a configuration and exit"},
           {.name = "--trace-steps",
            .help =
                "Steps to write a Chrome trace of all ranks of, as first:last, for example 3:5"},
           {.name = "--resume",
            .help =
                "auto: resume from the newest intact checkpoint in the run's folder that is not "
                "marked bad (after a divergence the newest good one), or start if there is none; "
                "good: from the newest that is marked good; STEP: from the checkpoint of that "
                "step; never: start",
            .offered = {"auto", "good", "never"}},
           {.name = "--resume-verify",
            .kind = Kind::flag,
            .help = "Before resuming, run the steps between the last two checkpoints again and "
                    "check that "
                    "they give the same bits"},
           {.name = "--allow-data-change",
            .kind = Kind::flag,
            .help = "Resume although data, split, order or sequence length differ from the "
                    "checkpoint's"},
           {.name = "--allow-batch-change",
            .kind = Kind::flag,
            .help = "Resume although the global batch size differs; training continues at the next "
                    "sample"},
           {.name = "--take-over",
            .kind = Kind::flag,
            .help = "Take the run's folder over from the process that is writing to it, which then "
                    "ends "
                    "with exit code 93"},
           {.name = "--init-from", .help = "Hugging Face weights to start from"},
           {.name = "--overwrite", .kind = Kind::flag, .help = "Replace the run in the folder"},
           {.name = "--curve", .kind = Kind::flag, .help = "Draw the loss curve at the end"}},
      .takes_overrides = true,
      .run = run_train};
  const std::vector<Option> options = config_options();
  verb.options.insert(verb.options.begin(), options.begin(), options.end());
  return verb;
}

}  // namespace trireme::cli
