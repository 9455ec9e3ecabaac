// SPDX-License-Identifier: Apache-2.0
#include "board/series/metric_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace trireme::board {

std::optional<Axis> axis_from(std::string_view name) {
  if (name == "step") return Axis::step;
  if (name == "tokens") return Axis::tokens;
  if (name == "time") return Axis::time;
  return std::nullopt;
}

MetricStore::MetricStore(std::filesystem::path file)
    : tail_(std::move(file), {.max_line_bytes = max_line_bytes}) {}

void MetricStore::clear() {
  scanner_ = {};
  rows_.clear();
  tracks_.clear();
  late_.clear();
  tokens_tag_ = step_tag_ = -1;
  tokens_ = 0;
  damaged_ = first_damaged_ = beyond_ = repeated_ = 0;
  last_step_ = -1;
  last_attempt_ = 0;
  first_time_ = last_time_ = 0;
}

bool MetricStore::poll(const Progress& progress) {
  const bool has_changed = tail_.poll({.restarted =
                                           [&] {
                                             if (!rows_.empty()) ++restarts_;
                                             clear();
                                           },
                                       .line = [&](std::string_view line) { add_line(line); },
                                       .progress = progress});
  tracks_.resize(scanner_.tags().size());
  late_.resize(scanner_.tags().size());
  merge_late();
  if (has_changed) {
    const std::lock_guard lock(mutex_);
    sorted_.clear();
  }
  return has_changed;
}

double MetricStore::x_of(uint32_t row, Axis axis) const {
  const MetricRow& at = rows_[row];
  if (axis == Axis::time) return at.time;
  return axis == Axis::tokens ? at.tokens : static_cast<double>(at.step);
}

std::optional<int> MetricStore::find(std::string_view tag) const {
  const auto found = std::find(tags().begin(), tags().end(), tag);
  if (found == tags().end()) return std::nullopt;
  return static_cast<int>(found - tags().begin());
}

void MetricStore::add_line(std::string_view line) {
  if (!scanner_.scan(line, line_) || !line_.has_step) {
    if (line.empty()) return;
    if (damaged_++ == 0) first_damaged_ = tail_.lines();
    return;
  }
  if (first_time_ == 0) first_time_ = line_.time;
  last_time_ = std::max(last_time_, line_.time);
  last_attempt_ = std::max(last_attempt_, line_.attempt);
  if (line_.kind == "start" || line_.kind == "resume") return;  // their numbers are no metrics
  if (rows_.size() == max_rows) {
    ++beyond_;
    return;
  }
  if (step_tag_ < 0) step_tag_ = scanner_.tag_of("step");
  if (tracks_.size() < scanner_.tags().size()) {
    tracks_.resize(scanner_.tags().size());
    late_.resize(scanner_.tags().size());
    const std::optional<int> found = find("tokens");
    tokens_tag_ = found.value_or(-1);
  }
  for (const ScannedValue& one : line_.values) {
    if (one.tag == tokens_tag_ && std::isfinite(one.value)) tokens_ = one.value;
  }
  if (line_.kind == "train") last_step_ = line_.step;
  rows_.push_back({.step = line_.step, .time = line_.time, .tokens = tokens_});
  for (const ScannedValue& one : line_.values) add_point(one.tag, one.value);
  if (line_.kind == "train") add_point(step_tag_, static_cast<double>(line_.step));
}

void MetricStore::add_point(int tag, double value) {
  MetricTrack& track = tracks_[static_cast<size_t>(tag)];
  const auto row = static_cast<uint32_t>(rows_.size() - 1);
  if (!track.rows.empty()) {
    const uint32_t before = track.rows.back();
    if (rows_[row].step <= rows_[before].step) {
      late_[static_cast<size_t>(tag)].push_back({.row = row, .value = value});
      return;
    }
    for (const Axis axis : {Axis::tokens, Axis::time}) {
      if (x_of(row, axis) < x_of(before, axis)) {
        track.is_ascending[static_cast<size_t>(axis)] = false;
      }
    }
  }
  track.rows.push_back(row);
  track.values.push_back(value);
}

