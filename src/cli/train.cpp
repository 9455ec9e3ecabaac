// SPDX-License-Identifier: Apache-2.0
// trireme train: a run from a configuration file.
#include <charconv>
#include <csignal>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/device_options.h"
#include "cli/environment.h"
#include "cli/progress.h"
#include "cli/step_prediction.h"
#include "cli/train_call.h"
#include "cli/verbs.h"
#include "comm/rank_env.h"
#include "config/config.h"
#include "config/schema.h"
#include "obs/number_text.h"
#include "train/setup.h"
#include "train/throughput.h"
#include "train/trainer.h"

namespace trireme::cli {
namespace {

// A signal handler can reach nothing but globals.
std::atomic<bool> stop_asked{false};
std::atomic<bool> save_asked{false};

void on_stop(int signal) {
  // The second one ends the process at once.
  if (stop_asked.exchange(true)) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}
void on_save(int /*signal*/) { save_asked = true; }

base::Json summary_json(const train::TrainSummary& s) {
  const auto bytes = [](const spec::MemoryTable& m) {
    return base::Json{{"params", m.params},   {"grads", m.grads},     {"optim", m.optim},
                      {"stash", m.stash()},   {"scratch", m.scratch}, {"comm", m.comm},
                      {"staging", m.staging}, {"total", m.total()}};
  };
  base::Json out = {{"ok", true},
                    {"steps", s.steps},
                    {"tokens", s.tokens},
                    {"skipped_steps", s.skipped_steps},
                    {"stopped", s.was_stopped},
                    {"parameters", s.parameters},
                    {"device", s.hardware},
                    {"captured", s.was_captured},
                    {"startup_seconds", s.startup_seconds},
                    {"train_seconds", s.seconds},
                    {"tokens_per_second", s.tokens_per_second},
                    {"loss", s.loss},
                    {"memory_predicted_bytes", bytes(s.predicted)},
                    {"memory_measured_bytes", bytes(s.measured)},
                    {"run_folder", s.run_folder.string()},
                    {"weights", s.weights.string()}};
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
  if (s.checkpoints.saves + s.checkpoints.failed > 0) {
    out["checkpoints"] = {{"saved", s.checkpoints.saves},
                          {"failed", s.checkpoints.failed},
                          {"bytes", s.checkpoints.bytes},
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
    fmt::print("\n{}", obs::curve_text(series, {}));
  }
  fmt::print("\n{}\n", train::memory_table_text(s.predicted, s.measured, s.checkpoint_memory));
  if (s.ranks.size() > 1) fmt::print("{}\n", train::ranks_table_text(s));
  fmt::print("{} {} steps, {} tokens in {} ({} tokens/s)\n",
             s.was_stopped ? "stopped after" : "done:", s.steps, obs::grouped(s.tokens),
             obs::duration_text(s.seconds),
             obs::grouped(static_cast<int64_t>(s.tokens_per_second)));
  fmt::print("loss {:.4f} nats per token", s.loss);
  if (s.validation_loss) fmt::print(", validation {:.4f}", *s.validation_loss);
  if (s.skipped_steps > 0) fmt::print(", {} steps skipped", s.skipped_steps);
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
  const bool verifies = args.flag("--resume-verify");
  const std::string text =
      args.has("--resume") ? args.text("--resume") : (verifies ? "auto" : "never");
  if (text == "never") return {};
  if (text == "auto") return {.from = From::newest, .verifies = verifies};
  train::Resume resume{.from = From::step, .verifies = verifies};
  const char* const end = text.data() + text.size();
  const auto [behind, error] = std::from_chars(text.data(), end, resume.step);
  if (error != std::errc() || behind != end || resume.step < 0) {
    throw base::ConfigError(
        fmt::format("--resume {}: must be auto, never, or the step of a checkpoint", text));
  }
  return resume;
}

int run_train(const Args& args) {
  if (args.flag("--keys")) {
    fmt::print("{}", config::help_text());
    return 0;
  }
  const comm::RankInfo info = comm::detect_rank(process_environment());
  const bool is_first = info.rank == 0;
  if (is_first) {
    for (const std::string& warning : info.warnings) base::log_warning("{}", warning);
  }
  // Where nobody started others, the degrees say how many ranks there are: threads of this process.
  const bool is_launched = info.world > 1 || info.source == comm::RankSource::trireme;
  const config::Config config = train::settled(train_config(args, is_launched ? info.world : 0));
  const std::optional<spec::Machine> machine = asked_machine(config);
  const train::TraceSteps trace =
      args.has("--trace-steps")
          ? train::trace_steps_from(args.text("--trace-steps"), config.training.steps)
          : train::TraceSteps{};
  std::signal(SIGINT, on_stop);
  std::signal(SIGTERM, on_stop);
  std::signal(SIGUSR1, on_save);
  Progress progress("train", "steps", config.training.steps);
  const train::TrainHooks hooks{
      .line = [&progress](std::string_view text) { progress.line(text); },
      .progress = [&progress](int64_t done, std::string_view note) { progress.update(done, note); },
      .stop = &stop_asked,
      .save = &save_asked,
      .trace = trace,
      .cache_folder = default_cache_folder(),
      .resume = resume_of(args)};
  const bool goes_on =
      hooks.resume.from != train::Resume::From::start && obs::holds_run(config.job.dump_folder);
  const train::TrainSummary summary =
      train::train(config, goes_on ? obs::RunMode::resume : run_mode(args), hooks, info);
  progress.finish();
  if (!is_first) return 0;
  const std::optional<StepPrediction> step = step_prediction(config, summary, machine);
  if (args.wants_json()) {
    base::Json json = summary_json(summary);
    if (step) json["step"] = to_json(*step);
    fmt::print("{}\n", json.dump());
  } else {
    print_summary(summary, args.flag("--curve"));
    if (step) fmt::print("{}", to_text(*step));
  }
  return 0;
}

}  // namespace

config::Config train_config(const Args& args, int world) {
  if (!args.has("config")) {
    throw base::ConfigError("no configuration file is given; configs/kjv.toml is an example");
  }
  config::LoadOptions options{
      .overrides = args.overrides(), .model_folders = model_folders(), .world = world};
  if (args.has("--init-from")) {
    options.overrides.push_back("training.init_from=" + args.text("--init-from"));
  }
  if (args.has("--device")) options.overrides.push_back("system.device=" + args.text("--device"));
  return config::load(args.text("config"), options);
}

obs::RunMode run_mode(const Args& args) {
  return args.flag("--overwrite") ? obs::RunMode::overwrite : obs::RunMode::fresh;
}

Verb train_verb() {
  return {
      .name = "train",
      .summary = "Train a model from a configuration file",
      .details =
          "Any key can be set on the command line as --section.key=value; docs/configuration.md\n"
          "lists them. The resolved configuration is written to run.json in the run's folder and\n"
          "can be run again from there. Ctrl-C or SIGTERM finishes the step, saves the weights "
          "and\n"
          "ends; SIGUSR1 saves and goes on.\n"
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
          "  trireme train runs/kjv/run.json --overwrite --json",
      .options = {{.name = "config", .help = "TOML file, or run.json of an earlier run"},
                  {.name = "--keys",
                   .kind = Kind::flag,
                   .help = "Print every key of a configuration, and end"},
                  {.name = "--device", .help = "auto, cuda or cpu; sets system.device"},
                  {.name = "--trace-steps",
                   .help = "first:last, as 3:5: write a Chrome trace of these steps"},
                  {.name = "--resume",
                   .help = "auto: go on from the newest checkpoint in the run's folder that is "
                           "whole, or start; STEP: from that one; never"},
                  {.name = "--resume-verify",
                   .kind = Kind::flag,
                   .help = "Resume, after the steps since the checkpoint before were run again and "
                           "gave the same bits"},
                  {.name = "--init-from", .help = "Start from these Hugging Face weights"},
                  {.name = "--overwrite",
                   .kind = Kind::flag,
                   .help = "Replace the run that is in the folder"},
                  {.name = "--curve",
                   .kind = Kind::flag,
                   .help = "Draw the loss curve at the end"}},
      .takes_overrides = true,
      .run = run_train};
}

}  // namespace trireme::cli
