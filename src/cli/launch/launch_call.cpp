// SPDX-License-Identifier: Apache-2.0
#include "cli/launch/launch_call.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <system_error>
#include <vector>

#include "agent/guardian/role.h"
#include "base/error.h"
#include "base/log.h"
#include "ckpt/disk/posix_disk.h"
#include "ckpt/marks/resume_choice.h"
#include "cli/run/train_call.h"
#include "cli/shell/environment.h"
#include "train/checkpointing/peer/failure_domains.h"
#include "train/setup/ranks.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

int at_least_one(const Args& args, const std::string& name) {
  const int value = args.small_integer(name);
  if (value < 1) throw base::ConfigError(fmt::format("{} {}: at least 1", name, value));
  return value;
}

// Throws here, once and before any rank is started, what every rank would throw.
config::Config checked_config(const Args& args, const config::ConfigText& given,
                              const agent::JobOptions& options) {
  const int world = options.ranks_here * options.nodes;
  const config::Config config = train_config(args, given, world);
  // A spare node has the ranks of any other.
  comm::RankInfo info{.rank = options.node % options.nodes * options.ranks_here,
                      .world = world,
                      .local_world = options.ranks_here,
                      .node = options.node,
                      .source = comm::RankSource::trireme};
  (void)train::choose_backend(config, info);
  check_run_options(args, config);
  if (options.node == 0) {
    check_run_folder(args, config);
    (void)train::FailureDomains::read(config.elastic.domains);  // the first rank reads it
  }
  return config;
}

void read_config(const Args& args, LaunchConfig& config) {
  config.path = args.text("config");
  if (args.has("--program")) return;  // its arguments are not those of train
  config.given = config_text_of(args);
  // A guardian passes on what could be read once.
  const bool is_inherited = config.path.starts_with(InheritedText::folder);
  if (config.path.empty() || !(is_inherited || config::is_read_once(config.path))) return;
  config.inherited.emplace(config.given.text);
  config.path = config.inherited->path();
}

// Returns the arguments that are passed to every rank.
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

// Returns what the launchers of all nodes know the job by without communication: arguments and
// Slurm variables that they have in common.
std::string public_name_of(const agent::JobOptions& options) {
  const comm::Environment environment = process_environment();
  const auto text = [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  };
  return fmt::format("{}/{}/{}/{}", options.rendezvous, options.all_nodes(), text("SLURM_JOB_ID"),
                     text("SLURM_RESTART_COUNT"));
}

// The configuration of a job that has begun.
config::Config begun_config(const Args& args, const config::ConfigText& given,
                            const agent::JobOptions& options) {
  return asked_config(args, given, options.ranks_here * options.nodes);
}

// What the checkpoints of a folder offer to a job that is started again.
struct Offer {
  bool has_diverged = false;     // the last attempt ended so
  std::vector<int64_t> steps{};  // that --resume auto tries, in this order
};
Offer offer_of(const fs::path& folder) {
  const std::unique_ptr<ckpt::Disk> disk = ckpt::posix_disk();
  ckpt::Marks marks;
  try {
    marks = ckpt::read_marks(*disk, folder);
  } catch (const base::IoError& error) {
    base::log_warning("checkpoints count as not marked: {}", error.what());
  }
  const bool has_diverged = ckpt::ended_in_divergence(marks);
  const auto all = ckpt::marked_generations(*disk, folder, marks);
  return {has_diverged, ckpt::choose_resume(all, has_diverged, ckpt::WantedMark::not_bad).steps};
}

// Returns the step of the newest committed checkpoint that is not bad; -1 if there is none.
int64_t newest_step(const fs::path& folder) {
  const std::vector<int64_t> steps = offer_of(folder).steps;
  return steps.empty() ? -1 : *std::max_element(steps.begin(), steps.end());
}

// Returns agent::Progress::before_divergence.
std::optional<int64_t> step_before_divergence(const fs::path& folder) {
  const Offer offer = offer_of(folder);
  if (!offer.has_diverged) return {};
  return offer.steps.empty() ? -1 : offer.steps.front();
}

// Returns a command that resumes from the newest checkpoint.
std::vector<std::string> resuming(std::vector<std::string> command) {
  std::erase_if(command, [](const std::string& word) {
    return word == "--overwrite" || word == "--take-over" || word.starts_with("--resume=");
  });
  command.emplace_back("--resume=auto");
  return command;
}

// Lost ranks are replaced where there are others whose processes can go on, and checkpoints to go
// back to. Throws ConfigError for spares that would wait for nothing.
void settle_elastic(const Args& args, const LaunchConfig& launched, agent::JobOptions& options) {
  options.is_elastic = !args.flag("--no-elastic") && options.ranks_here * options.nodes > 1 &&
                       launched.loaded && launched.loaded->checkpoint.enable;
  options.spares = args.small_integer("--spares");
  if (options.spares < 0 || options.spares > 1024) {
    throw base::ConfigError(fmt::format("--spares {}: from 0 to 1024", options.spares));
  }
  if (options.node >= options.nodes && options.spares == 0) options.spares = options.ranks_here;
  if ((options.spares == 0 && options.spare_nodes == 0) || options.is_elastic) return;
  throw base::ConfigError(
      "--spares and --spare-nodes need ranks that are replaced when they are lost: at least two "
      "processes of "
      "`trireme train`, checkpoints (checkpoint.enable), and no --no-elastic");
}

}  // namespace

