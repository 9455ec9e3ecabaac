// SPDX-License-Identifier: Apache-2.0
#include "cli/chaos/disturbed_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fstream>
#include <system_error>
#include <thread>
#include <utility>

#include "analysis/statistics.h"
#include "base/error.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/system/regular_file.h"
#include "base/text/json_depth.h"
#include "ckpt/disk/posix_disk.h"
#include "ckpt/generation/folder.h"
#include "cli/shell/environment.h"
#include "obs/clock.h"
#include "obs/files/event_log.h"
#include "obs/output_file.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

constexpr double look_seconds = 0.01, look_at_events_seconds = 0.2;
constexpr const char* list_name = "chaos.jsonl";

void sleep_seconds(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

// What must be the same when an experiment is continued.
base::Json plan_json(const ChaosOptions& options) {
  base::Json kinds = base::Json::array();
  for (const DisturbanceKind kind : options.schedule.kinds) kinds.push_back(name_of(kind));
  return {{"kind", "plan"},
          {"seed", options.schedule.seed},
          {"kills", options.schedule.count},
          {"ranks", options.schedule.ranks},
          {"steps", options.schedule.steps},
          {"kinds", kinds},
          {"words", options.words}};
}

void append(const fs::path& file, const base::Json& line) {
  obs::OutputFile(file, obs::OutputFile::Mode::append).write(line.dump() + "\n");
}

void send(pid_t process, int number, const std::string& what) {
  if (::kill(process, number) == 0 || errno == ESRCH) return;
  throw base::IoError(fmt::format("{}: process {} cannot be sent signal {}: {}", what, process,
                                  number, std::generic_category().message(errno)));
}

}  // namespace

DisturbedRun::DisturbedRun(const ChaosOptions& options, bool continues)
    : options_(options),
      run_folder_(options.folder / "run"),
      quiet_folder_(options.quiet_run.empty() ? options.folder / "quiet" : options.quiet_run),
      schedule_(draw_schedule(options.schedule)),
      lines_(run_folder_ / "metrics.jsonl") {
  begin_list(continues);
}

void DisturbedRun::begin_list(bool continues) {
  const fs::path file = options_.folder / list_name;
  const base::Json plan = plan_json(options_);
  std::error_code unknown;
  if (!fs::exists(file, unknown)) {
    fs::create_directories(options_.folder);
    append(file, plan);
    return;
  }
  if (!continues) {
    throw base::ConfigError(
        fmt::format("{} has an experiment; continue it with --resume, or give another --folder",
                    options_.folder.string()));
  }
  base::Json found;
  const base::LinesRead read = base::read_lines(file, {}, [&](std::string_view text) {
    const base::Json line = base::parse_shallow_json(text);
    if (!line.is_object()) throw base::ConfigError(fmt::format("{} is damaged", file.string()));
    if (line.value("kind", "") == "plan") {
      found = line;
    } else {
      done_.push_back(done_from(line));
    }
  });
  if (!read.problem.empty()) {
    throw base::IoError(fmt::format("{} {}", file.string(), read.problem));
  }
  if (found != plan) {
    throw base::ConfigError(
        fmt::format("{} has an experiment with other options; --resume needs the same ones. There: "
                    "{}; here: {}",
                    options_.folder.string(), found.dump(), plan.dump()));
  }
}

obs::ChildProcess DisturbedRun::launch(const std::string& name,
                                       const std::vector<std::string>& more) const {
  const std::string log = fs::absolute(options_.folder / (name + ".log")).string();
  std::vector<std::string> words = {"/bin/sh",
                                    "-c",
                                    "exec \"$@\" >> \"$0\" 2>&1",
                                    log,
                                    fs::read_symlink("/proc/self/exe").string(),
                                    "launch"};
  words.insert(words.end(), options_.words.begin(), options_.words.end());
  words.insert(words.end(), more.begin(), more.end());
  words.push_back("--resume=auto");
  words.push_back(fmt::format("--job.dump_folder={}", (options_.folder / name).string()));
  return obs::ChildProcess({.words = words, .environment = environment_words({})});
}

bool DisturbedRun::wait(LaunchedJob& job, const std::function<bool()>& holds) {
  while (!holds()) {
    if (options_.stop != nullptr && *options_.stop) stop(job);
    if (!job.is_running()) return false;
    sleep_seconds(look_seconds);
  }
  return true;
}

void DisturbedRun::stop(LaunchedJob& job) {
  job.stop();
  const bool has_ended = job.wait(options_.stop_seconds);
  throw base::Stopped(fmt::format("stopped after {} of {} disturbances{}; --resume continues",
                                  done_.size(), schedule_.size(),
                                  has_ended ? "" : ", and the run did not end within its time"));
}

