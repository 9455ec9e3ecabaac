// SPDX-License-Identifier: Apache-2.0
// trireme launch: ranks as processes of this host, alone or as one of several hosts.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/log.h"
#include "base/system/descriptor.h"
#include "base/text/json.h"
#include "cli/run/launch_watch.h"
#include "cli/run/stop_signals.h"
#include "cli/run/train_call.h"
#include "cli/shell/config_options.h"
#include "cli/shell/environment.h"
#include "cli/shell/exit_codes.h"
#include "cli/verbs.h"
#include "comm/world/rank_env.h"
#include "comm/world/rendezvous.h"
#include "train/setup/ranks.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

int at_least_one(const Args& args, const std::string& name) {
  const int value = args.small_integer(name);
  if (value < 1) throw base::ConfigError(fmt::format("{} {}: at least 1", name, value));
  return value;
}

// What every rank would refuse is refused here, once, before any is started.
config::Config checked_config(const Args& args, const config::ConfigText& given,
                              const LaunchOptions& options) {
  const int world = options.ranks_here * options.nodes;
  const config::Config config = train_config(args, given, world);
  comm::RankInfo info{.rank = options.node * options.ranks_here,
                      .world = world,
                      .local_world = options.ranks_here,
                      .node = options.node,
                      .source = comm::RankSource::trireme};
  (void)train::choose_backend(config, info);
  if (options.node == 0) check_run_folder(args, config);
  return config;
}

// A configuration that only this process can read, in a file without a name that its ranks inherit.
class InheritedText {
 public:
  explicit InheritedText(const std::string& text) : file_(::memfd_create("configuration", 0)) {
    std::string_view rest = text;
    while (file_.value() >= 0 && !rest.empty()) {
      const ssize_t written = ::write(file_.value(), rest.data(), rest.size());
      if (written < 0) break;
      rest.remove_prefix(static_cast<size_t>(written));
    }
    if (file_.value() < 0 || !rest.empty()) {
      throw base::IoError(fmt::format("the configuration cannot be passed on: {}",
                                      std::generic_category().message(errno)));
    }
  }
  std::string path() const { return fmt::format("/proc/self/fd/{}", file_.value()); }

 private:
  base::Descriptor file_;
};

// The configuration of a call, and what its ranks read it from.
struct LaunchConfig {
  config::ConfigText given;
  std::string path;  // empty: options alone say what is trained
  std::optional<InheritedText> inherited;
};

void read_config(const Args& args, LaunchConfig& config) {
  config.path = args.text("config");
  if (args.has("--program")) return;  // its words are its own
  config.given = config_text_of(args);
  if (config.path.empty() || !config::is_read_once(config.path)) return;
  config.inherited.emplace(config.given.text);
  config.path = config.inherited->path();
}

// What is passed on to every rank.
std::vector<std::string> train_words(const Args& args, const std::string& config) {
  std::vector<std::string> words;
  if (!config.empty()) words.push_back(config);
  for (const Option& option : train_verb().options) {
    if (!option.name.starts_with("-") || !args.has(option.name)) continue;
    if (option.kind != Kind::flag) {
      words.push_back(option.name + "=" + args.text(option.name));
    } else if (args.flag(option.name)) {
      words.push_back(option.name);
    }
  }
  words.insert(words.end(), args.overrides().begin(), args.overrides().end());
  if (args.wants_json()) words.emplace_back("--json");
  return words;
}

// 128 random bits. Several nodes have to come to the same by themselves: from what their launcher
// gave them, or else from what they were all called with.
std::string job_token(const LaunchOptions& options) {
  const comm::Environment environment = process_environment();
  const auto text = [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  };
  if (!text("TRIREME_TOKEN").empty()) return text("TRIREME_TOKEN");
  if (options.nodes > 1) {
    if (options.node == 0) base::log_info("{}", comm::guessable_token_note);
    return fmt::format("{}/{}/{}/{}", options.rendezvous, options.nodes, text("SLURM_JOB_ID"),
                       text("SLURM_RESTART_COUNT"));
  }
  return comm::random_token();
}

// Reads the configuration, too, which must outlive the ranks.
LaunchOptions options_from(const Args& args, LaunchConfig& launched) {
  LaunchOptions options{.ranks_here = at_least_one(args, "-n"),
                        .nodes = at_least_one(args, "--nnodes"),
                        .node = args.small_integer("--node-rank"),
                        .rendezvous = args.text("--rdzv"),
                        .deadline_s = args.has("--deadline") ? args.number("--deadline") : 600,
                        .shows_all = args.text("--output") == "all",
                        .keeps_out = args.wants_json()};
  constexpr int max_here = 1024, max_ranks = 1 << 20;
  if (options.ranks_here > max_here || options.nodes > max_ranks / options.ranks_here) {
    throw base::ConfigError(fmt::format("-n {} on {} nodes: at most {} ranks a node, {} in all",
                                        options.ranks_here, options.nodes, max_here, max_ranks));
  }
  if (options.node < 0 || options.node >= options.nodes) {
    throw base::ConfigError(fmt::format("--node-rank {}: with --nnodes {} it is 0 to {}",
                                        options.node, options.nodes, options.nodes - 1));
  }
  if (options.nodes > 1 && options.rendezvous.empty()) {
    throw base::ConfigError(
        "--nnodes wants --rdzv host:port, the same on every node: an address "
        "of node 0 that the others reach");
  }
  if (!(options.deadline_s > 0)) {
    throw base::ConfigError(fmt::format("--deadline {:g}: seconds above 0", options.deadline_s));
  }
  read_config(args, launched);
  const std::vector<std::string> words = train_words(args, launched.path);
  fs::path folder;
  if (args.has("--program")) {
    options.command = {args.text("--program")};
  } else {
    std::error_code error;
    options.command = {fs::read_symlink("/proc/self/exe", error).string(), "train"};
    const config::Config config =
        checked_config(parse_words(train_verb(), words), launched.given, options);
    if (!args.has("--deadline")) options.deadline_s = config.comm.deadline_s;
    folder = config.job.dump_folder;
  }
  options.command.insert(options.command.end(), words.begin(), words.end());
  options.flight_folder =
      fs::absolute(args.has("--flight") ? fs::path(args.text("--flight")) : folder / "flight")
          .string();
  return options;
}

