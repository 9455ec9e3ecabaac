// SPDX-License-Identifier: Apache-2.0
// RunView: one run as the board knows it. Its head (last values, a short curve) and its facts are
// always there; its points are read when they are asked for, because a board may show hundreds of
// runs of a million steps. One thread calls poll(), which reads what was appended to the files, and
// one analyse(), which computes the facts and takes longer. Any number of threads may hold a
// Reading or a Glance meanwhile, which sees one state.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <vector>

#include "board/run/event_list.h"
#include "board/run/run_facts.h"
#include "board/run/run_head.h"
#include "board/run/table_column.h"
#include "board/series/metric_store.h"

namespace trireme::board {

class RunView {
 public:
  // `shown_folder`: as the user spelled it. `key`: names the run in links; see Board. `cache`: file
  // for the points that were read; empty: none. Reads nothing yet.
  RunView(std::filesystem::path folder, std::string shown_folder, std::string key = "",
          std::filesystem::path cache = {});

  // Returns whether anything has changed.
  bool poll();
  // Computes the facts if files have changed or a running run is due. `now`: seconds since 1970.
  // Returns whether it did.
  bool analyse(double now, bool is_forced = false);

  // Reads all points of the run, from the cache as far as it has them. Any thread; does nothing if
  // they are there.
  void load(const MetricStore::Progress& progress = nullptr) const;
  bool is_loaded() const;
  // Forgets the points; they are read again when they are asked for.
  void unload();
  // When the points were last asked for, by obs::steady_seconds(); 0: never.
  double last_use() const { return last_use_; }
  // Returns whether the run is loaded and has no cache, or, at the end, one that lacks points.
  bool lacks_cache(bool is_end) const;
  void save_cache();  // throws IoError

  // What is known without the points of the run; never waits for them.
  class Glance {
   public:
    explicit Glance(const RunView& view) : view_(view), lock_(view.head_mutex_) {}
    const RunHead& head() const { return view_.head_; }
    const RunFacts& facts() const { return *view_.facts_; }
    bool is_analysed() const { return view_.is_analysed_; }
    int64_t revision() const { return view_.revision_; }
    // The step, time and attempt of the last lines.
    int64_t last_step() const { return std::max<int64_t>(0, head().last_step()); }
    double last_time() const { return std::max(head().last_time(), facts().last_time); }
    int64_t last_attempt() const { return head().last_attempt(); }
    // The value of a tag at its last point; none if there is no point.
    std::optional<double> last_value(std::string_view tag) const { return head().last_value(tag); }

   private:
    const RunView& view_;
    std::shared_lock<std::shared_mutex> lock_;
  };

  // The same with all points and events, which are read now if they were not before.
  class Reading {
   public:
    explicit Reading(const RunView& view) : view_(view), lock_(view.lock_loaded()), glance_(view) {}
    const MetricStore& metrics() const { return *view_.metrics_; }
    const EventList& events() const { return view_.events_; }
    const RunFacts& facts() const { return glance_.facts(); }
    const Glance& glance() const { return glance_; }
    int64_t revision() const { return glance_.revision(); }

   private:
    const RunView& view_;
    std::shared_lock<std::shared_mutex> lock_;
    Glance glance_;
  };

  // Returns the heat map of a column; none if no record has it. `table`: "ranks" or "layers".
  std::optional<HeatMap> heat(const std::string& table, const std::string& column,
                              const HeatQuery& query) const;

  const std::filesystem::path& folder() const { return folder_; }
  const std::string& shown_folder() const { return shown_folder_; }
  const std::string& key() const { return key_; }

  static constexpr const char* loss_tag = RunHead::loss_tag;

 private:
  std::shared_lock<std::shared_mutex> lock_loaded() const;

  const std::filesystem::path folder_;
  const std::string shown_folder_, key_;
  const std::filesystem::path cache_;

  // Lock order: load_mutex_, mutex_, head_mutex_.
  mutable std::mutex load_mutex_;                 // held while points are read
  mutable std::shared_mutex mutex_;               // guards the next three
  mutable std::unique_ptr<MetricStore> metrics_;  // null: not loaded
  mutable int64_t cached_bytes_ = 0;
  EventList events_;
  mutable std::shared_mutex head_mutex_;  // guards the fields up to revision_
  RunHead head_;
  std::shared_ptr<const RunFacts> facts_;
  bool is_analysed_ = false;
  int64_t revision_ = 0;  // bytes that were read, so that equal folders have equal revisions

  mutable std::atomic<double> last_use_ = 0;
  std::atomic<bool> is_stale_ = true;  // files have changed since facts_ were computed
  // Only the polling thread uses these:
  int64_t table_bytes_ = 0;
  int64_t polls_ = 0;
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
