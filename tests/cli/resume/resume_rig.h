// SPDX-License-Identifier: Apache-2.0
// Shared by tests of resumed runs: a small run on any layout, and the weights that it writes
// without interruption.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/cli/program.h"

namespace trireme::tests {

using Words = std::vector<std::string>;

// The batch and the order of sums of a start. A resumed run leaves these keys open: it takes the
// saved values on any layout.
inline const Words start_keys = {"--training.global_batch_size=24", "--parallelism.logical_dp=24"};

inline Words train_words(int steps, const Words& more) {
  Words words = {"train",
                 "tiny_run.toml",
                 "--training.steps=" + std::to_string(steps),
                 "--training.local_batch_size=1",
                 "--metrics.log_freq=10",
                 "--validation.enable=false"};
  const bool resumes = std::ranges::any_of(
      more, [](const std::string& word) { return word.starts_with("--resume"); });
  if (!resumes) words.insert(words.end(), start_keys.begin(), start_keys.end());
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

inline std::string weights_of(const Scratch& s, int steps, const Words& more) {
  const Outcome outcome = trireme(s, train_words(steps, more));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return s.has(final_weights) ? s.read(final_weights) : "";
}

// An uninterrupted run of one rank; its folder has a checkpoint of the last step.
struct Straight {
  explicit Straight(int steps) {
    write_tiny(scratch);
    weights = weights_of(
        scratch, steps, {"--checkpoint.interval=" + std::to_string(steps), "--metrics.log_freq=1"});
  }
  Scratch scratch;
  std::string weights;  // the file's bytes
};
inline const Straight& straight_run(int steps) {
  static std::map<int, std::unique_ptr<Straight>> known;
  std::unique_ptr<Straight>& run = known[steps];
  if (!run) run = std::make_unique<Straight>(steps);
  return *run;
}
inline const std::string& straight(int steps) { return straight_run(steps).weights; }

inline const std::string dp = "--parallelism.data_parallel_replicate_degree=";
inline const std::string zero = "--parallelism.data_parallel_shard_degree=";
inline const std::string stage = "--parallelism.zero_stage=";
inline const std::string pp = "--parallelism.pipeline_parallel_degree=";
inline const std::string schedule = "--parallelism.pipeline_parallel_schedule=";
inline const std::vector<Words> layouts = {
    {},
    {dp + "2"},
    {dp + "3"},
    {dp + "4"},
    {dp + "6"},
    {dp + "8"},
    {zero + "4", stage + "1"},
    {zero + "6", stage + "2"},
    {zero + "2", stage + "3"},
    {zero + "8", stage + "3"},
    {dp + "2", zero + "2", stage + "3"},
    {pp + "2"},
    {pp + "3", dp + "2"},
    {pp + "2", schedule + "interleaved", zero + "2", stage + "1"},
};

}  // namespace trireme::tests