void DisturbedRun::run_quiet() {
  if (!options_.quiet_run.empty() ||
      !hash_of_weights(quiet_folder_ / options_.weights_folder / "final").empty()) {
    return;
  }
  base::log_info("chaos     first without disturbances, in {}", quiet_folder_.string());
  LaunchedJob job(launch("quiet", {}), quiet_folder_);
  wait(job, [&] { return !job.is_running(); });
  if (job.exit_code() == 0) return;
  throw base::IoError(fmt::format("the quiet run ended with exit code {}; what it printed: {}",
                                  job.exit_code(), (options_.folder / "quiet.log").string()));
}

ChaosReport DisturbedRun::run() {
  run_quiet();
  // Every start of the job may be needed again for the same disturbance.
  constexpr int64_t restarts_each = 2, more_restarts = 3;
  const int64_t restarts = restarts_each * options_.schedule.count + more_restarts;
  LaunchedJob job(launch("run", {fmt::format("--restarts={}", restarts)}), run_folder_);
  disturb(job);
  double measured = obs::steady_seconds();
  wait(job, [&] {
    if (obs::steady_seconds() - measured > look_at_events_seconds) {
      measured = obs::steady_seconds();
      lines_.read();
      // Ranks that start or end hold less.
      const bool is_training = !done_.empty() && lines_.newest() > done_.back().newest &&
                               lines_.newest() < options_.schedule.steps;
      if (is_training) measure(job);
    }
    return !job.is_running();
  });
  lines_.read();
  return report(job.exit_code());
}

void DisturbedRun::disturb(LaunchedJob& job) {
  for (size_t i = done_.size(); i < schedule_.size(); ++i) {
    const Disturbance& next = schedule_[i];
    if (!wait(job, [&] { return is_ready(next, job); })) return;
    measure(job);
    const double until = obs::steady_seconds() + next.step_share * step_seconds();
    if (!wait(job, [until] { return obs::steady_seconds() >= until; })) return;
    if (!do_one(next, job)) return;
    if (!wait(job, [&] { return has_recovered(); })) return;
    const DisturbanceResult result = results_of(facts(), done_).back();
    base::log_info(
        "chaos     {} of {}: {} (process {}) after step {}; next step after {:.2f} s, {} repeated",
        next.number, schedule_.size(), text_of(next), done_.back().process, done_.back().newest,
        result.next_step_seconds.value_or(0), result.repeated_steps);
  }
}

bool DisturbedRun::is_ready(const Disturbance& next, LaunchedJob& job) {
  lines_.read();
  if (lines_.newest() < std::max<int64_t>(next.after_step, 1)) return false;
  // A job that only repeats steps, or never saves a newer one, is ended by its launcher.
  if (!done_.empty() && lines_.newest() <= done_.back().newest) return false;
  const RankPids now = job.processes();
  if (std::ssize(now.ranks) != options_.schedule.ranks) return false;
  if (!now.is_recorded && newest_checkpoint() <= checkpoint_before_) return false;
  // Two losses at once are another experiment.
  const bool is_whole = now.guardian == 0 || job.is_guarded();
  return is_whole && target(next, job).has_value();
}

bool DisturbedRun::has_recovered() {
  lines_.read();
  if (obs::steady_seconds() - read_events_at_ > look_at_events_seconds) {
    events_ = obs::read_events(run_folder_);
    read_events_at_ = obs::steady_seconds();
  }
  return results_of(facts(), done_).back().next_step_seconds.has_value();
}

std::optional<pid_t> DisturbedRun::target(const Disturbance& what, LaunchedJob& job) {
  const RankPids now = job.processes();
  const auto if_any = [](pid_t process) {
    return process > 0 ? std::optional(process) : std::nullopt;
  };
  switch (what.kind) {
    case DisturbanceKind::supervisor:
      return if_any(now.supervisor);
    case DisturbanceKind::guardian:
      return if_any(now.guardian);
    case DisturbanceKind::spare:
      return if_any(now.spares.empty() ? 0 : now.spares.front());
    case DisturbanceKind::kill:
    case DisturbanceKind::pause:
    case DisturbanceKind::freeze:
      break;
  }
  const auto found = now.ranks.find(what.rank);
  return found == now.ranks.end() ? std::nullopt : std::optional(found->second);
}

