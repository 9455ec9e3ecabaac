// SPDX-License-Identifier: Apache-2.0
#include "tests/blind/blind_run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <stdexcept>
#include <thread>

namespace trireme::tests {
namespace {

namespace fs = std::filesystem;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string content_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The processes below `parent`, by their variable TRIREME_RANK.
std::vector<pid_t> rank_processes(pid_t parent, int ranks) {
  std::vector<pid_t> found(static_cast<size_t>(ranks), -1);
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string stat = content_of(entry.path() / "stat");
    const size_t end = stat.rfind(')');
    if (end == std::string::npos) continue;
    char state = 0;
    int above = 0;
    if (std::sscanf(stat.c_str() + end + 1, " %c %d", &state, &above) != 2 || above != parent) {
      continue;
    }
    const std::string variables = '\0' + content_of(entry.path() / "environ");
    const size_t at = variables.find(std::string("\0TRIREME_RANK=", 14));
    if (at == std::string::npos) continue;
    const auto rank = static_cast<size_t>(std::atoi(variables.c_str() + at + 14));
    if (rank < found.size()) found[rank] = std::stoi(name);
  }
  return found;
}

}  // namespace

void sleep_seconds(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

BlindRun::BlindRun(const BlindSetup& setup) : setup_(setup) {
  scratch_.write("model.toml",
                 fmt::format("family = \"llama\"\nlayers = {}\nhidden = {}\nheads = 4\nffn = {}\n"
                             "vocab = 256\nmax_seq = 256\n",
                             setup.layers, setup.hidden, 3 * setup.hidden));
  scratch_.write("text.txt", tiny_text(20000));
  scratch_.write("run.toml",
                 "[job]\ndump_folder = \"run\"\n[model]\nname = \"model.toml\"\n"
                 "[training]\ndataset_path = \"text.txt\"\nlocal_batch_size = 2\nseq_len = 64\n"
                 "steps = 1000000\ndtype = \"fp32\"\n[lr_scheduler]\nwarmup_steps = 10\n"
                 "[metrics]\nlog_freq = 50\nenable_tensorboard = false\n"
                 "[checkpoint]\nenable = false\n[system]\nthreads = 1\ndevice = \"cpu\"\n");
  scratch_.write("control", std::string(sizeof(ShimControl), '\0'));
  const int file = ::open(scratch_.at("control").c_str(), O_RDWR | O_CLOEXEC);
  void* start = ::mmap(nullptr, sizeof(ShimControl), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (start == MAP_FAILED) throw std::runtime_error("cannot map the control file");
  control_ = static_cast<ShimControl*>(start);
}

BlindRun::~BlindRun() {
  if (running_ && !running_->has_ended()) signal_all(SIGCONT);
  running_.reset();
  ::munmap(control_, sizeof(ShimControl));
}

bool BlindRun::start() {
  std::vector<std::string> command = {
      "/usr/bin/env", fmt::format("LD_PRELOAD={}", TRIREME_SHIM),
      fmt::format("TRIREME_SHIM_CONTROL={}", scratch_.at("control").string()),
      fmt::format("TRIREME_SHIM_DATA={}", fs::canonical(scratch_.at("text.txt")).string())};
  command.insert(command.end(), setup_.environment.begin(), setup_.environment.end());
  std::vector<std::string> words = {"launch", "-n", std::to_string(setup_.ranks), "run.toml"};
  words.insert(words.end(), setup_.options.begin(), setup_.options.end());
  for (std::string& word : trireme_command(words)) command.push_back(std::move(word));
  running_ =
      std::make_unique<Running>(scratch_.path(), command, RunOptions{.deadline_seconds = 120});
  const bool is_running = running_->wait_for([&] {
    return content_of(scratch_.at("run/metrics.jsonl")).find("\"train\"") != std::string::npos;
  });
  processes_ = rank_processes(running_->process(), setup_.ranks);
  const bool has_all =
      std::none_of(processes_.begin(), processes_.end(), [](pid_t process) { return process < 0; });
  if (!is_running || !has_all) outcome_ = running_->wait();
  return is_running && has_all;
}

void BlindRun::run_for(double seconds, const std::function<void()>& disturb) {
  const double end = seconds_now() + seconds;
  while (seconds_now() < end) {
    if (disturb) {
      disturb();
    } else {
      sleep_seconds(std::min(0.1, std::max(0.0, end - seconds_now())));
    }
    running_->wait_for([] { return true; });
  }
  // A busy machine runs few steps in that time, too few for a record of the ranks.
  constexpr int64_t min_steps = 80;
  running_->wait_for([&] {
    const std::string lines = content_of(scratch_.at("run/metrics.jsonl"));
    return std::count(lines.begin(), lines.end(), '\n') >= min_steps;
  });
}

void BlindRun::stop() {
  signal_all(SIGCONT);
  running_->signal(SIGTERM);
  outcome_ = running_->wait();
}

pid_t BlindRun::process_of(int rank) const { return processes_.at(static_cast<size_t>(rank)); }

void BlindRun::signal_all(int number) const {
  for (const pid_t process : processes_) {
    if (process > 0) ::kill(process, number);
  }
}

base::Json BlindRun::diagnosis() const {
  const Outcome outcome = trireme(scratch_, {"diagnose", "run", "--json"});
  base::Json answer = base::Json::parse(outcome.out, nullptr, false);
  if (!answer.is_object()) throw std::runtime_error("diagnose: " + outcome.out + outcome.err);
  return answer;
}

void DutyCycle::operator()() const {
  const double stopped = period_ * slower_ / (1 + slower_);
  ::kill(process_, SIGSTOP);
  sleep_seconds(stopped);
  ::kill(process_, SIGCONT);
  sleep_seconds(period_ - stopped);
}

}  // namespace trireme::tests
