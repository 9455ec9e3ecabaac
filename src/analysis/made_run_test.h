// SPDX-License-Identifier: Apache-2.0
// For tests: records of runs that were never run, with noise and planted trouble.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "analysis/run_record.h"
#include "obs/files/rank_columns.h"

namespace trireme::analysis {

struct MadeRun {
  int stages = 1, ranks_per_stage = 4;
  int records = 40;
  int steps_per_record = 20;
  double compute = 0.1;    // seconds of a step
  double transfer = 0.01;  // of data parallel collectives
  double gap = 0.001;
  double noise = 0.03;                      // of a record's compute, relative
  double hit_share = 0.02, hit_size = 0.5;  // steps of a rank that something makes longer
  uint64_t seed = 1;
  std::string device = "GPU";
  // Changes the parts of a rank in a record before ranks wait for each other.
  std::function<void(int record, int rank, obs::RankSample&)> plant;
  // Added to the transfers of a record.
  std::function<double(int record)> slower_transfer;
};

// Ranks wait for the slowest at the end of every step.
inline RunRecord made_run(const MadeRun& made) {
  using obs::RankColumn;
  std::mt19937_64 random(made.seed);
  std::normal_distribution<double> normal;
  std::binomial_distribution<int> hits(made.steps_per_record, made.hit_share);
  const int ranks = made.stages * made.ranks_per_stage;
  RunRecord run;
  run.name = "made";
  run.state = RunState::running;
  run.attempt = 1;
  run.total_steps = 1000000;
  run.ranks_shape.table = "ranks";
  base::Json about = {{"nodes", base::Json::array()},
                      {"devices", base::Json::array()},
                      {"coords", base::Json::array()}};
  for (int rank = 0; rank < ranks; ++rank) {
    run.ranks_shape.rows.push_back(fmt::format("rank {}", rank));
    about["nodes"].push_back(fmt::format("node{}", rank / 4));
    about["devices"].push_back(made.device);
    about["coords"].push_back({{"pp", rank / made.ranks_per_stage},
                               {"dp", rank % made.ranks_per_stage},
                               {"zero", 0},
                               {"cp", 0},
                               {"tp", 0}});
  }
  run.ranks_shape.about = about.dump();
  for (size_t i = 0; i < obs::rank_columns; ++i) {
    run.ranks_shape.columns.emplace_back(name_of(static_cast<RankColumn>(i)));
  }
  const double per_record = 1 / std::sqrt(made.steps_per_record);
  for (int record = 0; record < made.records; ++record) {
    std::vector<obs::RankSample> samples(static_cast<size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      obs::RankSample& sample = samples[static_cast<size_t>(rank)];
      for (size_t i = static_cast<size_t>(RankColumn::clock_hz); i < obs::rank_columns; ++i) {
        sample.values[i] = std::numeric_limits<float>::quiet_NaN();
      }
      const double share = made.hit_size * hits(random) / made.steps_per_record;
      const double compute = made.compute * (1 + made.noise * per_record * normal(random) + share);
      sample[RankColumn::steps] = static_cast<float>(made.steps_per_record);
      sample[RankColumn::compute_seconds] = static_cast<float>(record == 0 ? 5 * compute : compute);
      sample[RankColumn::gap_seconds] = static_cast<float>(made.gap);
      sample[RankColumn::work] = 1;
      sample[RankColumn::cpu_share] = 0.97F;
      sample[RankColumn::memory_bytes] = 5e8F;
      sample[RankColumn::memory_limit_bytes] = 1e9F;
      sample[RankColumn::host_bytes] = 2e9F;
      if (made.plant) made.plant(record, rank, sample);
    }
    const double transfer =
        made.transfer + (made.slower_transfer ? made.slower_transfer(record) : 0);
    double longest = 0;
    const auto own = [](const obs::RankSample& sample) {
      double sum = 0;
      for (const RankColumn column : {RankColumn::compute_seconds, RankColumn::gap_seconds,
                                      RankColumn::data_seconds, RankColumn::save_seconds}) {
        sum += static_cast<double>(sample[column]);
      }
      return sum;
    };
    for (const obs::RankSample& sample : samples) longest = std::max(longest, own(sample));
    obs::TableRecord row{
        .step = int64_t{record + 1} * made.steps_per_record, .attempt = 1, .time = 1e9 + record};
    for (obs::RankSample& sample : samples) {
      const double wait = longest - own(sample) + transfer;
      sample[RankColumn::wait_data] = static_cast<float>(wait);
      sample[RankColumn::late_data] = static_cast<float>(longest - own(sample));
      sample[RankColumn::step_seconds] = static_cast<float>(longest + transfer);
      sample[RankColumn::max_step_seconds] =
          std::max(sample[RankColumn::max_step_seconds], static_cast<float>(1.2 * longest));
      row.values.insert(row.values.end(), sample.values.begin(), sample.values.end());
    }
    run.last_step = row.step;
    run.ranks.push_back(std::move(row));
  }
  return run;
}

}  // namespace trireme::analysis
