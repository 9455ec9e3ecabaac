// SPDX-License-Identifier: Apache-2.0
// trireme train: a run from a configuration file.
#include <cerrno>
#include <charconv>
#include <system_error>

#include "base/error.h"
#include "base/log.h"
#include "base/text/count_text.h"
#include "base/text/json.h"
#include "ckpt/disk/posix_disk.h"
#include "ckpt/generation/folder.h"
#include "cli/run/rank_voice.h"
#include "cli/run/step_prediction_text.h"
#include "cli/run/stop_signals.h"
#include "cli/run/train_call.h"
#include "cli/shell/build_info.h"
#include "cli/shell/config_options.h"
#include "cli/shell/device_options.h"
#include "cli/shell/environment.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/progress.h"
#include "cli/shell/terminal_style.h"
#include "cli/verbs.h"
#include "comm/world/rank_env.h"
#include "config/config.h"
#include "config/schema.h"
#include "obs/run_owner.h"
#include "obs/terminal/number_text.h"
#include "train/report/throughput.h"
#include "train/run/trainer.h"
#include "train/setup/setup.h"

namespace trireme::cli {
namespace {

// A run that skipped this share of its steps has not trained.
constexpr double skipped_share = 0.9;

// Why a run that came to its end is not called good; empty: it is.
std::string problem_of(const train::TrainSummary& s) {
  if (s.attempt_steps > 0 && static_cast<double>(s.attempt_skipped_steps) >=
                                 skipped_share * static_cast<double>(s.attempt_steps)) {
    return fmt::format(
        "{} of {} steps were skipped because the gradient norm was not finite or far above its "
        "running mean: this run has not trained; lower optimizer.lr, or look at the data",
        s.attempt_skipped_steps, s.attempt_steps);
  }
  if (!s.export_problem.empty()) {
    return fmt::format("the weights were not exported: {}", s.export_problem);
  }
  if (s.was_stopped && s.saved_step != s.steps) {
    return fmt::format("stopped after step {}, which is not saved", s.steps);
  }
  return "";
}

int exit_code_of(const train::TrainSummary& s) {
  if (!problem_of(s).empty()) return exit_failed;
  return s.was_stopped ? exit_stopped : exit_done;
}

base::Json summary_json(const train::TrainSummary& s) {
  const auto bytes = [](const spec::MemoryTable& m) {
    return base::Json{{"params", m.params},   {"grads", m.grads},     {"optim", m.optim},
                      {"stash", m.stash()},   {"scratch", m.scratch}, {"comm", m.comm},
                      {"staging", m.staging}, {"total", m.total()}};
  };
  base::Json out = {{"ok", exit_code_of(s) == exit_done},
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
  if (const std::string problem = problem_of(s); !problem.empty()) out["error"] = problem;
  out["ranks"] = base::Json::array();
  for (const train::RankFigures& rank : s.ranks) {
    out["ranks"].push_back({{"memory_predicted_bytes", rank.predicted.total()},
                            {"memory_measured_bytes", rank.measured.total()},
                            {"checkpoints_predicted_bytes", rank.checkpoints.predicted_bytes},
                            {"checkpoints_measured_bytes", rank.checkpoints.measured_bytes},
                            {"traffic_predicted_bytes", rank.predicted_traffic_bytes},
                            {"traffic_counted_bytes", rank.counted_traffic_bytes}});
  }
  if (s.validation_loss) out["validation_loss"] = *s.validation_loss;
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
                          {"memory_predicted_bytes", s.checkpoint_memory.predicted_bytes},
                          {"memory_measured_bytes", s.checkpoint_memory.measured_bytes}};
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
    fmt::print("\n{}\n", train::memory_table_text(s.predicted, s.measured, s.checkpoint_memory));
  }
  if (s.attempt_steps > 0 && s.ranks.size() > 1) fmt::print("{}\n", train::ranks_table_text(s));
  if (s.attempt_steps == 0) {
    fmt::print("nothing to do: the run is at step {}\n", s.steps);
  } else {
    fmt::print(
        "{} {}{}, {} tokens in {} ({} tokens/s)\n",
        s.was_stopped ? "stopped after" : "done:", base::count_text(s.steps, "step"),
        s.attempt_steps < s.steps ? fmt::format(" ({} in this attempt)", s.attempt_steps) : "",
        obs::grouped(s.tokens), obs::duration_text(s.seconds),
        obs::grouped(static_cast<int64_t>(s.tokens_per_second)));
  }
  if (s.loss) fmt::print("loss {:.4f} nats per token", *s.loss);
  if (s.validation_loss) fmt::print(", validation {:.4f}", *s.validation_loss);
  if (s.skipped_steps > 0) {
    fmt::print(", {} skipped", base::count_text(s.skipped_steps, "step"));
  }
  if (s.mfu) {
    fmt::print(", MFU {:.1f} %, HFU {:.1f} % of {:g} TFLOP/s ({})", 100 * *s.mfu, 100 * *s.hfu,
               s.peak_flops / 1e12, s.peak_source);
  }
  if (s.gemm_utilisation) fmt::print(", {:.1f} % of GEMM here", 100 * *s.gemm_utilisation);
  fmt::print("\n");
  if (!s.trace.empty()) fmt::print("trace in {}\n", s.trace.string());
  if (!s.weights.empty()) fmt::print("weights in {}\n", s.weights.string());
}

train::Resume resume_of(const Args& args) {
  using From = train::Resume::From;
  train::Resume resume{.verifies = args.flag("--resume-verify"),
                       .allows_data_change = args.flag("--allow-data-change"),
                       .allows_batch_change = args.flag("--allow-batch-change")};
  const std::string text =
      args.has("--resume") ? args.text("--resume") : (resume.verifies ? "auto" : "never");
  if (text == "never") return {};
  if (args.flag("--overwrite")) {
    throw base::ConfigError(fmt::format(
        "--overwrite replaces the run in the folder and --resume {} continues it: give one of them",
        text));
  }
  if (text == "auto") {
    resume.from = From::newest;
    return resume;
  }
  resume.from = From::step;
  const char* const end = text.data() + text.size();
  const auto [behind, error] = std::from_chars(text.data(), end, resume.step);
  if (error != std::errc() || behind != end || resume.step < 0) {
    throw base::ConfigError(
        fmt::format("--resume {}: must be auto, never, or the step of a checkpoint", text));
  }
  return resume;
}

// What the checkpoint that will be resumed from summed in which order; none: there is none, or it
// cannot be read, which is told when it is loaded.
std::optional<config::SavedSums> saved_sums(const train::Resume& resume,
                                            const config::Config& config) {
  if (resume.from == train::Resume::From::start) return {};
  const std::filesystem::path folder =
      std::filesystem::path(config.job.dump_folder) / config.checkpoint.folder;
  const std::unique_ptr<ckpt::Disk> disk = ckpt::posix_disk();
  try {
    for (const int64_t step : ckpt::committed_steps(*disk, folder)) {
      if (resume.from == train::Resume::From::step && step != resume.step) continue;
      const auto generation = folder / ckpt::generation_name(step);
      if (!ckpt::missing_in(*disk, generation).empty()) continue;
      const ckpt::Manifest manifest = ckpt::read_manifest(*disk, generation);
      if (manifest.step == 0) return {};
      return config::SavedSums{.logical_dp = manifest.plan.at("logical_dp"),
                               .reduce = manifest.plan.at("reduce"),
                               .global_batch_size = manifest.state.at("samples_a_step")};
    }
  } catch (const base::IoError&) {
  } catch (const base::Json::exception&) {
  }
  return {};
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

// Every process of a launcher has a standard input of its own, or none, and a pipe has one reader.
config::ConfigText config_text_of(const Args& args, const comm::RankInfo& info) {
  if (reads_once(args) && info.world > 1) {
    throw base::ConfigError(
        fmt::format("{}: with {} processes, standard input or a pipe reaches one of them or none; "
                    "give a file that all can read, or start the ranks with `trireme launch`",
                    args.text("config"), info.world));
  }
  return config_text_of(args);
}

// `given`: the configuration, where it has been read already.
int run_as(const comm::RankInfo& info, const Args& args, const StopSignals& signals,
           std::optional<config::ConfigText> given) {
  if (!given) given = config_text_of(args, info);
  const bool is_first = info.rank == 0;
  if (is_first) {
    for (const std::string& warning : info.warnings) base::log_warning("{}", warning);
  }
  // Where nobody started others, the degrees say how many ranks there are: threads of this process.
  const bool is_launched = info.world > 1 || info.source == comm::RankSource::trireme;
  const config::Config config =
      train::settled(train_config(args, *given, is_launched ? info.world : 0));
  const std::optional<spec::Machine> machine = train::configured_machine(config, machine_folders());
  const train::TraceSteps trace =
      args.has("--trace-steps")
          ? train::trace_steps_from(args.text("--trace-steps"), config.training.steps)
          : train::TraceSteps{};
  Progress progress("train", "steps", config.training.steps);
  if (is_first) {
    for (const std::string& note : config.notes) progress.line("note      " + note);
  }
  const train::TrainHooks hooks{
      .line = [&progress](std::string_view text) { progress.line(text); },
      .begins = [&progress](int64_t done) { progress.begin(done); },
      .progress = [&progress](int64_t done, std::string_view note) { progress.update(done, note); },
      .stop = signals.stop(),
      .save = signals.save(),
      .trace = trace,
      .cache_folder = default_cache_folder(),
      .resume = resume_of(args),
      .takes_over = args.flag("--take-over"),
      .program = {.version = build_info().version, .commit = build_info().commit}};
  const train::TrainSummary summary = train::train(config, run_mode(args), hooks, info);
  progress.finish();
  if (!is_first) return exit_code_of(summary);
  std::optional<train::StepPrediction> step;
  if (summary.attempt_steps > 0) {
    step = train::step_prediction(config, summary, machine, machine_folders());
  }
  try {
    if (args.wants_json()) {
      base::Json json = summary_json(summary);
      if (step) json["step"] = to_json(*step);
      json["name"] = config.job.name;
      if (!config.notes.empty()) json["notes"] = config.notes;
      fmt::print("{}\n", json.dump());
    } else {
      print_summary(summary, args.flag("--curve"));
      if (step) fmt::print("{}", to_text(*step));
    }
  } catch (const std::system_error& error) {
    if (error.code().value() != EPIPE) throw;  // a reader that has gone away is no failure
  }
  if (const std::string problem = problem_of(summary); !problem.empty()) {
    base::log(base::LogLevel::error, problem);
  }
  return exit_code_of(summary);
}

int run_train(const Args& args) {
  if (args.flag("--keys")) {
    print_keys(args.wants_json());
    return 0;
  }
  comm::RankInfo info = comm::detect_rank(process_environment());
  // Before signals are taken over: Ctrl-C ends a call that waits for its standard input.
  std::optional<config::ConfigText> given;
  if (reads_once(args) && info.world == 1) given = config_text_of(args);
  StopSignals signals;  // then at once: a request that comes during the start is kept
  if (info.has_launcher) signals.watch_parent();
  info.stop = signals.stop();
  return run_rank(info, args.wants_json(),
                  [&](const comm::RankInfo& rank) { return run_as(rank, args, signals, given); });
}

}  // namespace

config::Config train_config(const Args& args, const config::ConfigText& given, int world) {
  config::LoadOptions options{
      .overrides = overrides_of(args), .model_folders = model_folders(), .world = world};
  const config::Config config = config::load(given, options);
  options.saved = saved_sums(resume_of(args), config);
  return options.saved ? config::load(given, options) : config;
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
          "A configuration is a file, - for standard input, or options alone: --model and --data,\n"
          "all other keys having defaults. Any key can be set on the command line as\n"
          "--section.key=value; docs/configuration.md lists them. The resolved configuration is "
          "written to run.json in the run's folder and\n"
          "can be run again from there. Ctrl-C, SIGTERM, SIGHUP, SIGUSR2 or SIGXCPU finishes the\n"
          "step, saves a checkpoint and ends with exit code 75; --resume auto continues from it. "
          "A\n"
          "second Ctrl-C after 3 s ends at once. SIGUSR1 saves and goes on. Exit codes: 0 done,\n"
          "1 failed, 2 bad call or configuration, 75 stopped and saved, 93 do not requeue.\n"
          "Degrees of [parallelism] above 1 run as threads of this process; under `trireme "
          "launch`,\n"
          "torchrun, Slurm or MPI each process is one rank.\n"
          "--trace-steps writes trace_steps_first-last.json to the run's folder, for\n"
          "ui.perfetto.dev: every operation on its stream with layer, shape and cost, and when "
          "the\n"
          "host queued it; and pipeline_steps_first-last.svg, the actions of all stages as they\n"
          "ran and as the simulator has them. Traced steps are not replayed from a captured\n"
          "graph, so they are slower where launches count.\n\nExamples:\n"
          "  trireme train configs/kjv.toml\n"
          "  trireme train configs/kjv.toml --training.steps=300 --job.dump_folder=runs/short\n"
          "  trireme train configs/kjv.toml --parallelism.data_parallel_shard_degree=2 "
          "--job.dump_folder=runs/threads\n"
          "  trireme train --model kjv-llama --data runs/kjv-data/kjv.txt --steps 300\n"
          "  trireme train runs/kjv/run.json --overwrite --json",
      .options = {{.name = "--keys",
                   .kind = Kind::flag,
                   .help = "Print every key of a configuration, and end"},
                  {.name = "--trace-steps",
                   .help = "first:last, as 3:5: write a Chrome trace of these steps"},
                  {.name = "--resume",
                   .help = "auto: continue from the newest intact checkpoint in the run's folder, "
                           "or start; STEP: from that one; never"},
                  {.name = "--resume-verify",
                   .kind = Kind::flag,
                   .help = "Resume, after the steps since the checkpoint before were run again and "
                           "gave the same bits"},
                  {.name = "--allow-data-change",
                   .kind = Kind::flag,
                   .help = "Resume although data, split, order or sequence length differ from the "
                           "checkpoint's"},
                  {.name = "--allow-batch-change",
                   .kind = Kind::flag,
                   .help = "Resume with another global batch; samples continue where they were"},
                  {.name = "--take-over",
                   .kind = Kind::flag,
                   .help = "Take the run's folder from the process that is writing to it, which "
                           "then ends (exit code 93)"},
                  {.name = "--init-from", .help = "Start from these Hugging Face weights"},
                  {.name = "--overwrite",
                   .kind = Kind::flag,
                   .help = "Replace the run that is in the folder"},
                  {.name = "--curve",
                   .kind = Kind::flag,
                   .help = "Draw the loss curve at the end"}},
      .takes_overrides = true,
      .run = run_train};
  const std::vector<Option> options = config_options();
  verb.options.insert(verb.options.begin(), options.begin(), options.end());
  return verb;
}

}  // namespace trireme::cli