InheritedText::InheritedText(const std::string& text) : file_(::memfd_create("configuration", 0)) {
  std::string_view rest = text;
  while (file_.value() >= 0 && !rest.empty()) {
    const ssize_t written = ::write(file_.value(), rest.data(), rest.size());
    if (written < 0) break;
    rest.remove_prefix(static_cast<size_t>(written));
  }
  if (file_.value() < 0 || !rest.empty()) {
    throw base::IoError(fmt::format("the configuration cannot be passed to the ranks: {}",
                                    std::generic_category().message(errno)));
  }
}

agent::JobOptions job_options(const Args& args) {
  agent::JobOptions options{.ranks_here = at_least_one(args, "-n"),
                            .nodes = at_least_one(args, "--nnodes"),
                            .node = args.small_integer("--node-rank"),
                            .spare_nodes = args.small_integer("--spare-nodes"),
                            .rendezvous = args.text("--rdzv"),
                            .deadline_s = args.has("--deadline") ? args.number("--deadline") : 600,
                            .environment = agent::without_role(process_environment()),
                            .max_restarts = args.integer("--restarts"),
                            .shows_all = args.text("--output") == "all",
                            .keeps_out = args.wants_json()};
  constexpr int max_here = 1024, max_ranks = 1 << 20;
  if (options.ranks_here > max_here || options.nodes > max_ranks / options.ranks_here) {
    throw base::ConfigError(
        fmt::format("-n {} on {} nodes: at most {} ranks per node and {} in all",
                    options.ranks_here, options.nodes, max_here, max_ranks));
  }
  if (options.spare_nodes < 0 || options.spare_nodes > max_here) {
    throw base::ConfigError(
        fmt::format("--spare-nodes {}: from 0 to {}", options.spare_nodes, max_here));
  }
  if (options.node < 0 || options.node >= options.all_nodes()) {
    const std::string spare_nodes =
        options.spare_nodes > 0 ? fmt::format(" --spare-nodes {}", options.spare_nodes) : "";
    throw base::ConfigError(fmt::format("--node-rank {}: must be from 0 to {} with --nnodes {}{}",
                                        options.node, options.all_nodes() - 1, options.nodes,
                                        spare_nodes));
  }
  if (options.all_nodes() > 1 && options.rendezvous.empty()) {
    throw base::ConfigError(
        "--nnodes needs --rdzv host:port, the same on every node: an address of node 0 that the "
        "others can reach");
  }
  if (!(options.deadline_s > 0)) {
    throw base::ConfigError(
        fmt::format("--deadline {:g}: must be above 0 seconds", options.deadline_s));
  }
  if (options.max_restarts < 0) {
    throw base::ConfigError(fmt::format("--restarts {}: at least 0", options.max_restarts));
  }
  options.public_name = public_name_of(options);
  return options;
}

void add_command(const Args& args, bool goes_on, LaunchConfig& launched,
                 agent::JobOptions& options) {
  read_config(args, launched);
  const std::vector<std::string> words = train_words(args, launched.path);
  fs::path folder;
  if (args.has("--program")) {
    options.command = {args.text("--program")};
  } else {
    std::error_code error;
    options.command = {fs::read_symlink("/proc/self/exe", error).string(), "train"};
    const Args train_args = parse_words(train_verb(), words);
    const config::Config config = goes_on ? begun_config(train_args, launched.given, options)
                                          : checked_config(train_args, launched.given, options);
    if (!args.has("--deadline")) options.deadline_s = config.comm.deadline_s;
    options.detect_s = config.elastic.detect_s;
    folder = config.job.dump_folder;
    options.run_folder = folder.string();
    options.starts_over = args.flag("--overwrite") || args.text("--resume") != "auto";
    const fs::path checkpoints = folder / config.checkpoint.folder;
    options.saved_step = [checkpoints] { return newest_step(checkpoints); };
    if (!args.flag("--no-rewind")) {
      options.before_divergence = [checkpoints] { return step_before_divergence(checkpoints); };
    }
    launched.loaded = config;
  }
  options.command.insert(options.command.end(), words.begin(), words.end());
  options.replacing_command = args.has("--program") ? options.command : resuming(options.command);
  settle_elastic(args, launched, options);
  options.flight_folder =
      fs::absolute(args.has("--flight") ? fs::path(args.text("--flight")) : folder / "flight")
          .string();
}

}  // namespace trireme::cli
