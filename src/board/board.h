// SPDX-License-Identifier: Apache-2.0
// Board: the answers to all requests about a list of runs. It reads their folders and changes
// nothing in them. handle() may be called by any number of threads, poll_files() by one and
// analyse() by one.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "board/request.h"
#include "board/run/run_view.h"
#include "obs/clock.h"

namespace trireme::board {

// Answers requests below /api/plan; none if the path is unknown.
using PlanHandler = std::function<std::optional<Response>(const Request&)>;

struct BoardOptions {
  std::vector<std::filesystem::path> runs;  // folders, each with a run
  std::filesystem::path cache_folder;       // for what was computed from the runs; empty: none
  std::filesystem::path assets_folder;      // pages to serve instead of the embedded ones; or empty
  PlanHandler plan;                         // none: the board has no planner
  obs::Clock clock = obs::wall_seconds;     // seconds since 1970
};

class Board {
 public:
  explicit Board(BoardOptions options);

  // Reads what the runs have written since the last call. `progress` receives the run's folder, the
  // bytes read and the bytes of its metrics.
  using Progress = std::function<void(const std::string& run, int64_t bytes, int64_t of)>;
  void poll_files(const Progress& progress = nullptr);
  // Computes the facts of runs that have changed, which takes seconds for runs of a million steps.
  void analyse();
  void poll(const Progress& progress = nullptr) {
    poll_files(progress);
    analyse();
  }
  void save_caches();

  // Answers a request that the Gate has let pass.
  Response handle(const Request& request) const;

  // Ends every stream of updates.
  void stop();

  const std::vector<std::unique_ptr<RunView>>& runs() const { return runs_; }
  double now() const { return options_.clock(); }

 private:
  Response run_response(const RunView& run, size_t id, std::string_view what,
                        const Request& request) const;
  void announce();  // a change, to the streams of updates
  Response asset(const Request& request) const;
  Response updates() const;
  std::filesystem::path cache_of(const RunView& run) const;

  BoardOptions options_;
  std::vector<std::unique_ptr<RunView>> runs_;
  mutable std::mutex mutex_;  // guards changes_ and is_stopped_
  mutable std::condition_variable changed_;
  int64_t changes_ = 0;
  bool is_stopped_ = false;
};

// Returns the runs that the user named: folders with a run, and runs directly in other folders.
// Throws IoError if a folder does not exist or has no run.
std::vector<std::filesystem::path> runs_of(const std::vector<std::string>& folders);

}  // namespace trireme::board
