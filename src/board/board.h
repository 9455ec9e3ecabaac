// SPDX-License-Identifier: Apache-2.0
// Board: the answers to all requests about a list of runs, which grows when a folder gets a new
// run. It reads their folders and changes nothing in them. handle() may be called by any number of
// threads, find_runs(), poll_files() and save_caches() by one and analyse() by one.
//
// In links a run is named by its key, which does not depend on the other runs that a board shows as
// long as the names of their folders differ: the last part of its folder, or the whole folder if
// another run has the same last part.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
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
  std::vector<std::string> folders;         // where find_runs() looks; see runs_of()
  bool only_running = false;                // find_runs() adds a run only while it is going on
  size_t max_runs = 2000;
  // Points of runs are forgotten, those asked for longest ago first, if the metrics files of all
  // runs that are loaded are larger together. The 8 runs asked for last are always kept.
  int64_t max_loaded_bytes = int64_t{2} << 30;
  std::filesystem::path cache_folder;    // for what was computed from the runs; empty: none
  std::filesystem::path assets_folder;   // pages to serve instead of the embedded ones; or empty
  PlanHandler plan;                      // none: the board has no planner
  obs::Clock clock = obs::wall_seconds;  // seconds since 1970
};

class Board {
 public:
  // Throws IoError if there are more runs than `max_runs`.
  explicit Board(BoardOptions options);

  // Lists the folders again and adds the runs that are new, after the others: a run keeps its
  // number as long as the board lives, also when its folder is removed.
  void find_runs();

  // Reads what the runs have written since the last call: of runs whose points were asked for all
  // of it, of others what RunHead needs.
  void poll_files();
  // Computes the facts of runs that have changed, which takes seconds for runs of a million steps:
  // first of those that are looked at, then of those that go on, then of short ones. Returns after
  // about this time; the next call continues.
  void analyse(double seconds = std::numeric_limits<double>::infinity());
  // The same for the first runs, as far as their metrics have this many bytes together; runs with
  // more are passed over.
  void analyse_first(int64_t bytes);
  void poll() {
    poll_files();
    analyse();
  }
  // Reads the points of all runs. `progress` receives the run's folder, the bytes read and the
  // bytes of its metrics.
  using Progress = std::function<void(const std::string& run, int64_t bytes, int64_t of)>;
  void load_all(const Progress& progress = nullptr);
  // Writes the caches of loaded runs. `is_end`: also of those that had one and have grown.
  void save_caches(bool is_end);

  // Answers a request that the Gate has let pass.
  Response handle(const Request& request) const;

  // Ends every stream of updates.
  void stop();

  // The runs by their number, as of now. They live as long as the board.
  std::vector<RunView*> runs() const;
  // Runs that find_runs() found and did not add, because there are too many.
  size_t unshown_runs() const;
  double now() const { return options_.clock(); }

 private:
  void add_run(const std::filesystem::path& folder, bool is_name_unique);
  void unload_unused();
  Response answer(const Request& request) const;
  Response run_response(const RunView& run, size_t id, std::string_view what,
                        const Request& request) const;
  void announce();  // a change, to the streams of updates
  Response asset(const Request& request) const;
  Response updates() const;
  std::filesystem::path cache_of(const std::filesystem::path& folder) const;

  BoardOptions options_;
  mutable std::mutex runs_mutex_;               // guards the next two
  std::vector<std::unique_ptr<RunView>> runs_;  // none is ever removed
  size_t unshown_runs_ = 0;
  std::set<std::filesystem::path> known_;  // folders; only the polling thread uses it
  std::set<std::string> names_;            // last parts of folders; likewise
  mutable std::mutex mutex_;               // guards changes_ and is_stopped_
  mutable std::condition_variable changed_;
  int64_t changes_ = 0;
  bool is_stopped_ = false;
};

// Returns the runs that the user named: folders with a run, and runs directly in other folders.
// Throws IoError if a folder does not exist or has no run.
std::vector<std::filesystem::path> runs_of(const std::vector<std::string>& folders);
// Returns the same without an error, and without folders that are known: a folder that is gone or
// has no run adds none.
std::vector<std::filesystem::path> runs_now(const std::vector<std::string>& folders,
                                            const std::set<std::filesystem::path>& known = {});

}  // namespace trireme::board
