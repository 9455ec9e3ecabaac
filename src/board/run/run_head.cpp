// SPDX-License-Identifier: Apache-2.0
#include "board/run/run_head.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/system/descriptor.h"
#include "board/series/metric_store.h"

namespace trireme::board {
namespace {

constexpr int samples = 48;
constexpr int64_t sample_bytes = 32 << 10;
constexpr int64_t validation_bytes = 8 << 20;  // from the end of a long file

// Returns the bytes [offset, offset + bytes) as far as the file has them.
std::string bytes_at(int descriptor, int64_t offset, int64_t bytes) {
  std::string text(static_cast<size_t>(bytes), '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = ::pread(descriptor, text.data() + done, text.size() - done,
                                offset + static_cast<int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  text.resize(done);
  return text;
}

std::string quoted(const char* tag) { return '"' + std::string(tag) + '"'; }

// Returns the first complete line of a block with the text; empty if there is none. The block may
// begin within a line.
std::string_view line_with(std::string_view block, std::string_view text, bool is_at_begin) {
  size_t begin = is_at_begin ? 0 : block.find('\n');
  if (begin == std::string_view::npos) return {};
  if (!is_at_begin) ++begin;
  for (size_t end = block.find('\n', begin); end != std::string_view::npos;
       end = block.find('\n', begin)) {
    const std::string_view line = block.substr(begin, end - begin);
    if (line.find(text) != std::string_view::npos) return line;
    begin = end + 1;
  }
  return {};
}

}  // namespace

RunHead::RunHead(std::filesystem::path metrics_file)
    : tail_(std::move(metrics_file), {.max_line_bytes = MetricStore::max_line_bytes}) {}

void RunHead::clear() {
  scanner_ = {};
  last_.clear();
  points_.clear();
  end_.reset();
  last_step_ = -1;
  last_attempt_ = 0;
  last_time_ = 0;
  has_lines_ = false;
}

bool RunHead::poll() {
  if (!is_begun_) sample();
  is_begun_ = true;
  return tail_.poll({.restarted =
                         [&] {
                           if (has_lines_) ++restarts_;
                           clear();
                         },
                     .line = [&](std::string_view line) { add_line(line, false); }});
}

// Reads lines at equal distances and moves the tail to the last lines. A file without lines where
// they are expected is read from its beginning.
void RunHead::sample() {
  const base::Descriptor file(::open(tail_.path().c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (file.value() < 0 || ::fstat(file.value(), &status) != 0 || !S_ISREG(status.st_mode)) return;
  const int64_t size = status.st_size;
  if (size <= max_whole_bytes) return;
  const int64_t begin = size - max_whole_bytes;
  const std::string last = bytes_at(file.value(), begin, max_whole_bytes);
  const size_t first_end = last.find('\n');
  LineTail::Place place;
  if (first_end == std::string::npos || first_end + 1 < place.check.size()) return;
  place.offset = begin + static_cast<int64_t>(first_end) + 1;
  place.check_bytes = static_cast<int32_t>(place.check.size());
  std::memcpy(place.check.data(), last.data() + first_end + 1 - place.check.size(),
              place.check.size());
  if (!tail_.resume(place)) return;
  const std::string loss = quoted(loss_tag);
  for (int i = 0; i < samples; ++i) {
    const int64_t at = begin / samples * i;
    const std::string block = bytes_at(file.value(), at, std::min(sample_bytes, place.offset - at));
    const std::string_view line = line_with(block, loss, at == 0);
    if (!line.empty()) add_line(line, true);
  }
  if (last.find(quoted(validation_tag)) != std::string::npos) return;  // the tail will find it
  const std::string validation = quoted(validation_tag);
  const int64_t end_of_search = std::max<int64_t>(0, begin - validation_bytes);
  for (int64_t at = begin; at > end_of_search;) {
    // Blocks overlap by more than a usual line, so that a line is complete in one of them.
    const int64_t from = std::max<int64_t>(0, at - (1 << 20));
    const int64_t to = std::min<int64_t>(place.offset, at + (64 << 10));
    const std::string block = bytes_at(file.value(), from, to - from);
    const size_t found = block.rfind(validation);
    if (found != std::string::npos) {
      const size_t line = block.rfind('\n', found);
      const size_t end = block.find('\n', found);
      if (line != std::string::npos && end != std::string::npos) {
        add_line(std::string_view(block).substr(line + 1, end - line - 1), true);
        return;
      }
    }
    at = from;
  }
}

void RunHead::add_line(std::string_view line, bool is_sample) {
  if (!scanner_.scan(line, line_) || !line_.has_step) return;
  has_lines_ = true;
  last_time_ = std::max(last_time_, line_.time);
  last_attempt_ = std::max(last_attempt_, line_.attempt);
  if (line_.kind == "start" || line_.kind == "resume") return;  // their numbers are no metrics
  if (line_.kind == "train" && !is_sample) last_step_ = line_.step;
  last_.resize(scanner_.tags().size());
  for (const ScannedValue& one : line_.values) {
    last_[static_cast<size_t>(one.tag)] = one.value;
    if (scanner_.tags()[static_cast<size_t>(one.tag)] == loss_tag) {
      add_point({.step = line_.step, .loss = one.value});
    }
  }
}

// Keeps points whose steps are about equally far from each other, however many are added.
void RunHead::add_point(const Point& point) {
  while (!points_.empty() && points_.back().step >= point.step) points_.pop_back();
  end_ = point;
  const int64_t distance = point.step / static_cast<int64_t>(max_points / 2);
  if (!points_.empty() && point.step - points_.back().step < distance) return;
  points_.push_back(point);
  end_.reset();
  if (points_.size() < max_points) return;
  std::vector<Point> kept;
  for (const Point& one : points_) {
    if (kept.empty() || one.step - kept.back().step >= distance) kept.push_back(one);
  }
  if (kept.size() >= max_points) kept.erase(kept.begin());
  points_ = std::move(kept);
}

std::vector<RunHead::Point> RunHead::curve() const {
  std::vector<Point> all = points_;
  if (end_) all.push_back(*end_);
  return all;
}

std::optional<double> RunHead::last_value(std::string_view tag) const {
  const auto found = std::find(scanner_.tags().begin(), scanner_.tags().end(), tag);
  if (found == scanner_.tags().end()) return std::nullopt;
  const auto index = static_cast<size_t>(found - scanner_.tags().begin());
  return index < last_.size() ? last_[index] : std::nullopt;
}

}  // namespace trireme::board
