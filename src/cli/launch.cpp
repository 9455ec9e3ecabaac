// SPDX-License-Identifier: Apache-2.0
// trireme launch: ranks as processes of this host, alone or as one of several hosts.
#include <fmt/format.h>

#include <csignal>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/json.h"
#include "cli/launch_watch.h"
#include "cli/verbs.h"
#include "comm/store.h"
#include "config/config.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

// job.dump_folder as the ranks will see it, or empty where it cannot be told: what is wrong with a
// configuration they say themselves.
fs::path run_folder(const std::string& config, const std::vector<std::string>& words) {
  fs::path folder;
  try {
    folder = config::load(config, {.model_folders = model_folders()}).job.dump_folder;
  } catch (const base::Error& ignored) {
  }
  for (size_t i = 0; i < words.size(); ++i) {
    for (const std::string key : {"--job.dump_folder", "job.dump_folder"}) {
      if (words[i].starts_with(key + "=")) folder = words[i].substr(key.size() + 1);
      if (words[i] == key && i + 1 < words.size()) folder = words[i + 1];
    }
  }
  return folder;
}

int positive(const Args& args, const std::string& name) {
  const int value = args.small_integer(name);
  if (value < 1) throw base::ConfigError(fmt::format("{} {}: at least 1", name, value));
  return value;
}

LaunchOptions options_from(const Args& args) {
  LaunchOptions options{.ranks_here = positive(args, "-n"),
                        .nodes = positive(args, "--nnodes"),
                        .node = args.small_integer("--node-rank"),
                        .rendezvous = args.text("--rdzv"),
                        .deadline_s = args.number("--deadline"),
                        .shows_all = args.text("--output") == "all",
                        .keeps_out = args.wants_json()};
  constexpr int most_here = 1024, most_ranks = 1 << 20;
  if (options.ranks_here > most_here || options.nodes > most_ranks / options.ranks_here) {
    throw base::ConfigError(fmt::format("-n {} on {} nodes: at most {} ranks a node, {} in all",
                                        options.ranks_here, options.nodes, most_here, most_ranks));
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
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  options.command = {args.has("--program") ? args.text("--program") : self.string()};
  if (!args.has("--program")) {
    options.command.emplace_back("train");
    if (options.ranks_here * options.nodes > 1) {
      throw base::ConfigError(fmt::format(
          "{} ranks of 'trireme train': it runs on one rank in this build; use -n 1, or --program "
          "for a program that joins the world by itself",
          options.ranks_here * options.nodes));
    }
  }
  options.command.push_back(args.text("config"));
  for (const std::string& word : args.overrides()) options.command.push_back(word);
  if (args.wants_json()) options.command.emplace_back("--json");
  const fs::path flight = args.has("--flight")
                              ? fs::path(args.text("--flight"))
                              : run_folder(args.text("config"), args.overrides()) / "flight";
  options.flight_folder = fs::absolute(flight).string();
  return options;
}

int run(const Args& args) {
  const LaunchOptions options = options_from(args);
  const LaunchResult result = run_launch(options);
  if (args.wants_json()) {
    base::Json out = {{"ok", result.is_good()}};
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
    fmt::print("{}\n", out.dump(-1, ' ', false, base::Json::error_handler_t::replace));
  }
  if (result.is_good()) return 0;
  return result.stopped_by != 0 ? 128 + result.stopped_by : 1;
}

}  // namespace

Verb launch_verb() {
  return {.name = "launch",
          .summary = "Start ranks as processes, on one host or several, and say which failed",
          .details =
              "Starts -n processes on this host; words that launch does not know are passed on.\n"
              "With several hosts, run it on each with the same --nnodes and --rdzv and its own\n"
              "--node-rank. Rank 0's output is shown, and what other ranks say on stderr.\n"
              "When a rank dies, or is silent for --deadline seconds, every process ends and one\n"
              "line says which rank it was, what it last did and who waits for it; flight records\n"
              "of the ranks lie in the run's folder.\n\n"
              "In this build 'trireme train' itself runs on one rank only (-n 1); more are for\n"
              "programs that join the world by themselves (--program).",
          .options = {{.name = "config", .help = "As for train", .is_required = true},
                      {.name = "-n",
                       .kind = Kind::integer,
                       .fallback = "1",
                       .help = "Processes on this host"},
                      {.name = "--nnodes", .kind = Kind::integer, .fallback = "1", .help = "Hosts"},
                      {.name = "--node-rank",
                       .kind = Kind::integer,
                       .fallback = "0",
                       .help = "Which of them this is, from 0"},
                      {.name = "--rdzv", .help = "host:port of node 0, where the hosts meet"},
                      {.name = "--deadline",
                       .kind = Kind::number,
                       .fallback = "600",
                       .help = "Seconds that one communication may take, or a rank be silent"},
                      {.name = "--output",
                       .fallback = "rank0",
                       .help = "Whose stdout is shown",
                       .choices = {"rank0", "all"}},
                      {.name = "--flight",
                       .help = "Folder of flight records; else flight in the run's folder"},
                      {.name = "--program", .help = "Run this in place of 'trireme train'"}},
          .takes_overrides = true,
          .run = run};
}

}  // namespace trireme::cli
