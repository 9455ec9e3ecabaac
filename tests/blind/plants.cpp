// SPDX-License-Identifier: Apache-2.0
#include "tests/blind/plants.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <random>

#include "tests/blind/blind_run.h"

namespace trireme::tests {
namespace {

// Numbers that follow from the seed and the kind.
class Dice {
 public:
  Dice(uint64_t seed, uint64_t kind) : random_(1000003 * seed + kind) {}
  double between(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }
  int below(int limit) { return std::uniform_int_distribution<int>(0, limit - 1)(random_); }

 private:
  std::mt19937_64 random_;
};

// Seconds of steps before the trouble, and with it: ten windows and some.
constexpr double min_calm = 3, max_calm = 6, troubled = 13;

BlindResult result_of(const BlindRun& run, int planted_rank, const std::string& what) {
  BlindResult result{.has_run = true, .planted_rank = planted_rank};
  const base::Json diagnosis = run.diagnosis();
  result.details = what + "; " + diagnosis.at("sentence").get<std::string>();
  for (const base::Json& finding : diagnosis.at("findings")) {
    if (result.cause.empty()) {
      result.cause = finding.at("cause").get<std::string>();
      result.rank = finding.at("rank").get<int>();
    } else {
      result.details += "; also " + finding.at("title").get<std::string>();
    }
  }
  return result;
}

BlindResult failed(const BlindRun& run) {
  return {.details = "the run did not start: " + run.outcome().err};
}

// Runs calmly, then with `disturb`, and judges.
BlindResult disturbed(const BlindSetup& setup, double calm, int rank, const std::string& what,
                      const std::function<std::function<void()>(BlindRun&)>& begin,
                      double seconds = troubled) {
  BlindRun run(setup);
  if (!run.start()) return failed(run);
  run.run_for(calm);
  run.run_for(seconds, begin(run));
  run.stop();
  return result_of(run, rank, what);
}

std::vector<std::string> data_layout(Dice& dice) {
  switch (dice.below(3)) {
    case 0:
      return {};
    case 1:
      return {"--parallelism.zero_stage=3"};
    default:
      return {"--parallelism.data_parallel_replicate_degree=2",
              "--parallelism.data_parallel_shard_degree=1"};
  }
}

BlindResult slow_rank(uint64_t seed, uint64_t kind, double slower, double period, double seconds) {
  Dice dice(seed, kind);
  const int rank = dice.below(2);
  const BlindSetup setup{.options = data_layout(dice)};
  const double calm = dice.between(0.5, max_calm);
  return disturbed(
      setup, calm, rank,
      fmt::format("rank {} is {:.0f} % slower after {:.1f} s", rank, 100 * slower, calm),
      [&](BlindRun& run) -> std::function<void()> {
        return DutyCycle(run.process_of(rank), slower, period);
      },
      seconds);
}

BlindResult slow_rank_20(uint64_t seed) { return slow_rank(seed, 1, 0.2, 0.03, troubled); }
BlindResult slow_rank_5(uint64_t seed) { return slow_rank(seed, 2, 0.05, 0.05, 2 * troubled); }

BlindResult slow_link(uint64_t seed) {
  Dice dice(seed, 3);
  const double seconds = dice.between(2e-3, 6e-3);
  const double calm = dice.between(min_calm, max_calm) + 3;  // it is compared with the past
  const BlindSetup setup{.options = data_layout(dice)};
  return disturbed(
      setup, calm, -1,
      fmt::format("every message takes {:.1f} ms longer after {:.1f} s", 1e3 * seconds, calm),
      [&](BlindRun& run) -> std::function<void()> {
        run.machine().send_seconds = seconds;
        return {};
      });
}

BlindResult stage_imbalance(uint64_t seed) {
  Dice dice(seed, 4);
  const int layers = 6 + dice.below(3), first = dice.below(2) == 0 ? 1 : layers - 1;
  BlindSetup setup{.layers = layers};
  // Layers are embedding, blocks and head; the first stage has the embedding and `first` blocks.
  setup.options = {"--parallelism.pipeline_parallel_degree=2", "--training.global_batch_size=8",
                   "--training.local_batch_size=2",
                   fmt::format("--parallelism.pipeline_parallel_first_layers=0,{}", first + 1)};
  BlindRun run(setup);
  if (!run.start()) return failed(run);
  run.run_for(8);
  run.stop();
  return result_of(run, -1, fmt::format("{} of {} blocks are on stage 0", first, layers));
}

BlindResult data_starvation(uint64_t seed) {
  Dice dice(seed, 5);
  const double seconds = dice.between(30e-3, 80e-3), calm = dice.between(0.5, max_calm);
  return disturbed(
      {}, calm, -1,
      fmt::format("reading a page of data takes {:.0f} ms after {:.1f} s", 1e3 * seconds, calm),
      [&](BlindRun& run) -> std::function<void()> {
        run.machine().page_seconds = seconds;
        return {};
      });
}

BlindResult host_pauses(uint64_t seed) {
  Dice dice(seed, 6);
  const double calm = dice.between(0.5, max_calm), period = dice.between(0.7, 1.5);
  const double pause = dice.between(0.15, 0.4);
  return disturbed(
      {}, calm, -1,
      fmt::format("all processes pause for {:.0f} ms every {:.1f} s", 1e3 * pause, period),
      [=](BlindRun& run) -> std::function<void()> {
        return [=, &run] {
          run.signal_all(SIGSTOP);
          sleep_seconds(pause);
          run.signal_all(SIGCONT);
          sleep_seconds(period);
        };
      });
}

BlindResult throttled_clock(uint64_t seed) {
  Dice dice(seed, 7);
  const int rank = dice.below(2);
  const double share = dice.between(0.5, 0.85), calm = dice.between(0.5, max_calm);
  const int reasons[] = {0x4, 0x8, 0x20, 0x40};
  const int reason = reasons[dice.below(4)];
  BlindSetup setup{.options = {"--metrics.hardware=on"}};
  setup.environment = {fmt::format("LD_LIBRARY_PATH={}", TRIREME_NVML_FOLDER),
                       "TRIREME_NVML_STUB=nvml.txt"};
  // A rank whose clock is lower also computes more slowly.
  return disturbed(
      setup, calm, rank,
      fmt::format("the clock of rank {} is {:.0f} % of its maximum", rank, 100 * share),
      [&](BlindRun& run) -> std::function<void()> {
        std::ofstream(run.folder() / "nvml.txt")
            << fmt::format("{} clock {:.0f}\n{} reasons {}\n", rank, 1980 * share, rank, reason);
        return DutyCycle(run.process_of(rank), 1 / share - 1, 0.03);
      });
}

BlindResult needless_recompute(uint64_t seed) {
  Dice dice(seed, 8);
  BlindSetup setup;
  setup.options = data_layout(dice);
  setup.options.emplace_back(dice.below(2) == 0 ? "--activation_checkpoint.mode=full"
                                                : "--activation_checkpoint.mode=selective");
  BlindRun run(setup);
  if (!run.start()) return failed(run);
  run.run_for(4);
  run.stop();
  return result_of(run, -1, setup.options.back());
}

// Returns the bytes that the ranks of a node need, by a run without limits.
double needed_bytes(const BlindSetup& setup) {
  BlindRun run(setup);
  if (!run.start()) return 0;
  run.run_for(0.5);
  run.stop();
  std::ifstream in(run.folder() / "run/prediction.json");
  const base::Json prediction = base::Json::parse(in, nullptr, false);
  return setup.ranks * prediction.at("memory").at("total_bytes").get<double>();
}

BlindResult memory_near_limit(uint64_t seed) {
  Dice dice(seed, 9);
  BlindSetup setup{.options = data_layout(dice)};
  const double needed = needed_bytes(setup), share = dice.between(0.96, 0.99);
  setup.environment = {"TRIREME_SHIM_MEMORY=meminfo"};
  BlindRun run(setup);
  const auto kilobytes = static_cast<int64_t>(needed / share / 1024);
  std::ofstream(run.folder() / "meminfo") << fmt::format(
      "MemTotal: {} kB\nMemFree: {} kB\nMemAvailable: {} kB\n", kilobytes, kilobytes, kilobytes);
  if (!run.start()) return failed(run);
  run.run_for(4);
  run.stop();
  BlindResult result =
      result_of(run, -1, fmt::format("{:.1f} % of the memory are needed", 100 * share));
  result.planted_rank = result.rank;  // all ranks need the same
  return result;
}

BlindResult dead_rank(uint64_t seed) {
  Dice dice(seed, 10);
  const int rank = dice.below(2);
  const double calm = dice.between(0.2, max_calm);
  BlindRun run({.options = data_layout(dice)});
  if (!run.start()) return failed(run);
  run.run_for(calm);
  run.signal(rank, SIGKILL);
  run.wait();
  return result_of(run, rank, fmt::format("rank {} is killed after {:.1f} s", rank, calm));
}

BlindResult slow_save(uint64_t seed) {
  Dice dice(seed, 11);
  const double seconds = dice.between(0.3, 1.0), calm = dice.between(0.5, max_calm);
  BlindSetup setup{.options = data_layout(dice)};
  setup.options.insert(setup.options.end(),
                       {"--checkpoint.enable=true", "--checkpoint.interval=40"});
  return disturbed(setup, calm, -1,
                   fmt::format("fsync takes {:.2f} s after {:.1f} s", seconds, calm),
                   [&](BlindRun& run) -> std::function<void()> {
                     run.machine().sync_seconds = seconds;
                     return {};
                   });
}

// Measures this machine once.
const std::string& machine_text() {
  static const std::string text = [] {
    const Scratch scratch;
    const Outcome outcome = trireme(
        scratch, {"calibrate", "--device", "cpu", "--threads", "1", "--quick", "--out", "m.toml"},
        {.deadline_seconds = 300});
    return outcome.exit_code == 0 ? scratch.read("m.toml") : std::string();
  }();
  return text;
}

BlindResult stale_machine_file(uint64_t seed) {
  Dice dice(seed, 12);
  const double factor = dice.below(2) == 0 ? dice.between(0.35, 0.6) : dice.between(1.7, 2.8);
  std::string text;
  for (std::string line : [] {
         std::vector<std::string> lines;
         std::istringstream in(machine_text());
         for (std::string one; std::getline(in, one);) lines.push_back(one);
         return lines;
       }()) {
    for (const char* key : {"fp32_tflops", "bf16_tflops", "gigabytes_per_second"}) {
      if (!line.starts_with(std::string(key) + " = ")) continue;
      const double value = std::stod(line.substr(line.find('=') + 1));
      line = fmt::format("{} = {:.6g}", key, factor * value);
    }
    text += line + "\n";
  }
  // One rank: calibrate measures collectives of threads, not those of processes.
  BlindSetup setup{.ranks = 1};
  setup.options.emplace_back("--system.machine=stale.toml");
  BlindRun run(setup);
  std::ofstream(run.folder() / "stale.toml") << text;
  if (!run.start()) return failed(run);
  run.run_for(8);
  run.stop();
  return result_of(run, -1, fmt::format("the rates of the machine file are x {:.2f}", factor));
}

// ---- not on the list
// Processes that use all processors until they are destroyed.
class BusyProcesses {
 public:
  explicit BusyProcesses(int count) {
    for (int i = 0; i < count; ++i) {
      const pid_t process = ::fork();
      if (process == 0) {
        volatile uint64_t sum = 0;
        while (true) sum = sum + 1;
      }
      processes_.push_back(process);
    }
  }
  ~BusyProcesses() {
    for (const pid_t process : processes_) {
      ::kill(process, SIGKILL);
      ::waitpid(process, nullptr, 0);
    }
  }
  BusyProcesses(const BusyProcesses&) = delete;
  BusyProcesses& operator=(const BusyProcesses&) = delete;

