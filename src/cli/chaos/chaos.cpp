// SPDX-License-Identifier: Apache-2.0
// trireme chaos: disturbs a run at random, and reports what that cost and whether its bits are
// those of a run that nothing disturbed.
#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "agent/exit_codes.h"
#include "base/error.h"
#include "cli/chaos/disturbed_run.h"
#include "cli/run/stop_signals.h"
#include "cli/run/train_call.h"
#include "cli/shell/config_options.h"
#include "cli/verbs.h"
#include "train/run/step_agenda.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* folder_key = "job.dump_folder";

bool sets_key(const std::string& word, const std::string& key) {
  const std::string path = word.substr(0, word.find('='));
  return path == "--" + key || path == key;
}

// The words of a call for `train`, and the folder of the run among them; empty: none.
struct RunWords {
  std::vector<std::string> words;
  std::string folder;
};

RunWords run_words(const Args& args) {
  RunWords found;
  if (args.has("config")) found.words.push_back(args.text("config"));
  for (const Option& option : config_options()) {
    if (option.name.starts_with("-") && args.has(option.name)) {
      found.words.push_back(option.name + "=" + args.text(option.name));
    }
  }
  const std::vector<std::string>& overrides = args.overrides();
  for (size_t i = 0; i < overrides.size(); ++i) {
    const size_t equals = overrides[i].find('=');
    if (!sets_key(overrides[i], folder_key)) {
      found.words.push_back(overrides[i]);
    } else if (equals != std::string::npos) {
      found.folder = overrides[i].substr(equals + 1);
    } else if (i + 1 < overrides.size()) {
      found.folder = overrides[++i];
    }
  }
  return found;
}

// Loads the configuration as every rank will, so that its errors are reported here.
config::Config checked_config(const Args& args, int ranks) {
  if (args.has("config") && config::is_read_once(args.text("config"))) {
    throw base::ConfigError(
        fmt::format("{}: chaos starts several runs, and a pipe can be read once; "
                    "give a file",
                    args.text("config")));
  }
  auto [words, folder] = run_words(args);
  if (!folder.empty()) words.push_back(fmt::format("--{}={}", folder_key, folder));
  const Args train = parse_words(train_verb(), words);
  config::Config config = train_config(train, config_text_of(train), ranks);
  check_run_options(train, config);
  if (!config.checkpoint.enable || !train::exports_weights(config)) {
    throw base::ConfigError(
        "chaos resumes from checkpoints and compares final weights: it needs checkpoint.enable = "
        "true and a checkpoint.export_folder");
  }
  return config;
}

std::vector<DisturbanceKind> kinds_of(const std::string& text) {
  std::vector<DisturbanceKind> kinds;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string name = text.substr(begin, end - begin);
    const auto kind = std::ranges::find_if(
        all_disturbance_kinds, [&](DisturbanceKind one) { return name_of(one) == name; });
    if (kind == std::end(all_disturbance_kinds)) {
      throw base::ConfigError(fmt::format(
          "--kinds {}: '{}' is none; allowed are kill, pause and freeze of ranks, and supervisor, "
          "guardian and spare, which are killed; with commas between them, each as often as it is "
          "to be drawn",
          text, name));
    }
    kinds.push_back(*kind);
    begin = end + 1;
  }
  return kinds;
}

ScheduleOptions schedule_options(const Args& args, const config::Config& config, int ranks) {
  ScheduleOptions options{.count = args.integer("--kills"),
                          .ranks = ranks,
                          .steps = config.training.steps,
                          .kinds = kinds_of(args.text("--kinds")),
                          .detect_seconds = config.elastic.detect_s};
  const auto draws = [&](DisturbanceKind kind) {
    return std::ranges::find(options.kinds, kind) != options.kinds.end();
  };
  if (ranks == 1 && (draws(DisturbanceKind::supervisor) || draws(DisturbanceKind::guardian))) {
    throw base::ConfigError(
        "--kinds: a launcher of one rank has neither supervisor nor guardian: at least -n 2");
  }
  if (draws(DisturbanceKind::spare) && args.integer("--spares") < 1) {
    throw base::ConfigError("--kinds: to kill a spare there has to be one: --spares 1");
  }
  if (options.count < 1 || options.count > options.steps) {
    throw base::ConfigError(fmt::format(
        "--kills {}: from 1 to training.steps = {}; every disturbance waits for a newer step",
        options.count, options.steps));
  }
  if (args.integer("--seed") < 0) {
    throw base::ConfigError(fmt::format("--seed {}: at least 0", args.integer("--seed")));
  }
  options.seed = static_cast<uint64_t>(args.integer("--seed"));
  return options;
}

// Returns the words of launch for both runs. Without checkpoints in between a killed job would
// begin at the first step each time: a configuration that saves by time saves by steps here.
std::vector<std::string> launch_words(const Args& args, const config::Config& config, int ranks) {
  std::vector<std::string> words = run_words(args).words;
  words.insert(words.begin(), {"-n", fmt::format("{}", ranks)});
  if (args.integer("--spares") > 0) {
    words.insert(words.begin() + 2, {"--spares", fmt::format("{}", args.integer("--spares"))});
  }
  const config::Checkpoint& saves = config.checkpoint;
  if (saves.interval <= 0 && saves.interval_seconds == 0) {
    constexpr int64_t saves_each = 4;  // of a part of the run with one disturbance
    std::erase_if(
        words, [](const std::string& word) { return word.starts_with("--checkpoint.interval="); });
    words.push_back(
        fmt::format("--checkpoint.interval={}",
                    std::max<int64_t>(
                        1, config.training.steps / (saves_each * (args.integer("--kills") + 1)))));
  }
  return words;
}

