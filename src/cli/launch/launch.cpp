// SPDX-License-Identifier: Apache-2.0
// trireme launch: starts ranks as processes of this host, which may be one of several.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>

#include "agent/guardian/guardian.h"
#include "agent/guardian/keeper.h"
#include "agent/guardian/kept_names.h"
#include "agent/guardian/role.h"
#include "agent/nodes.h"
#include "agent/supervisor.h"
#include "base/error.h"
#include "base/log.h"
#include "base/system/descriptor.h"
#include "base/text/json.h"
#include "ckpt/disk/posix_disk.h"
#include "ckpt/generation/folder.h"
#include "cli/launch/launch_record.h"
#include "cli/launch/next_layout.h"
#include "cli/run/notices.h"
#include "cli/run/stop_signals.h"
#include "cli/run/train_call.h"
#include "cli/shell/config_options.h"
#include "cli/shell/environment.h"
#include "cli/shell/report.h"
#include "cli/verbs.h"
#include "comm/store/store_socket.h"
#include "comm/world/job_token.h"
#include "comm/world/rank_env.h"
#include "obs/clock.h"
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

// How a launcher whose ranks are replaced runs: as a supervisor, which a guardian has started.
struct Guarded {
  explicit Guarded(agent::Inheritance inherited)
      : keeper(own_call(), std::move(inherited)), job(keeper.find(agent::kept_job)) {}

  // This call, as a supervisor starts its guardian.
  static agent::ProgramCall own_call() {
    std::ifstream file("/proc/self/cmdline");
    agent::ProgramCall call{.environment = agent::without_role(process_environment())};
    for (std::string word; std::getline(file, word, '\0');) call.words.push_back(word);
    return call;
  }
  // Whether a supervisor before this one has begun the job.
  bool goes_on() const { return job.has_value(); }

  agent::Keeper keeper;
  std::optional<agent::Keeper::Found> job;
};

// A copy of a configuration that only this process can read, in an anonymous file that its ranks
// inherit.
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
      throw base::IoError(fmt::format("the configuration cannot be passed to the ranks: {}",
                                      std::generic_category().message(errno)));
    }
  }
  static constexpr std::string_view folder = "/proc/self/fd/";
  std::string path() const { return fmt::format("{}{}", folder, file_.value()); }

 private:
  base::Descriptor file_;
};

// The configuration of a call, and the path that its ranks read it from.
struct LaunchConfig {
  config::ConfigText given;
  std::string path;                      // empty: the configuration consists of options alone
  std::optional<config::Config> loaded;  // none with --program
  std::optional<InheritedText> inherited;
};

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

// Sets the token of the job, or where it is found: TRIREME_TOKEN; 128 random bits on one node;
// those in the run's folder, which the returned file of node 0 holds. Throws ConfigError if other
// hosts could reach the store and there is neither TRIREME_TOKEN nor a folder.
std::unique_ptr<comm::JobTokenFile> settle_token(agent::JobOptions& options,
                                                 const std::string& run_folder) {
  const comm::Environment environment = process_environment();
  const auto given = environment.find("TRIREME_TOKEN");
  const bool is_given = given != environment.end() && !given->second.empty();
  if (is_given || options.all_nodes() == 1) {
    options.token = is_given ? given->second : comm::random_token();
    return nullptr;
  }
  options.token = options.public_name;
  const comm::StoreAddress address = comm::parse_store_address(options.rendezvous);
  if (address.is_folder || !comm::listens_beyond_loopback(address.host, true)) return nullptr;
  if (run_folder.empty()) {
    throw base::ConfigError(comm::no_token_message(fmt::format("node {}", options.node)));
  }
  if (options.node != 0) {
    options.token_folder = run_folder;
    return nullptr;
  }
  auto file = std::make_unique<comm::JobTokenFile>(run_folder, options.public_name);
  options.token = file->token();
  return file;
}

// Returns the file that a supervisor of node 0 before this one has left; null: there is none.
std::unique_ptr<comm::JobTokenFile> left_token(const agent::JobOptions& options,
                                               const std::string& run_folder) {
  const bool is_left = options.node == 0 && !run_folder.empty() &&
                       comm::read_job_token(run_folder, options.public_name) == options.token;
  if (!is_left) return nullptr;
  return std::make_unique<comm::JobTokenFile>(run_folder, options.public_name, options.token);
}