 private:
  std::vector<pid_t> processes_;
};

BlindResult busy_machine(uint64_t seed) {
  Dice dice(seed, 13);
  BlindRun run({.options = data_layout(dice)});
  if (!run.start()) return failed(run);
  run.run_for(dice.between(min_calm, max_calm));
  {
    const BusyProcesses busy(4);
    run.run_for(troubled);
    run.stop();
  }
  return result_of(run, -1, "four other processes compute");
}

BlindResult slow_validation(uint64_t seed) {
  Dice dice(seed, 14);
  BlindSetup setup;
  setup.options = {"--validation.enable=true", "--validation.split=0.2",
                   fmt::format("--validation.freq={}", 20 + dice.below(40)),
                   fmt::format("--validation.samples={}", 40 + dice.below(80))};
  BlindRun run(setup);
  if (!run.start()) return failed(run);
  run.run_for(12);
  run.stop();
  return result_of(run, -1, "validations are long and frequent");
}

BlindResult clock_jump(uint64_t seed) {
  Dice dice(seed, 15);
  const double jump = dice.below(2) == 0 ? 3600 : -3600;
  return disturbed({}, dice.between(min_calm, max_calm), -1, "the wall clock jumps by an hour",
                   [&](BlindRun& run) -> std::function<void()> {
                     run.machine().clock_seconds = jump;
                     return {};
                   });
}

BlindResult tiny_steps(uint64_t seed) {
  Dice dice(seed, 16);
  BlindSetup setup{.layers = 1 + dice.below(2), .hidden = 16};
  setup.options = {"--training.seq_len=16", "--training.local_batch_size=1"};
  BlindRun run(setup);
  if (!run.start()) return failed(run);
  run.run_for(10);
  run.stop();
  return result_of(run, -1, "a step takes less than a millisecond");
}

BlindResult lost_file(uint64_t seed) {
  Dice dice(seed, 17);
  BlindRun run({.options = data_layout(dice)});
  if (!run.start()) return failed(run);
  run.run_for(8);
  run.stop();
  const char* names[] = {"ranks.bin",       "events.jsonl", "phases.jsonl",
                         "prediction.json", "owner.json",   "plan.json"};
  const char* lost = names[dice.below(6)];
  std::filesystem::remove(run.folder() / "run" / lost);
  return result_of(run, -1, fmt::format("{} was lost", lost));
}

BlindResult healthy(uint64_t seed) {
  Dice dice(seed, 18);
  BlindSetup setup;
  std::string layout;
  switch (seed % 5) {
    case 0:
      setup.ranks = 1;
      layout = "one rank";
      break;
    case 1:
      setup.options = {"--parallelism.pipeline_parallel_degree=2",
                       "--training.global_batch_size=8"};
      layout = "pp = 2";
      break;
    case 2:
      setup.options = {"--parallelism.tensor_parallel_degree=2"};
      layout = "tp = 2";
      break;
    case 3:
      setup.ranks = 4;
      layout = "4 ranks";
      break;
    default:
      setup.options = data_layout(dice);
      layout = "data parallel";
  }
  if (dice.below(3) == 0) {
    setup.options.insert(setup.options.end(),
                         {"--checkpoint.enable=true", "--checkpoint.interval=100"});
    layout += ", checkpoints";
  }
  if (dice.below(3) == 0) {
    setup.options.insert(setup.options.end(), {"--validation.enable=true", "--validation.freq=50"});
    layout += ", validation";
  }
  BlindRun run(setup);
  if (!run.start()) return failed(run);
  run.run_for(dice.between(4, 16));
  run.stop();
  return result_of(run, -1, layout);
}

const std::vector<Plant>& plants() {
  static const std::vector<Plant> all = {
      {"slow rank 20 %", "slow_rank", slow_rank_20, false},
      {"slow rank 5 %", "slow_rank", slow_rank_5, false},
      {"slow link", "slow_link", slow_link, false},
      {"stage imbalance", "stage_imbalance", stage_imbalance, false},
      {"data starvation", "data_starvation", data_starvation, false},
      {"host pauses", "host_pauses", host_pauses, false},
      {"throttled clock", "throttled_clock", throttled_clock, false},
      {"needless recompute", "needless_recompute", needless_recompute, true},
      {"memory near limit", "memory_near_limit", memory_near_limit, true},
      {"dead rank", "dead_rank", dead_rank, true},
      {"slow save", "slow_save", slow_save, false},
      {"stale machine file", "stale_machine_file", stale_machine_file, false},
      {"other: busy machine", "", busy_machine, false},
      {"other: slow validation", "", slow_validation, false},
      {"other: clock jump", "", clock_jump, false},
      {"other: tiny steps", "", tiny_steps, false},
      {"other: lost file", "", lost_file, false},
      {"healthy", "", healthy, false},
  };
  return all;
}

}  // namespace

std::span<const Plant> all_plants() { return plants(); }

bool is_wrong_rank(const BlindResult& result) {
  return result.rank >= 0 && result.rank != result.planted_rank;
}

bool is_right(const Plant& plant, const BlindResult& result) {
  if (!result.has_run || is_wrong_rank(result)) return false;
  if (plant.name == "healthy") return result.cause.empty();
  if (plant.cause.empty()) return result.cause.empty() || result.cause == "unknown";
  return result.cause == plant.cause;
}

}  // namespace trireme::tests
