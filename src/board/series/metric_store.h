// SPDX-License-Identifier: Apache-2.0
// MetricStore: the points of metrics.jsonl by tag, ready to be drawn. poll() reads what was
// appended since the last call. Of a step that several lines have, the last line's point is drawn;
// all of them stay in the file, where read_raw() finds them.
//
// One thread calls poll(); const functions may be called by several threads, but not during poll().
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "board/series/line_scanner.h"
#include "board/series/line_tail.h"
#include "board/series/pyramid.h"

namespace trireme::board {

enum class Axis : uint8_t { step, tokens, time, count };
std::optional<Axis> axis_from(std::string_view);

// What the lines have in common with all their tags.
struct MetricRow {
  int64_t step = 0;
  double time = 0;    // seconds since 1970
  double tokens = 0;  // trained so far; of lines that do not say, that of the line before
};

// The points of one tag, in the order of their steps.
struct MetricTrack {
  std::vector<uint32_t> rows;  // index into MetricStore::rows()
  Pyramid values;
  std::array<bool, static_cast<size_t>(Axis::count)> is_ascending = {true, true, true};
};

class MetricStore {
 public:
  explicit MetricStore(std::filesystem::path file);

  using Progress = std::function<void(int64_t bytes, int64_t of)>;
  // Returns whether anything has changed.
  bool poll(const Progress& progress = nullptr);

  const std::vector<std::string>& tags() const { return scanner_.tags(); }
  std::optional<int> find(std::string_view tag) const;
  const MetricTrack& track(int tag) const { return tracks_[static_cast<size_t>(tag)]; }
  const std::vector<MetricRow>& rows() const { return rows_; }
  double x_of(uint32_t row, Axis axis) const;

  // Returns the points of a track in the order of another axis. `track` is used itself if its
  // points are in that order already.
  struct Ordered {
    std::vector<uint32_t> rows;
    Pyramid values;
  };
  std::shared_ptr<const Ordered> reordered(int tag, Axis axis) const;

  const std::filesystem::path& path() const { return tail_.path(); }
  bool exists() const { return tail_.exists(); }
  int64_t bytes() const { return tail_.offset(); }
  int64_t restarts() const { return restarts_; }
  int64_t last_step() const { return last_step_; }
  int64_t last_attempt() const { return last_attempt_; }
  double first_time() const { return first_time_; }
  double last_time() const { return last_time_; }
  int64_t repeated_steps() const { return repeated_; }
  // One line each: what could not be read.
  std::vector<std::string> problems() const;

  // The cache: everything that poll() computed, and the place in the file that it belongs to.
  // Returns false if the cache does not exist or does not belong to the file as it is now.
  bool load_cache(const std::filesystem::path& cache);
  // Throws IoError. REQUIRES: poll() was called.
  void save_cache(const std::filesystem::path& cache) const;

  static constexpr size_t max_line_bytes = 1 << 20;
  static constexpr size_t max_rows = 100'000'000;

 private:
  friend class CacheCodec;
  void clear();
  void add_line(std::string_view line);
  void add_point(int tag, double value);
  void merge_late();

  // A point whose step is not above that of the last point.
  struct Late {
    uint32_t row = 0;
    double value = 0;
  };

  LineTail tail_;
  LineScanner scanner_;
  ScannedLine line_;  // storage that is used again
  std::vector<MetricRow> rows_;
  std::vector<MetricTrack> tracks_;      // by tag
  std::vector<std::vector<Late>> late_;  // by tag, until the end of poll()
  int tokens_tag_ = -1;
  int step_tag_ = -1;  // a tag that maps tokens and times to steps
  double tokens_ = 0;
  int64_t restarts_ = 0;
  int64_t damaged_ = 0, first_damaged_ = 0;  // lines
  int64_t beyond_ = 0;                       // lines after max_rows
  int64_t repeated_ = 0;
  int64_t last_step_ = -1, last_attempt_ = 0;
  double first_time_ = 0, last_time_ = 0;

  struct Sorted {
    int tag;
    Axis axis;
    std::shared_ptr<const Ordered> points;
  };
  mutable std::mutex mutex_;  // guards sorted_
  mutable std::vector<Sorted> sorted_;
};

}  // namespace trireme::board