// Merges points of steps that were there before, all at once: one by one a file with descending
// steps would take quadratic time.
void MetricStore::merge_late() {
  for (size_t tag = 0; tag < late_.size(); ++tag) {
    std::vector<Late>& late = late_[tag];
    if (late.empty()) continue;
    MetricTrack& track = tracks_[tag];
    const auto step_of = [&](uint32_t row) { return rows_[row].step; };
    int64_t first_step = step_of(late.front().row);
    for (const Late& one : late) first_step = std::min(first_step, step_of(one.row));
    const auto begin =
        std::lower_bound(track.rows.begin(), track.rows.end(), first_step,
                         [&](uint32_t row, int64_t step) { return step_of(row) < step; });
    const auto first = static_cast<size_t>(begin - track.rows.begin());
    // The rows of equal steps are in the order of the file, which is that of their indices.
    std::vector<Late> tail;
    tail.reserve(track.rows.size() - first + late.size());
    for (size_t i = first; i < track.rows.size(); ++i) {
      tail.push_back({.row = track.rows[i], .value = track.values[i]});
    }
    tail.insert(tail.end(), late.begin(), late.end());
    std::sort(tail.begin(), tail.end(), [&](const Late& a, const Late& b) {
      return step_of(a.row) != step_of(b.row) ? step_of(a.row) < step_of(b.row) : a.row < b.row;
    });
    std::vector<double> values;
    track.rows.resize(first);
    for (size_t i = 0; i < tail.size(); ++i) {
      if (i + 1 < tail.size() && step_of(tail[i + 1].row) == step_of(tail[i].row)) {
        ++repeated_;
        continue;
      }
      track.rows.push_back(tail[i].row);
      values.push_back(tail[i].value);
    }
    track.values.replace_tail(first, values);
    for (const Axis axis : {Axis::tokens, Axis::time}) {
      track.is_ascending[static_cast<size_t>(axis)] =
          std::is_sorted(track.rows.begin(), track.rows.end(),
                         [&](uint32_t a, uint32_t b) { return x_of(a, axis) < x_of(b, axis); });
    }
    late.clear();
  }
}

std::shared_ptr<const MetricStore::Ordered> MetricStore::reordered(int tag, Axis axis) const {
  const std::lock_guard lock(mutex_);
  for (const Sorted& one : sorted_) {
    if (one.tag == tag && one.axis == axis) return one.points;
  }
  const MetricTrack& from = track(tag);
  std::vector<uint32_t> order(from.rows.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return x_of(from.rows[a], axis) < x_of(from.rows[b], axis);
  });
  auto points = std::make_shared<Ordered>();
  points->rows.reserve(order.size());
  for (const uint32_t i : order) {
    points->rows.push_back(from.rows[i]);
    points->values.push_back(from.values[i]);
  }
  sorted_.push_back({.tag = tag, .axis = axis, .points = points});
  return points;
}

std::vector<std::string> MetricStore::problems() const {
  std::vector<std::string> found;
  const std::string name = path().filename().string();
  if (!tail_.problem().empty()) found.push_back(name + ": " + tail_.problem());
  if (!tail_.exists() && tail_.problem().empty()) found.push_back(name + ": is missing");
  if (damaged_ > 0) {
    found.push_back(fmt::format("{}: {} damaged line{}, the first is line {}; not shown", name,
                                damaged_, damaged_ == 1 ? "" : "s", first_damaged_));
  }
  if (tail_.too_long() > 0) {
    found.push_back(fmt::format("{}: {} line{} above {} bytes; not shown", name, tail_.too_long(),
                                tail_.too_long() == 1 ? "" : "s", max_line_bytes));
  }
  if (beyond_ > 0) {
    found.push_back(fmt::format("{}: the last {} lines are not shown; the board shows {} at most",
                                name, beyond_, max_rows));
  }
  if (std::ssize(tags()) >= LineScanner::max_tags) {
    found.push_back(fmt::format("{}: has more than {} tags; the others are not shown", name,
                                LineScanner::max_tags - 1));
  }
  if (restarts_ > 0) {
    found.push_back(fmt::format("{}: was replaced by another file {} time{} since the board began",
                                name, restarts_, restarts_ == 1 ? "" : "s"));
  }
  return found;
}

}  // namespace trireme::board
