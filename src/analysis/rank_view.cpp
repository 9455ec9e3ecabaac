// SPDX-License-Identifier: Apache-2.0
#include "analysis/rank_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include "analysis/statistics.h"
#include "base/check.h"

namespace trireme::analysis {
namespace {

using obs::RankColumn;

constexpr double none = std::numeric_limits<double>::quiet_NaN();

// How a window's value follows from those of its records.
enum class Merge { mean, max, sum, last };

Merge merge_of(RankColumn column) {
  switch (column) {
    case RankColumn::steps:
      return Merge::sum;
    case RankColumn::max_step_seconds:
      return Merge::max;
    case RankColumn::memory_bytes:
    case RankColumn::memory_limit_bytes:
    case RankColumn::host_bytes:
    case RankColumn::ecc_errors:
      return Merge::last;
    default:
      return Merge::mean;
  }
}

bool is_break(const obs::Event& event) {
  switch (event.kind) {
    case obs::EventKind::validation:
    case obs::EventKind::checkpoint:
    case obs::EventKind::save_failed:
    case obs::EventKind::exported:
    case obs::EventKind::export_failed:
    case obs::EventKind::rollback:
    case obs::EventKind::replan:
      return true;
    default:
      return false;
  }
}

// Returns an element of a list of texts; empty if it is not there.
std::string text_at(const base::Json& about, const char* list, size_t index) {
  const auto found = about.find(list);
  if (found == about.end() || !found->is_array() || index >= found->size()) return "";
  return (*found)[index].is_string() ? (*found)[index].get<std::string>() : "";
}

int coord_at(const base::Json& coord, const char* axis) {
  const auto found = coord.find(axis);
  return found != coord.end() && found->is_number_integer() ? found->get<int>() : 0;
}

}  // namespace

std::string_view name_of(WaitAxis axis) {
  static constexpr std::array<std::string_view, static_cast<size_t>(WaitAxis::count)> names = {
      "tp", "cp", "ep", "data", "pp", "closing"};
  return names.at(static_cast<size_t>(axis));
}

RankColumn wait_column(WaitAxis axis) {
  static constexpr std::array<RankColumn, static_cast<size_t>(WaitAxis::count)> columns = {
      RankColumn::wait_tp,   RankColumn::wait_cp, RankColumn::wait_ep,
      RankColumn::wait_data, RankColumn::wait_pp, RankColumn::wait_closing};
  return columns.at(static_cast<size_t>(axis));
}

RankView::RankView(const RunRecord& run, int64_t min_steps, double min_seconds)
    : ranks_(run.ranks_shape.rows.size()),
      min_steps_(static_cast<double>(min_steps)),
      min_seconds_(min_seconds) {
  const std::vector<std::string>& names = run.ranks_shape.columns;
  for (size_t i = 0; i < obs::rank_columns; ++i) {
    const auto found = std::find(names.begin(), names.end(), name_of(static_cast<RankColumn>(i)));
    place_of_.push_back(found == names.end() ? -1 : static_cast<int>(found - names.begin()));
  }
  const base::Json about = base::Json::parse(run.ranks_shape.about, nullptr, false);
  coords_.resize(ranks_);
  nodes_.resize(ranks_);
  devices_.resize(ranks_);
  for (size_t rank = 0; rank < ranks_ && about.is_object(); ++rank) {
    if (about.contains("coords") && about["coords"].is_array() && rank < about["coords"].size()) {
      const base::Json& coord = about["coords"][rank];
      if (coord.is_object()) {
        coords_[rank] = {coord_at(coord, "pp"), coord_at(coord, "dp"), coord_at(coord, "zero"),
                         coord_at(coord, "cp"), coord_at(coord, "tp")};
      }
    }
    nodes_[rank] = text_at(about, "nodes", rank);
    devices_[rank] = text_at(about, "devices", rank);
  }
  // The first record has the steps in which libraries choose algorithms and memory is touched.
  const size_t max_records = max_windows * 64;
  const size_t begin = run.ranks.size() > max_records ? run.ranks.size() - max_records : 1;
  auto event = run.events.begin();
  for (size_t i = begin; i < run.ranks.size(); ++i) {
    const obs::TableRecord& record = run.ranks[i];
    if (record.values.size() != ranks_ * names.size()) continue;
    StepWindow steps{.first_step = run.ranks[i - 1].step + 1, .last_step = record.step};
    while (event != run.events.end() &&
           (event->step < steps.first_step - 1 || event->attempt < record.attempt)) {
      ++event;
    }
    for (auto later = event; later != run.events.end() && later->step <= steps.last_step; ++later) {
      // A checkpoint's event comes when it is durable, so that its step is an earlier one.
      steps.has_break = steps.has_break || is_break(*later);
    }
    add_record(record, steps);
  }
  if (!windows_.empty() && !is_complete(windows_.back())) {
    windows_.pop_back();
    values_.pop_back();
  }
  if (windows_.size() > max_windows) {
    const auto surplus = static_cast<std::ptrdiff_t>(windows_.size() - max_windows);
    windows_.erase(windows_.begin(), windows_.begin() + surplus);
    values_.erase(values_.begin(), values_.begin() + surplus);
  }
}

bool RankView::is_complete(const StepWindow& window) const {
  return window.steps >= min_steps_ && window.seconds >= min_seconds_;
}

void RankView::add_record(const obs::TableRecord& record, const StepWindow& steps) {
  const size_t width = ranks_ == 0 ? 0 : record.values.size() / ranks_;
  const auto value = [&](size_t rank, RankColumn column) {
    const int place = place_of_[static_cast<size_t>(column)];
    return place < 0
               ? none
               : static_cast<double>(record.values[rank * width + static_cast<size_t>(place)]);
  };
  double measured = 0, seconds = 0;  // of the rank that measured most
  for (size_t rank = 0; rank < ranks_; ++rank) {
    const double of_rank = value(rank, RankColumn::steps);
    if (!(of_rank > measured)) continue;
    measured = of_rank;
    seconds = of_rank * value(rank, RankColumn::step_seconds);
  }
  if (!(measured > 0)) return;
  const bool is_new = windows_.empty() || is_complete(windows_.back());
  if (is_new) {
    windows_.push_back({.first_step = steps.first_step});
    values_.emplace_back(ranks_ * obs::rank_columns, none);
  }
  StepWindow& window = windows_.back();
  for (size_t rank = 0; rank < ranks_; ++rank) {
    for (size_t i = 0; i < obs::rank_columns; ++i) {
      const double added = value(rank, static_cast<RankColumn>(i));
      double& kept = values_.back()[rank * obs::rank_columns + i];
      if (is_new || std::isnan(kept)) {
        kept = added;
        continue;
      }
      if (std::isnan(added)) continue;
      switch (merge_of(static_cast<RankColumn>(i))) {
        case Merge::mean:
          kept = (kept * window.steps + added * measured) / (window.steps + measured);
          break;
        case Merge::max:
          kept = std::max(kept, added);
          break;
        case Merge::sum:
          kept += added;
          break;
        case Merge::last:
          kept = added;
          break;
      }
    }
  }
  window.last_step = steps.last_step;
  window.steps += measured;
  if (seconds > 0) window.seconds += seconds;
  window.has_break = window.has_break || steps.has_break;
}

double RankView::at(size_t window, size_t rank, RankColumn column) const {
  return values_[window][rank * obs::rank_columns + static_cast<size_t>(column)];
}

std::vector<double> RankView::column(size_t rank, RankColumn wanted) const {
  std::vector<double> values;
  for (size_t window = 0; window < windows(); ++window) {
    values.push_back(at(window, rank, wanted));
  }
  return values;
}

double RankView::typical(RankColumn wanted) const {
  std::vector<double> values;
  for (size_t rank = 0; rank < ranks_; ++rank) {
    for (size_t window = 0; window < windows(); ++window) {
      values.push_back(at(window, rank, wanted));
    }
  }
  return median(std::move(values));
}

bool RankView::has(RankColumn wanted) const {
  for (size_t window = 0; window < windows(); ++window) {
    for (size_t rank = 0; rank < ranks_; ++rank) {
      if (std::isfinite(at(window, rank, wanted))) return true;
    }
  }
  return false;
}

std::string RankView::node(size_t rank) const { return nodes_[rank]; }
bool RankView::is_cpu(size_t rank) const { return devices_[rank].starts_with("CPU"); }

std::vector<std::vector<size_t>> RankView::stages() const {
  std::map<int, std::vector<size_t>> by_stage;
  for (size_t rank = 0; rank < ranks_; ++rank) by_stage[coords_[rank].pp].push_back(rank);
  std::vector<std::vector<size_t>> stages;
  for (auto& [stage, members] : by_stage) stages.push_back(std::move(members));
  return stages;
}

std::vector<std::vector<size_t>> RankView::groups(WaitAxis axis) const {
  std::map<std::tuple<int, int, int, int, int>, std::vector<size_t>> by_rest;
  for (size_t rank = 0; rank < ranks_; ++rank) {
    RankCoord rest = coords_[rank];
    switch (axis) {
      case WaitAxis::tp:
        rest.tp = 0;
        break;
      case WaitAxis::cp:
        rest.cp = 0;
        break;
      case WaitAxis::ep:
      case WaitAxis::data:
        rest.dp = rest.zero = rest.cp = 0;
        break;
      case WaitAxis::pp:
        rest.pp = 0;
        break;
      default:
        rest = {};
    }
    by_rest[{rest.pp, rest.dp, rest.zero, rest.cp, rest.tp}].push_back(rank);
  }
  std::vector<std::vector<size_t>> groups;
  for (auto& [rest, members] : by_rest) {
    if (members.size() > 1) groups.push_back(std::move(members));
  }
  return groups;
}

std::string RankView::rank_text(size_t rank) const {
  std::string text = fmt::format("rank {}", rank);
  if (!nodes_[rank].empty()) text += fmt::format(" on {}", nodes_[rank]);
  return text;
}

}  // namespace trireme::analysis
