// SPDX-License-Identifier: Apache-2.0
// ranks.bin of real runs: one rank, several ranks as threads and as processes, resumed runs, and
// hardware counters of a library that stands in for the driver's.
#include <gtest/gtest.h>

#include <cmath>

#include "obs/files/rank_columns.h"
#include "obs/files/table_file.h"
#include "tests/cli/program.h"

namespace trireme::tests {
namespace {

using obs::RankColumn;
using Words = std::vector<std::string>;

struct Table {
  obs::TableShape shape;  // of the last attempt
  std::vector<obs::TableRecord> records;

  float at(size_t record, size_t rank, RankColumn column) const {
    return records[record].values[rank * obs::rank_columns + static_cast<size_t>(column)];
  }
};

Table read_ranks(const Scratch& scratch) {
  Table table;
  obs::TableReader(scratch.at("run/ranks.bin"))
      .poll([&](const obs::TableShape& shape, const obs::TableRecord& record) {
        table.shape = shape;
        table.records.push_back(record);
      });
  return table;
}

// Every moment of a step is in one class.
void expect_closed(const Table& table) {
  constexpr RankColumn parts[] = {
      RankColumn::compute_seconds, RankColumn::gap_seconds, RankColumn::data_seconds,
      RankColumn::save_seconds,    RankColumn::wait_tp,     RankColumn::wait_cp,
      RankColumn::wait_ep,         RankColumn::wait_data,   RankColumn::wait_pp,
      RankColumn::wait_closing,    RankColumn::wait_input};
  for (size_t r = 0; r < table.records.size(); ++r) {
    for (size_t rank = 0; rank < table.shape.rows.size(); ++rank) {
      double sum = 0;
      for (const RankColumn part : parts) {
        EXPECT_GE(table.at(r, rank, part), 0) << name_of(part);
        sum += static_cast<double>(table.at(r, rank, part));
      }
      const auto step = static_cast<double>(table.at(r, rank, RankColumn::step_seconds));
      EXPECT_GT(step, 0);
      EXPECT_NEAR(sum, step, 1e-5 * step);  // sums of floats
      EXPECT_GE(table.at(r, rank, RankColumn::max_step_seconds), 0.99F * static_cast<float>(step));
      EXPECT_GT(table.at(r, rank, RankColumn::memory_bytes), 0);
      EXPECT_GT(table.at(r, rank, RankColumn::host_bytes), 0);
    }
  }
}

Words train_words(const Words& more) {
  Words words = {"train", "tiny_run.toml", "--training.steps=13", "--metrics.ranks_freq=5",
                 "--training.global_batch_size=4"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(RanksFileTest, one_rank_reports_its_steps) {
  const Scratch s;
  write_tiny(s);
  const Outcome outcome = trireme(s, train_words({}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Table table = read_ranks(s);
  ASSERT_EQ(table.records.size(), 3U);
  const int64_t steps[] = {5, 10, 13};
  const float counted[] = {4, 5, 3};  // the first step warms up
  for (size_t r = 0; r < 3; ++r) {
    EXPECT_EQ(table.records[r].step, steps[r]);
    EXPECT_EQ(table.records[r].attempt, 1);
    EXPECT_EQ(table.at(r, 0, RankColumn::steps), counted[r]);
    EXPECT_EQ(table.at(r, 0, RankColumn::work), 1);
    EXPECT_EQ(table.at(r, 0, RankColumn::late_closing), 0);
    EXPECT_TRUE(std::isnan(table.at(r, 0, RankColumn::clock_hz)));  // a CPU
  }
  expect_closed(table);
  const base::Json about = base::Json::parse(table.shape.about);
  EXPECT_EQ(about["devices"][0], "CPU, 1 thread");
  EXPECT_FALSE(about["nodes"][0].get<std::string>().empty());
}

TEST(RanksFileTest, ranks_report_waits_and_lateness) {
  const Scratch s;
  write_tiny(s);
  const Words words = train_words(
      {"--parallelism.data_parallel_shard_degree=2", "--parallelism.tensor_parallel_degree=2"});
  const Outcome outcome = trireme(s, words);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Table table = read_ranks(s);
  ASSERT_EQ(table.shape.rows.size(), 4U);
  ASSERT_EQ(table.records.size(), 3U);
  expect_closed(table);
  const base::Json about = base::Json::parse(table.shape.about);
  EXPECT_EQ(about["coords"][1]["tp"], 1);
  EXPECT_EQ(about["coords"][2]["zero"], 1);
  for (size_t r = 0; r < table.records.size(); ++r) {
    float min_late = 1;
    for (size_t rank = 0; rank < 4; ++rank) {
      for (const RankColumn wait :
           {RankColumn::wait_tp, RankColumn::wait_data, RankColumn::wait_closing}) {
        EXPECT_GT(table.at(r, rank, wait), 0) << name_of(wait);
      }
      EXPECT_EQ(table.at(r, rank, RankColumn::wait_pp), 0);
      EXPECT_GE(table.at(r, rank, RankColumn::late_tp), 0);
      min_late = std::min(min_late, table.at(r, rank, RankColumn::late_closing));
    }
    EXPECT_EQ(min_late, 0);  // the rank that waits longest is not late
  }
}

TEST(RanksFileTest, resumed_run_appends_and_overwritten_run_starts_again) {
  const Scratch s;
  write_tiny(s);
  ASSERT_EQ(trireme(s, train_words({"--training.steps=10", "--checkpoint.interval=10",
                                    "--lr_scheduler.total_steps=20"}))
                .exit_code,
            0);
  ASSERT_EQ(read_ranks(s).records.size(), 2U);
  const Outcome resumed =
      trireme(s, train_words({"--training.steps=20", "--resume", "auto", "--checkpoint.interval=10",
                              "--lr_scheduler.total_steps=20"}));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  const Table table = read_ranks(s);
  ASSERT_EQ(table.records.size(), 4U);
  EXPECT_EQ(table.records[1].step, 10);
  EXPECT_EQ(table.records[2].step, 15);
  EXPECT_EQ(table.records[3].attempt, 2);
  expect_closed(table);
  // The last step alone is no record, unless there is no other.
  ASSERT_EQ(trireme(s, train_words({"--training.steps=6", "--overwrite"})).exit_code, 0);
  EXPECT_EQ(read_ranks(s).records.size(), 1U);
  ASSERT_EQ(trireme(s, train_words({"--training.steps=2", "--overwrite"})).exit_code, 0);
  EXPECT_EQ(read_ranks(s).records.size(), 1U);
}

TEST(RanksFileTest, counters_of_each_rank_come_from_its_device) {
  const Scratch s;
  write_tiny(s);
  s.write("counters", "* clock 1500\n1 clock 900\n1 reasons 64\n");
  Words command = {"/usr/bin/env", "LD_LIBRARY_PATH=" TRIREME_NVML_STUB_FOLDER,
                   "TRIREME_NVML_STUB=counters"};
  const Words train = trireme_command(
      train_words({"--metrics.hardware=on", "--parallelism.data_parallel_replicate_degree=2"}));
  command.insert(command.end(), train.begin(), train.end());
  const Outcome outcome = Running(s.path(), command).wait();
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Table table = read_ranks(s);
  ASSERT_FALSE(table.records.empty());
  EXPECT_EQ(table.at(0, 0, RankColumn::clock_hz), 1500e6F);
  EXPECT_EQ(table.at(0, 1, RankColumn::clock_hz), 900e6F);
  EXPECT_EQ(table.at(0, 1, RankColumn::throttle_reasons), 64);
  EXPECT_EQ(table.at(0, 0, RankColumn::max_clock_hz), 1980e6F);
}

// A run does not need the library.
TEST(RanksFileTest, run_without_the_library_reports_that_counters_are_unknown) {
  const Scratch s;
  write_tiny(s);
  Words command = {"/usr/bin/env", "LD_LIBRARY_PATH=" TRIREME_NVML_STUB_FOLDER,
                   "TRIREME_NVML_STUB=counters"};
  s.write("counters", "* init 9\n");
  const Words train = trireme_command(train_words({"--metrics.hardware=on"}));
  command.insert(command.end(), train.begin(), train.end());
  const Outcome outcome = Running(s.path(), command).wait();
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE((outcome.out + outcome.err).find("counters are unknown"), std::string::npos)
      << outcome.out;
  const Table table = read_ranks(s);
  ASSERT_FALSE(table.records.empty());
  EXPECT_TRUE(std::isnan(table.at(0, 0, RankColumn::clock_hz)));
}

}  // namespace
}  // namespace trireme::tests