// Returns the options of the job, without the command of its ranks.
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

// The configuration of a job that has begun.
config::Config begun_config(const Args& args, const config::ConfigText& given,
                            const agent::JobOptions& options) {
  return asked_config(args, given, options.ranks_here * options.nodes);
}

// Returns the step of the newest committed checkpoint; -1 if there is none.
int64_t newest_step(const fs::path& folder) {
  const std::unique_ptr<ckpt::Disk> disk = ckpt::posix_disk();
  const std::vector<int64_t> steps = ckpt::committed_steps(*disk, folder);
  return steps.empty() ? -1 : *std::max_element(steps.begin(), steps.end());
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

// Reads the configuration into `launched`, which must outlive the ranks, and sets their command.
// `goes_on`: the job has begun, and everything was checked before that.
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
    options.saved_step = [checkpoints = folder / config.checkpoint.folder] {
      return newest_step(checkpoints);
    };
    launched.loaded = config;
  }
  options.command.insert(options.command.end(), words.begin(), words.end());
  options.replacing_command = args.has("--program") ? options.command : resuming(options.command);
  settle_elastic(args, launched, options);
  options.flight_folder =
      fs::absolute(args.has("--flight") ? fs::path(args.text("--flight")) : folder / "flight")
          .string();
}

base::Json result_json(const agent::JobResult& result, const agent::JobOptions& options) {
  base::Json out = {{"ok", result.is_good()}, {"exit_code", result.decision.exit_code}};
  if (!result.decision.reason.empty()) out["reason"] = result.decision.reason;
  if (result.verdict) {
    out["error"] = result.verdict->text;
    out["verdict"] = {{"kind", comm::name_of(result.verdict->kind)},
                      {"ranks", result.verdict->ranks},
                      {"node", result.verdict->node},
                      {"cause", result.verdict->cause}};
    out["flight_records"] = options.flight_folder;
  }
  for (const agent::RankProcesses::State& state : result.ranks) {
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

// Sets the token by which a launcher whose call is wrong reaches the others. Node 0 serves a store
// that holds nothing but the reason, so it needs no secret.
void find_token_after_failure(const Args& args, agent::JobOptions& options) {
  const std::string folder = args.has("--program") ? "" : run_folder_of(args);
  options.token = options.public_name;
  if (options.node != 0 && !folder.empty()) (void)settle_token(options, folder);
}

// How far a job has come.
struct JobCourse {
  int64_t recoveries = 0;
  double started = 0;  // in seconds since 1970: its ranks, the last time; 0: they are not yet
  std::vector<std::string> layout;  // the keys that a lack of memory has changed; empty: none
};

// What a supervisor after this one has to know of the job, beside the call.
void keep_job(agent::Keeper& keeper, const agent::JobOptions& options, const JobCourse& course) {
  keeper.put(agent::kept_job, {{"token", options.token},
                               {"epoch", options.epoch},
                               {"restarts", options.restarts},
                               {"fruitless", options.fruitless},
                               {"starts_over", options.starts_over},
                               {"layout", course.layout},
                               {"recoveries", course.recoveries},
                               {"started", course.started}});
}

void append(std::vector<std::string>& words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
}

// Sets what keep_job() has kept, and returns the rest.
JobCourse go_on(const base::Json& job, agent::JobOptions& options) {
  options.token = job.at("token").get<std::string>();
  options.epoch = job.at("epoch").get<int64_t>();
  options.restarts = job.at("restarts").get<int64_t>();
  options.fruitless = job.at("fruitless").get<int64_t>();
  options.starts_over = job.at("starts_over").get<bool>();
  JobCourse course{.recoveries = job.at("recoveries").get<int64_t>(),
                   .started = job.at("started").get<double>(),
                   .layout = job.at("layout").get<std::vector<std::string>>()};
  append(options.replacing_command, course.layout);
  if (options.restarts > 0 || !course.layout.empty()) options.command = options.replacing_command;
  return course;
}

// Changes the options so that the next start resumes from the newest checkpoint.
void prepare_restart(agent::JobOptions& options, const agent::JobResult& before) {
  append(options.replacing_command, before.decision.layout);
  options.command = options.replacing_command;
  options.epoch = before.epoch + 1;
  if (before.decision.layout.empty()) ++options.restarts;
  options.fruitless = before.decision.fruitless;
  options.starts_over = false;
}

// Starts the job, and again as long as the launchers decide so.
agent::JobResult run_starts(agent::JobOptions& options, const LaunchConfig& launched,
                            agent::Keeper& keeper, JobCourse& course) {
  while (true) {
    if (course.started == 0) course.started = obs::wall_seconds();
    keep_job(keeper, options, course);
    options.survived = [&](const agent::JobResult& result) {
      ++course.recoveries;
      keep_job(keeper, options, course);
      if (launched.loaded && options.node == 0) {
        record_failure(*launched.loaded, {.result = result, .started = course.started});
      }
    };
    options.next_layout = [&] {
      const bool may_ask = launched.loaded && course.layout.empty();  // once for a job
      return may_ask ? layout_after_lack(*launched.loaded, options.world(), course.started)
                     : std::vector<std::string>();
    };
    agent::JobResult result = agent::run_start(options, keeper);
    const agent::Decision& decision = result.decision;
    if (launched.loaded && options.node == 0) {
      record_failure(*launched.loaded, {.result = result, .started = course.started});
    }
    if (!decision.reason.empty()) base::log(base::LogLevel::error, decision.reason);
    if (!decision.restarts) return result;
    prepare_restart(options, result);
    course.started = 0;
    if (!decision.layout.empty()) {
      course.layout = decision.layout;
      base::log_info("the job goes on with another layout, once, from the newest checkpoint: {}",
                     fmt::join(course.layout, " "));
      continue;
    }
    const std::string wait =
        decision.wait_s > 0 ? fmt::format(" in {:g} s", decision.wait_s) : std::string();
    base::log_info("restart {} of {}{}: from the newest checkpoint", options.restarts,
                   options.max_restarts, wait);
    agent::wait_for_restart(decision.wait_s);
  }
}

// Makes this process the guardian of the job, and returns its exit code.
int guard_job(const Args& args, const LaunchConfig& launched) {
  agent::ProgramCall call = Guarded::own_call();
  if (launched.inherited) {
    std::ranges::replace(call.words, args.text("config"), launched.path);
  }
  return agent::guard(call);
}

int run_job(const Args& args, agent::JobOptions& options, Guarded* guarded) {
  LaunchConfig launched;
  const bool goes_on = guarded != nullptr && guarded->goes_on();
  add_command(args, goes_on, launched, options);
  if (options.is_elastic && guarded == nullptr) return guard_job(args, launched);
  JobCourse course;
  std::unique_ptr<comm::JobTokenFile> token_file;
  const std::string folder = launched.loaded ? launched.loaded->job.dump_folder : "";
  if (goes_on) {
    course = go_on(guarded->job->what, options);
    token_file = left_token(options, folder);
  } else {
    token_file = settle_token(options, folder);
  }
  const std::unique_ptr<agent::NoticeWatch> notices =
      launched.loaded ? watch_notices(*launched.loaded) : nullptr;
  agent::Keeper nothing;
  const agent::JobResult result =
      run_starts(options, launched, guarded != nullptr ? guarded->keeper : nothing, course);
  if (args.wants_json()) {
    base::Json out = result_json(result, options);
    if (options.max_restarts > 0) out["restarts"] = options.restarts;
    if (options.is_elastic) out["recoveries"] = course.recoveries;
    fmt::print("{}\n", out.dump(-1, ' ', false, base::Json::error_handler_t::replace));
  }
  return result.decision.exit_code;
}

int run_launch_verb(const Args& args) {
  ignore_broken_pipes();
  auto inherited = agent::inheritance_from(process_environment());
  if (inherited && inherited->role == agent::Role::guardian) {
    return agent::guard_again(Guarded::own_call(), std::move(*inherited));
  }
  agent::JobOptions options = job_options(args);
  std::optional<Guarded> guarded;
  if (inherited) guarded.emplace(std::move(*inherited));
  try {
    return run_job(args, options, guarded ? &*guarded : nullptr);
  } catch (const std::exception& error) {
    // Without a store there is no one to tell.
    const bool has_no_store = dynamic_cast<const base::CommAborted*>(&error) != nullptr;
    const bool was_stopped = dynamic_cast<const base::Stopped*>(&error) != nullptr;
    if (options.all_nodes() == 1 || was_stopped || has_no_store) throw;
    // First: telling the others may take some time.
    const int code = report_error(error, args.wants_json());
    std::fflush(stdout);
    if (options.token.empty()) find_token_after_failure(args, options);
    agent::tell_other_nodes(options, message_of(error), code);
    return code;
  }
}

}  // namespace

Verb launch_verb() {
  Verb verb = {
      .name = "launch",
      .summary = "Start ranks as processes, on one host or several, and report which failed",
      .details =
          "Starts -n processes of `trireme train` on this host and passes its options to them.\n"
          "With several hosts, run it on each with the same --nnodes and --rdzv and the host's\n"
          "--node-rank; they share the run's folder, or have the same secret in TRIREME_TOKEN.\n"
          "It shows stdout of rank 0 and stderr of all ranks. When a rank dies, sends no\n"
          "heartbeat for elastic.detect_s seconds or hangs, one line names the rank, its last\n"
          "operation and the ranks that wait for it; the flight records of the ranks are in the\n"
          "run's folder. With checkpoints, another process then takes its place, the others go "
          "on\n"
          "in theirs, and the run continues from the newest state that they have together; ranks "
          "of a\n"
          "host that is lost go to spares of other hosts. The launcher itself may die, too. Three\n"
          "epochs in a row without a newer step end it with exit code 93. Otherwise, and with\n"
          "--no-elastic, all processes end. Errors that every rank would report are reported "
          "once,\n"
          "before any rank starts: the product of the degrees of [parallelism] must be the number\n"
          "of processes, and a degree of -1 is computed from it.\n\nExamples:\n"
          "  trireme launch -n 2 configs/kjv.toml --training.steps=300 "
          "--job.dump_folder=runs/processes\n"
          "  trireme launch -n 4 configs/kjv.toml --parallelism.data_parallel_replicate_degree=2 "
          "--job.dump_folder=runs/hsdp",
      .options =
          {{.name = "-n",
            .kind = Kind::integer,
            .fallback = "1",
            .help = "Number of processes on this host"},
           {.name = "--nnodes", .kind = Kind::integer, .fallback = "1", .help = "Number of hosts"},
           {.name = "--node-rank",
            .kind = Kind::integer,
            .fallback = "0",
            .help = "Index of this host, from 0"},
           {.name = "--rdzv", .help = "Rendezvous address: host:port of node 0"},
           {.name = "--deadline",
            .kind = Kind::number,
            .help = "Seconds that one communication may take; default: comm.deadline_s"},
           {.name = "--output",
            .fallback = "rank0",
            .help = "Ranks whose stdout is shown",
            .choices = {"rank0", "all"}},
           {.name = "--flight",
            .help = "Folder of the flight records; default: flight in the run's folder"},
           {.name = "--restarts",
            .kind = Kind::integer,
            .fallback = "0",
            .help =
                "How often the job is started again from its newest checkpoint after ranks failed; "
                "three starts in a row that save no newer one end it"},
           {.name = "--no-elastic",
            .kind = Kind::flag,
            .help = "End all ranks when one is lost, instead of replacing it"},
           {.name = "--spares",
            .kind = Kind::integer,
            .fallback = "0",
            .help = "Processes on this host that wait for a rank to replace, of this host or of "
                    "one that is lost"},
           {.name = "--spare-nodes",
            .kind = Kind::integer,
            .fallback = "0",
            .help = "Hosts beyond --nnodes, with the indices that follow, that have spares alone: "
                    "as many as -n, if --spares does not say otherwise"},
           {.name = "--program", .help = "Program to run instead of `trireme train`"}},
      .takes_overrides = true,
      .run = run_launch_verb};
  // Options of train are passed to the ranks. They are parsed here, too, so that options and values
  // may stand in any order.
  for (const Option& option : train_verb().options) verb.options.push_back(option);
  return verb;
}

}  // namespace trireme::cli