bool DisturbedRun::do_one(const Disturbance& what, LaunchedJob& job) {
  std::optional<pid_t> process;
  const bool is_there = wait(job, [&] {
    process = target(what, job);
    return process.has_value();
  });
  if (!is_there) return false;
  lines_.read();
  checkpoint_before_ = newest_checkpoint();
  const bool stops = what.kind == DisturbanceKind::pause || what.kind == DisturbanceKind::freeze;
  DoneDisturbance done{
      .what = what, .process = *process, .time = obs::wall_seconds(), .newest = lines_.newest()};
  send(*process, stops ? SIGSTOP : SIGKILL, text_of(what));
  done_.push_back(done);
  append(options_.folder / list_name, to_json(done));
  if (what.kind == DisturbanceKind::pause) pause(job, *process, what.pause_seconds);
  return true;
}

void DisturbedRun::pause(LaunchedJob& job, pid_t process, double seconds) {
  struct Continue {
    pid_t process;
    ~Continue() { ::kill(process, SIGCONT); }
  } const at_the_end{process};
  const double until = obs::steady_seconds() + seconds;
  wait(job, [until] { return obs::steady_seconds() >= until; });
}

void DisturbedRun::measure(LaunchedJob& job) {
  const RankPids ranks = job.processes();
  const std::optional<ProcessUse> own = job.launcher_use();
  if (!own || std::ssize(ranks.ranks) != options_.schedule.ranks) return;
  ProcessUse all;
  for (const auto& [rank, process] : ranks.ranks) {
    const std::optional<ProcessUse> use = use_of(process);
    if (!use) return;
    all += *use;
  }
  for (const auto& [change, now] : {std::pair{&launcher_use_, *own}, {&rank_use_, all}}) {
    if (!std::exchange(change->is_known, true)) change->begin = now;
    change->end = now;
  }
}

double DisturbedRun::step_seconds() const {
  constexpr size_t max_steps = 20;
  constexpr double max_seconds = 5;  // also where a step takes minutes
  const std::vector<StepLine>& steps = lines_.steps();
  std::vector<double> times;
  for (size_t i = steps.size() - std::min(steps.size(), max_steps); i + 1 < steps.size(); ++i) {
    times.push_back(steps[i + 1].time - steps[i].time);
  }
  return times.empty() ? 0 : std::clamp(analysis::median(times), 0.0, max_seconds);
}

int64_t DisturbedRun::newest_checkpoint() const {
  const std::unique_ptr<ckpt::Disk> disk = ckpt::posix_disk();
  const std::vector<int64_t> steps =
      ckpt::committed_steps(*disk, run_folder_ / options_.checkpoint_folder);
  return steps.empty() ? -1 : steps.front();
}

RunFacts DisturbedRun::facts() const {
  return {.steps = lines_.steps(), .starts = lines_.starts(), .events = events_};
}

ChaosReport DisturbedRun::report(int exit_code) const {
  StepLines quiet(quiet_folder_ / "metrics.jsonl");
  quiet.read();
  RunFacts facts = this->facts();
  facts.events = obs::read_events(run_folder_);
  const std::vector<StepLine>& steps = facts.steps;
  return {.seed = options_.schedule.seed,
          .ranks = options_.schedule.ranks,
          .planned = std::ssize(schedule_),
          .steps = options_.schedule.steps,
          .results = results_of(facts, done_),
          .differences = differences(quiet.steps(), steps),
          .longest_gap = longest_gap(steps),
          .seconds = steps.empty() ? 0 : steps.back().time - steps.front().time,
          .exit_code = exit_code,
          .weights = hash_of_weights(run_folder_ / options_.weights_folder / "final"),
          .quiet_weights = hash_of_weights(quiet_folder_ / options_.weights_folder / "final"),
          .launcher = launcher_use_,
          .rank_processes = rank_use_};
}

std::string hash_of_weights(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code missing;
  for (fs::directory_iterator at(folder, missing), end; !missing && at != end;
       at.increment(missing)) {
    if (at->path().extension() == ".safetensors") files.push_back(at->path());
  }
  if (files.empty()) return "";
  std::ranges::sort(files);
  base::Sha256 hash;
  std::vector<char> buffer(size_t{1} << 20);
  for (const fs::path& file : files) {
    const std::string name = file.filename().string();
    if (files.size() > 1) hash.update(std::as_bytes(std::span(name)));
    std::ifstream in(file, std::ios::binary);
    while (in.read(buffer.data(), std::ssize(buffer)) || in.gcount() > 0) {
      hash.update(std::as_bytes(std::span(buffer).first(static_cast<size_t>(in.gcount()))));
    }
    if (!in.eof()) throw base::IoError(fmt::format("{} cannot be read", file.string()));
  }
  return hash.hex();
}

}  // namespace trireme::cli
