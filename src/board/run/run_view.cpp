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

RunView::RunView(fs::path folder, std::string shown_folder, std::string key, fs::path cache)
    : folder_(std::move(folder)),
      shown_folder_(std::move(shown_folder)),
      key_(key.empty() ? name_of_folder(folder_) : std::move(key)),
      cache_(std::move(cache)),
      events_(folder_ / "events.jsonl"),
      head_(folder_ / "metrics.jsonl"),
      facts_(std::make_shared<RunFacts>(RunFacts{.name = name_of_folder(folder_)})) {}

bool RunView::poll() {
  // Tables of runs that are not looked at may be seen a little later: hundreds of runs are polled
  // several times a second.
  constexpr int64_t polls_per_look = 8;
  const bool is_first = polls_ == 0;
  const std::unique_lock lock(mutex_);
  int64_t tables = table_bytes_;
  if (polls_++ % polls_per_look == 0 || metrics_) {
    tables = 0;
    for (const char* name :
         {"ranks.bin", "layers.bin", "numerics.bin", "phases.jsonl", "prediction.json", "run.json",
          "plan.json", "owner.json", "collectives.json", "pipeline.json"}) {
      tables += size_or_zero(folder_ / name);
    }
  }
  std::shared_ptr<const RunFacts> first_facts;
  if (is_first) first_facts = std::make_shared<const RunFacts>(first_facts_of(folder_));
  bool has_changed = events_.poll() || tables != table_bytes_;
  table_bytes_ = tables;
  {
    // A Reading that sees this revision also sees its points: mutex_ is held until they are read.
    const std::unique_lock head_lock(head_mutex_);
    has_changed = head_.poll() || has_changed;
    if (first_facts && !is_analysed_) facts_ = std::move(first_facts);
    revision_ =
        head_.bytes() + events_.bytes() + tables + ((head_.restarts() + events_.restarts()) << 44);
  }
  if (metrics_) has_changed = metrics_->poll() || has_changed;
  if (has_changed) is_stale_ = true;
  return has_changed;
}

void RunView::load(const MetricStore::Progress& progress) const {
  last_use_ = obs::steady_seconds();
  const std::lock_guard loading(load_mutex_);
  if (is_loaded()) return;
  // The other threads go on meanwhile.
  auto metrics = std::make_unique<MetricStore>(folder_ / "metrics.jsonl");
  const bool is_cached = !cache_.empty() && metrics->load_cache(cache_);
  const int64_t cached_bytes = is_cached ? metrics->bytes() : 0;
  metrics->poll(progress);
  const std::unique_lock lock(mutex_);
  metrics->poll();
  metrics_ = std::move(metrics);
  cached_bytes_ = cached_bytes;
}

bool RunView::is_loaded() const {
  const std::shared_lock lock(mutex_);
  return metrics_ != nullptr;
}

void RunView::unload() {
  const std::unique_lock lock(mutex_);
  metrics_.reset();
}

std::shared_lock<std::shared_mutex> RunView::lock_loaded() const {
  while (true) {
    load();
    std::shared_lock lock(mutex_);
    if (metrics_) return lock;  // otherwise it was unloaded in between
  }
}

bool RunView::lacks_cache(bool is_end) const {
  const std::shared_lock lock(mutex_);
  return !cache_.empty() && metrics_ && (cached_bytes_ == 0 || is_end) &&
         metrics_->bytes() != cached_bytes_;
}

void RunView::save_cache() {
  // Only the thread that calls poll() changes the points, and it is the one that calls this.
  const std::shared_lock lock(mutex_);
  metrics_->save_cache(cache_);
  cached_bytes_ = metrics_->bytes();
}

bool RunView::analyse(double now, bool is_forced) {
  const double age = now - analysed_at_;
  // Analysing takes at most a tenth of the time.
  const double least = std::max(min_fact_age_seconds, 10 * analysis_seconds_);
  const bool is_running = Glance(*this).facts().state == analysis::RunState::running;
  const bool is_due =
      (is_stale_ && age >= least) || (is_running && age >= std::max(least, max_fact_age_seconds));
  if (!is_due && !is_forced) return false;
  is_stale_ = false;
  analysed_at_ = now;
  const double begin = obs::steady_seconds();
  auto facts = std::make_shared<const RunFacts>(read_facts(folder_, now));
  analysis_seconds_ = obs::steady_seconds() - begin;
  const std::unique_lock lock(head_mutex_);
  facts_ = std::move(facts);
  is_analysed_ = true;
  return true;
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