base::Json result_json(const LaunchResult& result, const LaunchOptions& options) {
  base::Json out = {{"ok", result.is_good()}, {"exit_code", result.exit_code()}};
  if (!result.verdict.empty()) out["error"] = result.verdict;
  if (!result.verdict.empty()) out["flight_records"] = options.flight_folder;
  for (const RankProcesses::State& state : result.ranks) {
    base::Json rank = {{"rank", state.rank}};
    if (state.ending) {
      rank["exit_code"] = state.ending->exit_code;
      if (state.ending->signal != 0) rank["signal"] = state.ending->signal;
    }
    out["ranks"].push_back(rank);
  }
  const base::Json first = base::Json::parse(result.out, nullptr, false);
  if (first.is_object()) out["result"] = first;
  return out;
}

// The same job again, from its newest checkpoint.
void prepare_restart(LaunchOptions& options, const std::string& token, int64_t restart) {
  const auto is_about_start = [](const std::string& word) {
    return word == "--overwrite" || word == "--take-over" || word.starts_with("--resume=");
  };
  std::erase_if(options.command, is_about_start);
  options.command.emplace_back("--resume=auto");
  options.token = fmt::format("{}/{}", token, restart);
}

int run_launch_verb(const Args& args) {
  ignore_broken_pipes();
  LaunchConfig launched;
  LaunchOptions options = options_from(args, launched);
  const int64_t restarts = args.integer("--restarts");
  if (restarts < 0) throw base::ConfigError(fmt::format("--restarts {}: at least 0", restarts));
  const std::string token = job_token(options);
  options.token = token;
  LaunchResult result = run_launch(options);
  int64_t restart = 0;
  while (restart < restarts && result.exit_code() == exit_failed && result.stopped_by == 0) {
    ++restart;
    base::log_info("restart {} of {}: from the newest checkpoint", restart, restarts);
    prepare_restart(options, token, restart);
    result = run_launch(options);
  }
  if (args.wants_json()) {
    base::Json out = result_json(result, options);
    if (restarts > 0) out["restarts"] = restart;
    fmt::print("{}\n", out.dump(-1, ' ', false, base::Json::error_handler_t::replace));
  }
  return result.exit_code();
}

}  // namespace

Verb launch_verb() {
  Verb verb = {
      .name = "launch",
      .summary = "Start ranks as processes, on one host or several, and say which failed",
      .details =
          "Starts -n processes on this host; words that launch does not know are passed on.\n"
          "With several hosts, run it on each with the same --nnodes and --rdzv and its own\n"
          "--node-rank. Rank 0's output is shown, and what other ranks say on stderr.\n"
          "When a rank dies, or is silent for --deadline seconds, every process ends and one\n"
          "line says which rank it was, what it last did and who waits for it; flight records\n"
          "of the ranks lie in the run's folder. What a rank would refuse is refused before any\n"
          "is started: the degrees of [parallelism] must multiply to all processes, and a degree\n"
          "of -1 is what is left of them.\n\nExamples:\n"
          "  trireme launch -n 2 configs/kjv.toml --training.steps=300 "
          "--job.dump_folder=runs/processes\n"
          "  trireme launch -n 4 configs/kjv.toml --parallelism.data_parallel_replicate_degree=2 "
          "--job.dump_folder=runs/hsdp",
      .options =
          {{.name = "-n", .kind = Kind::integer, .fallback = "1", .help = "Processes on this host"},
           {.name = "--nnodes", .kind = Kind::integer, .fallback = "1", .help = "Hosts"},
           {.name = "--node-rank",
            .kind = Kind::integer,
            .fallback = "0",
            .help = "Which of them this is, from 0"},
           {.name = "--rdzv", .help = "host:port of node 0, where the hosts meet"},
           {.name = "--deadline",
            .kind = Kind::number,
            .help = "Seconds that one communication may take, or a rank be silent; "
                    "else comm.deadline_s"},
           {.name = "--output",
            .fallback = "rank0",
            .help = "Whose stdout is shown",
            .choices = {"rank0", "all"}},
           {.name = "--flight",
            .help = "Folder of flight records; else flight in the run's folder"},
           {.name = "--restarts",
            .kind = Kind::integer,
            .fallback = "0",
            .help = "When ranks fail, start the job again from its newest checkpoint, at most so "
                    "often"},
           {.name = "--program", .help = "Run this in place of 'trireme train'"}},
      .takes_overrides = true,
      .run = run_launch_verb};
  // What train takes is passed on; knowing it lets options and values stand in any order.
  for (const Option& option : train_verb().options) verb.options.push_back(option);
  return verb;
}

}  // namespace trireme::cli