ChaosOptions chaos_options(const Args& args, const StopSignals& signals) {
  const int ranks = args.small_integer("-n");
  if (ranks < 1) throw base::ConfigError(fmt::format("-n {}: at least 1", ranks));
  const config::Config config = checked_config(args, ranks);
  ChaosOptions options{
      .folder = args.has("--folder") ? args.text("--folder") : config.job.dump_folder + "-chaos",
      .words = launch_words(args, config, ranks),
      .schedule = schedule_options(args, config, ranks),
      .checkpoint_folder = config.checkpoint.folder,
      .weights_folder = config.checkpoint.export_folder,
      .stop_seconds = std::max(60.0, config.comm.deadline_s),
      .stop = signals.stop()};
  if (args.has("--quiet-run")) {
    options.quiet_run = args.text("--quiet-run");
    const fs::path weights = options.quiet_run / options.weights_folder / "final";
    if (hash_of_weights(weights).empty()) {
      throw base::ConfigError(
          fmt::format("--quiet-run {}: {} has no weights; give the folder of a "
                      "run that has reached its last step",
                      options.quiet_run.string(), weights.string()));
    }
  }
  return options;
}

int run_chaos(const Args& args) {
  const StopSignals signals;
  const ChaosOptions options = chaos_options(args, signals);
  const ChaosReport report = DisturbedRun(options, args.flag("--resume")).run();
  if (args.wants_json()) {
    fmt::print("{}\n", to_json(report).dump(-1, ' ', false, base::Json::error_handler_t::replace));
  } else {
    fmt::print("{}", to_text(report));
  }
  return report.is_good() ? agent::exit_done : agent::exit_failed;
}

}  // namespace

Verb chaos_verb() {
  Verb verb = {
      .name = "chaos",
      .summary = "Kill, pause and freeze ranks of a run at random, and check that it survives",
      .details =
          "Runs the configuration twice under `trireme launch`: first quietly, then while random\n"
          "ranks are killed (SIGKILL), paused (SIGSTOP, and SIGCONT before elastic.detect_s) and\n"
          "frozen (SIGSTOP for ever, which the job must detect); with --kinds also processes of "
          "the\n"
          "launcher and spares are killed, which costs no step. Times and ranks are drawn from\n"
          "--seed. The next disturbance waits until the run has recovered from the last one and a\n"
          "newer step has finished. The report has the time from a kill to the next finished "
          "step,\n"
          "repeated steps, lost and doubled tokens, the final weights and every loss against the\n"
          "quiet run, descriptors, threads and memory of all processes, and whether verdicts name\n"
          "the right rank.\n"
          "Everything is in --folder: both runs, what they print (run.log, quiet.log), and the\n"
          "list of disturbances, from which --resume continues. A configuration that saves by "
          "time\n"
          "saves by steps here, four times for every disturbance.\n"
          "Exit code 0: all disturbances were done, the final weights have the bits of the quiet\n"
          "run, every step its loss, no token was lost or doubled. 1: otherwise. 75: stopped.\n\n"
          "Examples:\n"
          "  trireme chaos configs/kjv.toml -n 2 --kills 3 --seed 1 --steps 300 "
          "--parallelism.data_parallel_shard_degree=2",
      .options = {{.name = "-n",
                   .kind = Kind::integer,
                   .fallback = "2",
                   .help = "Number of ranks, all on this host"},
                  {.name = "--kills",
                   .kind = Kind::integer,
                   .fallback = "10",
                   .help = "Number of disturbances, of all kinds together"},
                  {.name = "--seed",
                   .kind = Kind::integer,
                   .fallback = "1",
                   .help = "Seed of times, ranks and kinds"},
                  {.name = "--kinds",
                   .fallback = "kill,kill,kill,pause,freeze",
                   .help =
                       "Kinds to draw from, each as often as it is named: kill, pause, freeze (a "
                       "rank), supervisor, guardian, spare (killed)"},
                  {.name = "--spares",
                   .kind = Kind::integer,
                   .fallback = "0",
                   .help = "Processes that wait for a rank to replace, as for launch"},
                  {.name = "--folder",
                   .help = "Folder of the experiment; default: that of the run, with -chaos"},
                  {.name = "--quiet-run",
                   .help = "Folder of a finished run of the same configuration to compare with, "
                           "instead of a new one"},
                  {.name = "--resume",
                   .kind = Kind::flag,
                   .help = "Continue the experiment in the folder"}},
      .takes_overrides = true,
      .run = run_chaos};
  const std::vector<Option> options = config_options();
  verb.options.insert(verb.options.begin(), options.begin(), options.end());
  return verb;
}

}  // namespace trireme::cli
