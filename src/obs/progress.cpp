// SPDX-License-Identifier: Apache-2.0
#include "obs/progress.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "obs/number_text.h"
#include "obs/terminal.h"

namespace trireme::obs {

namespace {

constexpr std::string_view erase_line = "\r\x1b[K";
constexpr int min_bar = 8, max_bar = 30;

std::string rate_text(double per_second) {
  if (per_second >= 100) return grouped(per_second, 0) + "/s";
  return per_second >= 1 ? fmt::format("{:.1f}/s", per_second)
                         : fmt::format("{:.1f} s each", 1 / per_second);
}

}  // namespace

Progress::Progress(ProgressOptions options)
    : options_(std::move(options)),
      start_seconds_(options_.clock()),
      drawn_seconds_(start_seconds_),
      first_done_(options_.done),
      done_(options_.done) {
  TRIREME_CHECK(options_.write != nullptr, "progress '{}' has nowhere to go", options_.label);
  TRIREME_CHECK(options_.total >= 0 && options_.done >= 0, "progress '{}': {} of {}",
                options_.label, options_.done, options_.total);
  if (options_.is_live) draw();
}

Progress::~Progress() {
  if (is_drawn_ && !is_finished_) options_.write("\n");
}

void Progress::begin(int64_t done) {
  first_done_ = done_ = done;
  start_seconds_ = options_.clock();
}

void Progress::update(int64_t done, std::string_view note) {
  done_ = done;
  note_ = note;
  const double period = options_.is_live ? options_.redraw_seconds : options_.plain_seconds;
  if (options_.clock() - drawn_seconds_ >= period) draw();
}

void Progress::line(std::string_view text) {
  std::string out;
  if (is_drawn_) out += erase_line;
  out += text;
  out += '\n';
  options_.write(out);
  is_drawn_ = false;
  if (options_.is_live && !is_finished_) draw();
}

void Progress::finish() {
  if (is_finished_) return;
  draw();
  if (options_.is_live) options_.write("\n");
  is_finished_ = true;
}

void Progress::draw() {
  drawn_seconds_ = options_.clock();
  if (!options_.is_live) {
    options_.write(text(0) + "\n");
    return;
  }
  // The last column stays free: some terminals wrap as soon as it is written.
  const int columns = std::max(options_.width() - 1, 1);
  options_.write(fmt::format("{}{}", erase_line, cut_to_columns(text(columns), columns)));
  is_drawn_ = true;
}

// With a bar as wide as `columns` leave room for, at most max_bar.
std::string Progress::text(int columns) const {
  const double seconds = options_.clock() - start_seconds_;
  const auto did = static_cast<double>(done_ - first_done_);
  std::string tail;
  if (options_.total > 0) {
    const double share =
        std::clamp(static_cast<double>(done_) / static_cast<double>(options_.total), 0.0, 1.0);
    // 100% is said only when all is done.
    const int percent = static_cast<int>(100 * share);
    tail = fmt::format("{:3}%  {}/{} {}", percent, grouped(done_), grouped(options_.total),
                       options_.unit);
  } else {
    tail = fmt::format("{} {}", grouped(done_), options_.unit);
  }
  if (did > 0 && seconds > 0) tail += "  " + rate_text(did / seconds);
  if (options_.total > 0 && done_ < options_.total) {
    tail += "  ETA ";
    tail +=
        did > 0 ? duration_text(seconds / did * static_cast<double>(options_.total - done_)) : "?";
  } else if (options_.total > 0) {
    tail += "  in " + duration_text(seconds);
  }
  if (!note_.empty()) tail += "  " + note_;

  const int free = columns - columns_of(options_.label) - columns_of(tail) - 4;
  const int bar = std::min(free, max_bar);
  if (options_.total == 0 || bar < min_bar) return options_.label + " " + tail;
  const int filled = static_cast<int>(std::clamp<int64_t>(
      static_cast<int64_t>(static_cast<double>(bar) * static_cast<double>(done_) /
                           static_cast<double>(options_.total)),
      0, bar));
  return fmt::format("{} [{}{}] {}", options_.label, std::string(static_cast<size_t>(filled), '#'),
                     std::string(static_cast<size_t>(bar - filled), '-'), tail);
}

}  // namespace trireme::obs
