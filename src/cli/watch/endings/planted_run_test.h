// SPDX-License-Identifier: Apache-2.0
// For tests: runs that were never run, with the record that the log of a run writes of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "obs/run_owner.h"
#include "obs/sinks/jsonl_sink.h"
#include "train/record/run_log.h"
#include "train/report/train_summary.h"

namespace trireme::cli {

struct PlantedStep {
  double loss = 3;
  bool was_skipped = false;
  bool scale_falls = false;  // of fp16
};

// One attempt after the other in the folder of one run.
class PlantedRun {
 public:
  PlantedRun(const std::filesystem::path& folder, int64_t total_steps);
  ~PlantedRun();
  PlantedRun(const PlantedRun&) = delete;
  PlantedRun& operator=(const PlantedRun&) = delete;

  // ---- an attempt
  void start(int64_t resumed_from = -1);
  void steps(int64_t count, const std::function<PlantedStep(int64_t step)>& step);
  void ranks_report();  // times of four ranks, as if every step so far had been measured
  void save(const std::string& problem = "");
  void exports(const std::string& problem = "");
  void stop();  // was requested
  // A line that a launcher or the handler of a fatal signal adds, also after the end.
  void verdict(const std::string& text, int rank, const base::Json& data);
  void new_group();  // of ranks, from the last checkpoint on

  // ---- its end
  void end();  // of itself; sets exit_code
  void fail(const std::exception& error);
  void kill();
  void lose_data();  // the process names the file and exits

  const std::filesystem::path& folder() const { return folder_; }
  std::string name() const { return folder_.filename().string(); }
  int exit_code() const { return exit_code_; }  // of the last attempt; -1: it has none
  bool is_over() const { return log_ == nullptr; }

 private:
  void close();
  void forget_end();

  const std::filesystem::path folder_;
  const int64_t total_steps_;
  std::unique_ptr<obs::RunOwner> owner_;
  std::unique_ptr<train::RunLog> log_;
  std::unique_ptr<obs::JsonlSink> metrics_;
  train::TrainSummary summary_;
  std::string run_;
  int64_t step_ = 0, attempt_ = 0;
  int exit_code_ = -1;
};

}  // namespace trireme::cli
