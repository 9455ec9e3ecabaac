// SPDX-License-Identifier: Apache-2.0
// trireme launch: starts ranks as processes of this host, which may be one of several.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>

#include "agent/guardian/guardian.h"
#include "agent/guardian/keeper.h"
#include "agent/guardian/kept_names.h"
#include "agent/guardian/role.h"
#include "agent/nodes.h"
#include "base/error.h"
#include "base/text/json.h"
#include "cli/launch/job_course.h"
#include "cli/launch/launch_call.h"
#include "cli/launch/launch_token.h"
#include "cli/run/notices.h"
#include "cli/run/stop_signals.h"
#include "cli/run/train_call.h"
#include "cli/shell/environment.h"
#include "cli/shell/report.h"
#include "cli/verbs.h"

namespace trireme::cli {
namespace {

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
    if (options.went_back_to >= 0) out["went_back_to"] = options.went_back_to;
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
           {.name = "--no-rewind",
            .kind = Kind::flag,
            .help = "End with 93 when the numbers of the run have diverged, instead of starting "
                    "the job once more from a checkpoint from before"},
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
