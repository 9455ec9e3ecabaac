// SPDX-License-Identifier: Apache-2.0
#include "tests/launch/spin/spin_rig.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <regex>

#include "base/rng.h"
#include "obs/files/event_log.h"
#include "tests/launch/launch_rig.h"

namespace trireme::tests {
namespace {

// Far more than a verdict takes: a hang of the test becomes a failure.
constexpr double deadline_seconds = 110;

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

class SpinDice {
 public:
  explicit SpinDice(uint64_t seed) : seed_(seed) {}
  int64_t below(int64_t limit) {
    return static_cast<int64_t>(base::rng_below(seed_, next_++, static_cast<uint64_t>(limit)));
  }

 private:
  uint64_t seed_, next_ = 0;
};

Words layout_words(int ranks, SpinDice& dice) {
  const std::vector<Words> two = {{"--dp=2"}, {"--zero=2", "--stage=2"}, {"--zero=2", "--stage=3"}};
  const std::vector<Words> four = {
      {"--dp=4"}, {"--zero=4", "--stage=3"}, {"--dp=2", "--zero=2", "--stage=3"}};
  if (ranks == 1) return {};
  return (ranks == 2 ? two : four)[static_cast<size_t>(dice.below(3))];
}

// Returns the numbers of a line that `pattern` describes; empty: there is none.
std::vector<double> numbers_in(const std::string& text, const std::string& pattern) {
  std::smatch found;
  std::vector<double> numbers;
  if (!std::regex_search(text, found, std::regex(pattern))) return numbers;
  for (size_t i = 1; i < found.size(); ++i) numbers.push_back(std::stod(found[i]));
  return numbers;
}

}  // namespace

SpinResult spin_once(const SpinCase& of) {
  SpinDice dice(of.seed);
  const int64_t rank = dice.below(of.ranks), step = 40 + dice.below(40);
  const int64_t point = dice.below(1'000'000);
  Words words = layout_words(of.ranks, dice);
  words.insert(words.begin(), {"spin", fmt::format("--spin={}@{}:{}", rank, step, point)});
  if (of.is_nccl) {
    words.insert(words.end(), {"--nccl", "--fixed"});
  } else {
    words.emplace_back("--worker");
  }
  if (of.is_captured) words.emplace_back("--capture");
  words.insert(words.end(), {"--output", "all"});
  SpinResult result;
  result.text = fmt::format("{} ranks, seed {}: {}", of.ranks, of.seed, fmt::join(words, " "));

  const Scratch scratch;
  Running running(scratch.path(), launch_words(of.ranks, deadline_seconds, words),
                  {.deadline_seconds = deadline_seconds});
  const bool has_verdict = running.wait_for([&] { return !first_error(running.err()).empty(); });
  const double named_at = wall_seconds();
  const Outcome outcome = running.wait();
  result.text += "\n  " + first_error(outcome.err);
  const std::vector<double> spins = numbers_in(
      outcome.out,
      fmt::format("rank {} spins since ([0-9.]+) at point ([0-9]+) of ([0-9]+); steps take "
                  "([0-9.]+) s, 99 % of them at most ([0-9.]+) s",
                  rank));
  EXPECT_TRUE(has_verdict && !spins.empty()) << result.text << "\n-- stdout\n"
                                             << outcome.out << "\n-- stderr\n"
                                             << outcome.err;
  if (!has_verdict || spins.empty()) return result;
  EXPECT_EQ(outcome.exit_code, 1) << result.text;
  result.seconds = named_at - spins[0];
  result.bar_seconds = std::max(3.0, 6 * spins[4]);
  result.is_named =
      std::regex_search(first_error(outcome.err),
                        std::regex(fmt::format("^rank {} \\(.*\\) hangs in phase 'step': ", rank)));
  // Further ranks that hang would be listed at the end.
  result.is_named = result.is_named && !first_error(outcome.err).ends_with(" hang");
  result.text += fmt::format(
      "\n  named after {:.2f} s, bar {:.2f} s; point {} of {}, steps of "
      "{:.4f} s",
      result.seconds, result.bar_seconds, spins[1], spins[2], spins[3]);
  return result;
}

void print_summary(const std::string& what, const std::vector<SpinResult>& results) {
  std::vector<double> seconds;
  for (const SpinResult& result : results) seconds.push_back(result.seconds);
  std::ranges::sort(seconds);
  fmt::print("{}: {} of {} named; {:.2f} s in the median, at most {:.2f} s; {} above the bar\n",
             what, std::ranges::count(results, true, &SpinResult::is_named), results.size(),
             seconds.at(seconds.size() / 2), seconds.back(),
             std::ranges::count_if(results, [](const SpinResult& result) {
               return result.seconds > result.bar_seconds;
             }));
  std::fflush(stdout);
}

std::vector<std::string> write_lost_rank_run(const Scratch& scratch, int ranks, bool is_gpu,
                                             int steps) {
  write_tiny(scratch);
  scratch.write("tiny.toml",
                "family = \"llama\"\nlayers = 2\nhidden = 128\nheads = 2\nffn = 256\n"
                "vocab = 256\nmax_seq = 64\n");
  return {"tiny_run.toml",
          fmt::format("--training.steps={}", steps),
          "--training.seq_len=64",
          "--training.local_batch_size=1",
          fmt::format("--training.global_batch_size={}", ranks),
          fmt::format("--training.dtype={}", is_gpu ? "bf16" : "fp32"),
          fmt::format("--parallelism.logical_dp={}", ranks),
          fmt::format("--parallelism.data_parallel_shard_degree={}", ranks),
          fmt::format("--system.device={}", is_gpu ? "cuda" : "cpu")};
}

void expect_spin_is_survived(int ranks, bool is_gpu, int steps) {
  const Scratch scratch;
  const Words run = write_lost_rank_run(scratch, ranks, is_gpu, steps);
  const auto joined = [&run](Words words, const std::string& folder) {
    words.insert(words.end(), run.begin(), run.end());
    words.push_back("--job.dump_folder=" + folder);
    return words;
  };
  const Outcome quiet = trireme(scratch, joined({"train"}, "quiet"));
  ASSERT_EQ(quiet.exit_code, 0) << quiet.err;
  const std::string spin = fmt::format("TRIREME_SPIN=1@4:{}", scratch.at("spun").string());
  const Outcome outcome =
      Running(scratch.path(), joined({"/usr/bin/env", spin, TRIREME_SPINNING_PROGRAM, "launch",
                                      "-n", std::to_string(ranks)},
                                     "run"))
          .wait();
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(std::regex_search(first_error(outcome.err),
                                std::regex("^rank 1 \\(.*\\) hangs in phase 'step': ")))
      << outcome.err;
  EXPECT_NE(outcome.err.find("epoch 1: rank 1 of this node replaced"), std::string::npos)
      << outcome.err;
  EXPECT_EQ(outcome.err.find("epoch 2: "), std::string::npos) << outcome.err;
  EXPECT_TRUE(scratch.read(final_weights) == scratch.read("quiet/weights/final/model.safetensors"));
  for (const obs::Event& event : obs::read_events(scratch.at("run"))) {
    if (event.kind == obs::EventKind::recovered) fmt::print("{}\n", event.text);
  }
}

}  // namespace trireme::tests
