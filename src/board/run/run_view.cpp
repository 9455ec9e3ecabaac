// SPDX-License-Identifier: Apache-2.0
#include "board/run/run_view.h"

#include <algorithm>
#include <system_error>

#include "board/run/json_file.h"
#include "obs/clock.h"

namespace trireme::board {
namespace {

namespace fs = std::filesystem;

constexpr size_t max_columns = 8;
// A running run is analysed at least this often, since its state depends on the time.
constexpr double max_fact_age_seconds = 10;
constexpr double min_fact_age_seconds = 1;

int64_t size_or_zero(const fs::path& path) {
  std::error_code failed;
  const uintmax_t size = fs::file_size(path, failed);
  return failed ? 0 : static_cast<int64_t>(size);
}

}  // namespace

RunView::RunView(fs::path folder, std::string shown_folder)
    : folder_(std::move(folder)),
      shown_folder_(std::move(shown_folder)),
      metrics_(folder_ / "metrics.jsonl"),
      events_(folder_ / "events.jsonl"),
      facts_(std::make_shared<RunFacts>(RunFacts{.name = name_of_folder(folder_)})) {}

bool RunView::poll(const MetricStore::Progress& progress) {
  int64_t tables = 0;
  for (const char* name :
       {"ranks.bin", "layers.bin", "numerics.bin", "phases.jsonl", "prediction.json", "run.json",
        "plan.json", "owner.json", "collectives.json", "pipeline.json"}) {
    tables += size_or_zero(folder_ / name);
  }
  const std::unique_lock lock(mutex_);
  bool has_changed = metrics_.poll(progress);
  has_changed = events_.poll() || has_changed;
  has_changed = has_changed || tables != table_bytes_;
  table_bytes_ = tables;
  revision_ = metrics_.bytes() + events_.bytes() + tables +
              ((metrics_.restarts() + events_.restarts()) << 44);
  if (has_changed) is_stale_ = true;
  return has_changed;
}

bool RunView::analyse(double now, bool is_forced) {
  const double age = now - analysed_at_;
  // Analysing takes at most a tenth of the time.
  const double least = std::max(min_fact_age_seconds, 10 * analysis_seconds_);
  const bool is_running = facts_->state == analysis::RunState::running;
  const bool is_due =
      (is_stale_ && age >= least) || (is_running && age >= std::max(least, max_fact_age_seconds));
  if (!is_due && !is_forced) return false;
  is_stale_ = false;
  analysed_at_ = now;
  const double begin = obs::steady_seconds();
  auto facts = std::make_shared<const RunFacts>(read_facts(folder_, now));
  analysis_seconds_ = obs::steady_seconds() - begin;
  const std::unique_lock lock(mutex_);
  facts_ = std::move(facts);
  return true;
}

bool RunView::load_cache(const fs::path& cache) {
  const std::unique_lock lock(mutex_);
  if (!metrics_.load_cache(cache)) return false;
  cached_bytes_ = metrics_.bytes();
  return true;
}

void RunView::save_cache(const fs::path& cache) {
  if (metrics_.bytes() == cached_bytes_) return;
  metrics_.save_cache(cache);
  cached_bytes_ = metrics_.bytes();
}

std::optional<double> RunView::Reading::last_value(std::string_view tag) const {
  const std::optional<int> found = metrics().find(tag);
  if (!found) return std::nullopt;
  const MetricTrack& track = metrics().track(*found);
  if (track.rows.empty()) return std::nullopt;
  return track.values[track.rows.size() - 1];
}

std::optional<HeatMap> RunView::heat(const std::string& table, const std::string& column,
                                     const HeatQuery& query) const {
  const fs::path file = folder_ / (table + ".bin");
  if (!is_plain_or_absent(file)) return std::nullopt;
  const std::lock_guard lock(columns_mutex_);
  auto found = std::find_if(columns_.begin(), columns_.end(), [&](const Column& one) {
    return one.table == table && one.values->name() == column;
  });
  if (found == columns_.end()) {
    auto values = std::make_unique<TableColumn>(file, column);
    values->poll();
    if (!values->is_known()) return std::nullopt;  // any name can be asked for; keep none of them
    if (columns_.size() == max_columns) columns_.pop_back();
    columns_.insert(columns_.begin(), Column{table, std::move(values)});
  } else {
    std::rotate(columns_.begin(), found, found + 1);
    columns_.front().values->poll();
  }
  return columns_.front().values->heat(query);
}

}  // namespace trireme::board
