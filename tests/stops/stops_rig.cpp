// SPDX-License-Identifier: Apache-2.0
#include "tests/stops/stops_rig.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <regex>
#include <sstream>
#include <thread>

#include "base/sha256.h"
#include "comm/store/store_server.h"

namespace trireme::tests {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr double max_end_seconds = 180;  // for a job to end; generous for loaded machines

void sleep_seconds(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

Clock::time_point after(double seconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// The variable that distinguishes the processes of one job from those of another.
const std::string job_mark = "TRIREME_TEST_JOB=";

bool is_executable(const std::string& path) { return ::access(path.c_str(), X_OK) == 0; }

// The Slurm cluster of this test program, of two nodes; it ends with it.
class SlurmCluster {
 public:
  SlurmCluster() {
    for (const char* needed : {"/usr/bin/srun", "/usr/sbin/slurmctld", "/usr/sbin/munged"}) {
      if (is_executable(needed)) continue;
      problem_ = fmt::format("{} is not installed (packages slurm-wlm, munge)", needed);
      return;
    }
    if (::getuid() != 0) {
      problem_ = "a private Slurm cluster needs root";
      return;
    }
    const Outcome started = run({"start", folder(), std::to_string(::getpid()), "2"});
    if (started.exit_code != 0) problem_ = "slurm.sh start: " + started.err;
  }
  ~SlurmCluster() {
    if (problem_.empty()) run({"stop", folder()});
  }
  SlurmCluster(const SlurmCluster&) = delete;
  SlurmCluster& operator=(const SlurmCluster&) = delete;

  const std::string& problem() const { return problem_; }
  std::string setting() const { return "SLURM_CONF=" + folder() + "/slurm.conf"; }

 private:
  std::string folder() const { return scratch_.at("slurm").string(); }
  Outcome run(const Words& words) {
    Words command = {TRIREME_SOURCE_DIR "/tests/stops/slurm.sh"};
    command.insert(command.end(), words.begin(), words.end());
    return Running(scratch_.path(), command).wait();
  }

  Scratch scratch_;
  std::string problem_;
};

SlurmCluster& slurm() {
  static SlurmCluster cluster;
  return cluster;
}

// Returns what can be read: a process may end while its file in /proc is read, and an iterator
// would then throw.
std::string file_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// Returns the number in the last match, or none.
std::optional<int64_t> last_number(const std::string& log, const std::string& expression) {
  const std::regex wanted(expression);
  std::optional<int64_t> found;
  for (std::sregex_iterator at(log.begin(), log.end(), wanted), end; at != end; ++at) {
    found = std::stoll((*at)[1].str());
  }
  return found;
}

Words launcher_words(const JobOptions& options, const std::string& job_name) {
  const std::string ranks = std::to_string(options.ranks);
  switch (options.launcher) {
    case LauncherKind::train:
      return {};
    case LauncherKind::launch: {
      Words words = trireme_command({"launch", "-n", ranks});
      words.insert(words.end(), options.launch_words.begin(), options.launch_words.end());
      return words;
    }
    case LauncherKind::torchrun:
      // -r and -t name a rank that does not exist: torch 1.13 fails under Python 3.11 without them.
      return {"/usr/bin/torchrun",
              "--nproc_per_node=" + ranks,
              fmt::format("--master_port={}", free_port_pair()),
              "-r",
              "9:1",
              "-t",
              "9:1",
              "--no_python"};
    case LauncherKind::openmpi:
      // On SIGTERM mpirun sends SIGCONT, after the timeout SIGTERM, and after the timeout SIGKILL.
      // The default is one second, which is short for a save on a busy machine.
      return {"/usr/bin/mpirun.openmpi",
              "--allow-run-as-root",
              "--oversubscribe",
              "--bind-to",
              "none",
              "--mca",
              "odls_base_sigkill_timeout",
              "5",
              "-n",
              ranks};
    case LauncherKind::mpich:
      return {"/usr/bin/mpirun.mpich", "-n", ranks};
    case LauncherKind::srun:
      return {slurm().setting(), "/usr/bin/srun", "--job-name=" + job_name, "-n", ranks};
  }
  return {};
}

}  // namespace

// ---- the run

unsigned printed_seed(const std::string& name) {
  const char* const given = std::getenv("TRIREME_SEED");
  const unsigned seed = given != nullptr ? static_cast<unsigned>(std::strtoul(given, nullptr, 10))
                                         : std::random_device{}();
  std::cout << fmt::format("{}: TRIREME_SEED={}\n", name, seed) << std::flush;
  return seed;
}

bool is_full() { return std::getenv("TRIREME_FULL") != nullptr; }

void write_stops_run(const Scratch& scratch) {
  write_tiny(scratch);
  scratch.write("stops.toml", fmt::format("[job]\n"
                                          "dump_folder = \"run\"\n"
                                          "[model]\n"
                                          "name = \"tiny.toml\"\n"
                                          "[optimizer]\n"
                                          "lr = 1e-3\n"
                                          "[lr_scheduler]\n"
                                          "total_steps = {}\n"
                                          "[training]\n"
                                          "dataset_path = \"text.txt\"\n"
                                          "local_batch_size = 1\n"
                                          "global_batch_size = 4\n"
                                          "seq_len = 16\n"
                                          "steps = {}\n"
                                          "[parallelism]\n"
                                          "logical_dp = 4\n"
                                          "[checkpoint]\n"
                                          "interval = 10\n"
                                          "[validation]\n"
                                          "enable = false\n"
                                          "[metrics]\n"
                                          "log_freq = 5\n"
                                          "[comm]\n"
                                          "deadline_s = 30\n"
                                          "[system]\n"
                                          "threads = 1\n",
                                          endless, endless));
}

std::string quiet_weights(int64_t steps) {
  static std::map<int64_t, std::string> known;
  std::string& weights = known[steps];
  if (!weights.empty()) return weights;
  const Scratch scratch;
  write_stops_run(scratch);
  const Outcome outcome = trireme(scratch,
                                  {"train", "stops.toml", fmt::format("--training.steps={}", steps),
                                   "--checkpoint.interval=0", "--metrics.log_freq=1000"},
                                  {.deadline_seconds = 600});
  EXPECT_EQ(outcome.exit_code, exit_done) << outcome.err;
  if (scratch.has(final_weights)) weights = scratch.read(final_weights);
  return weights;
}

std::string sha256_of(const std::string& bytes) {
  base::Sha256 hash;
  hash.update(std::as_bytes(std::span(bytes)));
  return hash.hex();
}

int64_t newest_checkpoint(const Scratch& scratch) {
  const std::regex committed(R"(step-(\d+))");
  int64_t newest = -1;
  std::error_code ignored;
  for (fs::directory_iterator at(scratch.at("run/checkpoint"), ignored), end; at != end;
       at.increment(ignored)) {
    const std::string name = at->path().filename().string();
    std::smatch found;
    if (std::regex_match(name, found, committed)) {
      newest = std::max<int64_t>(newest, std::stoll(found[1].str()));
    }
  }
  return newest;
}

// ---- reading a log

std::optional<int64_t> saved_step(const std::string& log) {
  return last_number(log, R"(stopped   step (\d+) is saved)");
}
std::optional<int64_t> resumed_step(const std::string& log) {
  const auto step = last_number(log, R"(resume    step (\d+) of )");
  if (!step && log.find("resume    no checkpoint exists yet") != std::string::npos) return -1;
  return step;
}
std::optional<int64_t> last_step(const std::string& log) {
  return last_number(log, R"(step: +(\d+) )");
}

// ---- launchers

int free_port_pair() {
  std::random_device random;
  for (;;) {
    const int port = 16000 + static_cast<int>(random() % 14000);
    try {
      const comm::StoreServer first({.host = "127.0.0.1", .port = port});
      const comm::StoreServer next({.host = "127.0.0.1", .port = port + 1});
      return port;
    } catch (const std::exception&) {
      continue;  // one of the ports is taken
    }
  }
}

std::string slurm_setting() { return slurm().setting(); }

std::string name_of(LauncherKind launcher) {
  switch (launcher) {
    case LauncherKind::train:
      return "train";
    case LauncherKind::launch:
      return "launch";
    case LauncherKind::torchrun:
      return "torchrun";
    case LauncherKind::openmpi:
      return "openmpi";
    case LauncherKind::mpich:
      return "mpich";
    case LauncherKind::srun:
      return "srun";
  }
  return "";
}

std::ostream& operator<<(std::ostream& out, LauncherKind launcher) {
  return out << name_of(launcher);
}

std::string problem_of(LauncherKind launcher) {
  const auto missing = [](const std::string& path, const std::string& package) {
    return is_executable(path) ? ""
                               : fmt::format("{} is not installed (package {})", path, package);
  };
  switch (launcher) {
    case LauncherKind::train:
    case LauncherKind::launch:
      return "";
    case LauncherKind::torchrun:
      return missing("/usr/bin/torchrun", "python3-torch");
    case LauncherKind::openmpi:
      return missing("/usr/bin/mpirun.openmpi", "openmpi-bin");
    case LauncherKind::mpich:
      return missing("/usr/bin/mpirun.mpich", "mpich");
    case LauncherKind::srun:
      return slurm().problem();
  }
  return "";
}

std::string name_of(Stop stop) {
  switch (stop) {
    case Stop::terminate:
      return "SIGTERM to the launcher";
    case Stop::terminate_twice:
      return "SIGTERM to all, twice";
    case Stop::interrupt:
      return "SIGINT, twice";
    case Stop::hang_up:
      return "SIGHUP";
    case Stop::dead_pipe:
      return "dead pipe";
    case Stop::user_signal:
      return "SIGUSR2";
    case Stop::kill_rank:
      return "SIGKILL of a rank";
    case Stop::kill_launcher:
      return "SIGKILL of the launcher";
  }
  return "";
}

bool is_request(Stop stop) {
  return stop != Stop::kill_rank && stop != Stop::kill_launcher && stop != Stop::dead_pipe;
}

std::vector<int> codes_of_saved(LauncherKind launcher, Stop stop) {
  switch (launcher) {
    case LauncherKind::train:
    case LauncherKind::launch:
      return {exit_stopped};
    case LauncherKind::torchrun:
      return {1};
    case LauncherKind::openmpi:
      return stop == Stop::user_signal ? std::vector{exit_stopped} : std::vector{1, exit_stopped};
    case LauncherKind::mpich:
    case LauncherKind::srun:
      return {exit_stopped};
  }
  return {};
}

Job::Job(const Scratch& scratch, JobOptions options)
    : scratch_(scratch), options_(std::move(options)) {
  static int jobs = 0;
  job_name_ = fmt::format("stops-{}-{}", ::getpid(), ++jobs);
  Words words = {"/usr/bin/env", job_mark + job_name_};
  const Words launcher = launcher_words(options_, job_name_);
  words.insert(words.end(), launcher.begin(), launcher.end());
  const Words train = options_.launcher == LauncherKind::launch
                          ? Words{"stops.toml"}
                          : trireme_command({"train", "stops.toml"});
  words.insert(words.end(), train.begin(), train.end());
  words.insert(words.end(), options_.train_words.begin(), options_.train_words.end());
  running_ = std::make_unique<Running>(scratch.path(), words,
                                       RunOptions{.deadline_seconds = options_.deadline_seconds});
  seen_.insert(running_->process());
}

Job::~Job() {
  if (options_.launcher == LauncherKind::srun && !has_ended()) (void)cancel("KILL");
  kill_all();
}

void Job::kill_all() {
  if (!has_ended()) signal_launcher(SIGKILL);
  // The launcher may have other processes, which would start ranks again.
  for (const pid_t process : processes_of("launch")) ::kill(process, SIGKILL);
  signal_ranks(SIGKILL);
}

std::vector<pid_t> Job::ranks() {
  const std::vector<pid_t> found = processes_of("train");
  seen_.insert(found.begin(), found.end());
  return found;
}

std::vector<pid_t> Job::processes_of(const std::string& verb) const {
  const std::string command = TRIREME_PROGRAM + std::string(1, '\0') + verb + '\0';
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    // Both files of a zombie are empty.
    if (!file_text(entry.path() / "cmdline").starts_with(command)) continue;
    const std::string environment = '\0' + file_text(entry.path() / "environ");
    if (environment.find('\0' + job_mark + job_name_ + '\0') == std::string::npos) continue;
    found.push_back(static_cast<pid_t>(std::stol(name)));
  }
  return found;
}

void Job::signal_all(int number) {
  signal_launcher(number);
  signal_ranks(number);
}

bool Job::wait_for_step() {
  return wait_for([this] { return last_step(log()).has_value(); }) && last_step(log());
}

void Job::pass(double seconds) {
  const auto end = after(seconds);
  (void)running_->wait_for([&] { return Clock::now() >= end; });
  while (Clock::now() < end && !has_ended()) sleep_seconds(0.005);  // without a log
}

void Job::signal_launcher(int number) {
  if (!has_ended()) ::kill(running_->process(), number);
}
void Job::signal_ranks(int number) {
  for (const pid_t rank : ranks()) ::kill(rank, number);
}

void Job::signal_ranks_when_there(int number) {
  while (ranks().empty() && !has_ended()) pass(0.01);
  signal_ranks(number);
}

bool Job::cancel(const std::string& signal) const {
  const Outcome outcome =
      Running(scratch_.path(), {"/usr/bin/env", slurm().setting(), "/usr/bin/scancel",
                                "--signal=" + signal, "--name=" + job_name_})
          .wait();
  return outcome.exit_code == 0;
}

void Job::stop(Stop stop, std::mt19937& random) {
  const LauncherKind launcher = options_.launcher;
  const bool is_ours = launcher <= LauncherKind::launch;
  const bool is_slurm = launcher == LauncherKind::srun;
  // srun kills its job on SIGTERM, SIGHUP or two SIGINTs; users call scancel.
  const bool has_begun = last_step(log()).has_value();
  const auto request = [=, this](int number, const std::string& name) {
    const auto once = [=, this] {
      if (is_slurm) {
        (void)cancel(name);
      } else {
        signal_launcher(number);
      }
    };
    once();
    // Other launchers lose a signal that arrives before the ranks have started; `trireme launch`
    // must not.
    if (!is_ours && !has_begun) request_again_ = once;
  };
  switch (stop) {
    case Stop::terminate:
      request(SIGTERM, "TERM");
      return;
    case Stop::terminate_twice:
      // Open MPI's mpirun kills its ranks on a second SIGTERM.
      request(SIGTERM, "TERM");
      signal_ranks(SIGTERM);
      signal_ranks(SIGTERM);
      if (launcher != LauncherKind::openmpi) request(SIGTERM, "TERM");
      return;
    case Stop::interrupt:
      // Both versions of mpirun and srun kill their ranks on a second SIGINT.
      request(SIGINT, "INT");
      signal_ranks(SIGINT);
      sleep_seconds(0.1 * static_cast<double>(random() % 1000) / 1000);
      if (is_ours) signal_launcher(SIGINT);
      signal_ranks(SIGINT);
      return;
    case Stop::hang_up:
      // MPICH's mpirun dies of SIGHUP and kills its ranks.
      if (launcher != LauncherKind::mpich) request(SIGHUP, "HUP");
      signal_ranks_when_there(SIGHUP);
      return;
    case Stop::dead_pipe:
      running_->close_streams();
      pass(0.5 * static_cast<double>(random() % 1000) / 1000);
      request(SIGTERM, "TERM");
      return;
    case Stop::user_signal:
      // torchrun and MPICH's mpirun die of SIGUSR2.
      if (launcher == LauncherKind::torchrun || launcher == LauncherKind::mpich) {
        signal_ranks_when_there(SIGUSR2);
      } else {
        request(SIGUSR2, "USR2");
      }
      return;
    case Stop::kill_rank: {
      while (ranks().empty() && !has_ended()) pass(0.01);
      const std::vector<pid_t> all = ranks();
      if (!all.empty()) ::kill(all[random() % all.size()], SIGKILL);
      return;
    }
    case Stop::kill_launcher:
      signal_launcher(SIGKILL);
      // Slurm keeps a job whose srun has ended.
      if (is_slurm) request(SIGTERM, "TERM");
      return;
  }
}

Outcome Job::wait() {
  const auto end = after(max_end_seconds);
  auto next_look = Clock::now();
  auto next_request = after(15);
  bool is_over = false;
  const auto looks = [&] {
    if (Clock::now() < next_look) return false;
    next_look = after(0.05);
    const bool has_ranks = !ranks().empty();  // in any case, for seen()
    is_over = has_ended() && !has_ranks;
    if (!is_over && request_again_ && Clock::now() >= next_request) {
      next_request = after(15);
      request_again_();
    }
    return is_over || Clock::now() >= end;
  };
  while (!running_->wait_for(looks)) sleep_seconds(0.02);  // also after the log is closed
  if (!is_over) {
    ADD_FAILURE() << name_of(options_.launcher) << (has_ended() ? " ended" : " runs on") << ", and "
                  << ranks().size() << " ranks run on " << max_end_seconds << " s later; log:\n"
                  << log();
    kill_all();
  }
  return running_->wait();
}

}  // namespace trireme::tests
