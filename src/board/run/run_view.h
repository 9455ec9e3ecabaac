// SPDX-License-Identifier: Apache-2.0
// RunView: one run as the board knows it. One thread calls poll(), which reads what was appended to
// the files, and one analyse(), which computes the facts and takes longer. Any number of threads
// may hold a Reading meanwhile, which sees one state.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "board/run/event_list.h"
#include "board/run/run_facts.h"
#include "board/run/table_column.h"
#include "board/series/metric_store.h"

namespace trireme::board {

class RunView {
 public:
  // `shown_folder`: as the user spelled it. Reads nothing yet.
  RunView(std::filesystem::path folder, std::string shown_folder);

  // Returns whether anything has changed.
  bool poll(const MetricStore::Progress& progress = nullptr);
  // Computes the facts if files have changed or a running run is due. `now`: seconds since 1970.
  // Returns whether it did.
  bool analyse(double now, bool is_forced = false);

  // The cache of the metrics; see MetricStore. save_cache() does nothing if the cache has all that
  // was read.
  bool load_cache(const std::filesystem::path& cache);
  void save_cache(const std::filesystem::path& cache);

  class Reading {
   public:
    explicit Reading(const RunView& view) : view_(view), lock_(view.mutex_) {}
    const MetricStore& metrics() const { return view_.metrics_; }
    const EventList& events() const { return view_.events_; }
    const RunFacts& facts() const { return *view_.facts_; }
    int64_t revision() const { return view_.revision_; }
    // The value of a tag at its last point; none if there is no point.
    std::optional<double> last_value(std::string_view tag) const;

   private:
    const RunView& view_;
    std::shared_lock<std::shared_mutex> lock_;
  };

  // Returns the heat map of a column; none if no record has it. `table`: "ranks" or "layers".
  std::optional<HeatMap> heat(const std::string& table, const std::string& column,
                              const HeatQuery& query) const;

  const std::filesystem::path& folder() const { return folder_; }
  const std::string& shown_folder() const { return shown_folder_; }

  static constexpr const char* loss_tag = "loss_metrics/global_avg_loss";

 private:
  const std::filesystem::path folder_;
  const std::string shown_folder_;
  mutable std::shared_mutex mutex_;  // guards the fields up to revision_
  MetricStore metrics_;
  EventList events_;
  std::shared_ptr<const RunFacts> facts_;
  int64_t revision_ = 0;  // bytes that were read, so that equal folders have equal revisions

  std::atomic<bool> is_stale_ = true;  // files have changed since facts_ were computed
  // Only the polling thread uses these:
  int64_t table_bytes_ = 0;
  int64_t cached_bytes_ = 0;
  // Only the analysing thread uses these:
  double analysed_at_ = 0, analysis_seconds_ = 0;

  mutable std::mutex columns_mutex_;  // guards columns_
  struct Column {
    std::string table;
    std::unique_ptr<TableColumn> values;
  };
  mutable std::vector<Column> columns_;  // the last used first
};

}  // namespace trireme::board
