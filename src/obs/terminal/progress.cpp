// SPDX-License-Identifier: Apache-2.0
#include "obs/terminal/progress.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "obs/terminal/number_text.h"
#include "obs/terminal/terminal.h"

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
      updated_seconds_(start_seconds_),
      first_done_(options_.done),
      done_(options_.done) {
  TRIREME_CHECK(options_.write != nullptr, "progress '{}' has no write function", options_.label);
  TRIREME_CHECK(options_.total >= 0 && options_.done >= 0, "progress '{}': {} of {}",
                options_.label, options_.done, options_.total);
  if (options_.is_live) draw();
}

Progress::~Progress() {
  if (is_drawn_ && !is_finished_) options_.write("\n");
}

void Progress::begin(int64_t done) {
  first_done_ = done_ = done;
  start_seconds_ = updated_seconds_ = options_.clock();
  waited_seconds_ = excluded_seconds_ = 0;
}

void Progress::update(int64_t done, std::string_view note) {
  done_ = done;
  note_ = note;
  updated_seconds_ = options_.clock();
  excluded_seconds_ += std::exchange(waited_seconds_, 0);
  const double period = options_.is_live ? options_.redraw_seconds : options_.plain_seconds;
  if (options_.clock() - drawn_seconds_ >= period) draw();
}

void Progress::log(std::string_view text) {
  std::string out = erasure();
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
  const std::string whole = text(columns);
  const std::string_view shown = cut_to_columns(whole, columns);
  // The first line also overwrites the rest of a prompt.
  const std::string before = is_drawn_              ? erasure()
                             : options_.has_escapes ? std::string(erase_line)
                                                    : "\r";
  options_.write(before + std::string(shown));
  drawn_columns_ = columns_of(shown);
  is_drawn_ = true;
}

std::string Progress::erasure() const {
  if (!is_drawn_) return "";
  if (options_.has_escapes) return std::string(erase_line);
  return fmt::format("\r{}\r", std::string(static_cast<size_t>(drawn_columns_), ' '));
}

// Returns the line with a bar as wide as `columns` (0: no limit) allow, at most max_bar.
std::string Progress::text(int columns) const {
  const double seconds = options_.clock() - start_seconds_;
  const auto did = static_cast<double>(done_ - first_done_);
  const std::string count =
      options_.total > 0
          ? fmt::format("  {}/{} {}", grouped(done_), grouped(options_.total), options_.unit)
          : fmt::format("{} {}", grouped(done_), options_.unit);
  std::string share, rate, end;
  if (options_.total > 0) {
    // 100% is shown only when all is done.
    const double part =
        std::clamp(static_cast<double>(done_) / static_cast<double>(options_.total), 0.0, 1.0);
    share = fmt::format("{:3}%", static_cast<int>(100 * part));
  }
  const double worked = updated_seconds_ - start_seconds_ - excluded_seconds_;
  if (did > 0 && worked > 0) rate = "  " + rate_text(did / worked);
  if (options_.total > 0 && done_ < options_.total) {
    end = "  ETA ";
    end +=
        did > 0 ? duration_text(seconds / did * static_cast<double>(options_.total - done_)) : "?";
  } else if (options_.total > 0) {
    end = "  in " + duration_text(seconds);
  }
  const std::string note = note_.empty() ? "" : "  " + note_;
  const std::vector<std::string> tails = {share + count + rate + end + note,
                                          share + count + rate + end, share + count + end,
                                          options_.total > 0 ? share + end : count};
  const auto fits = [&](const std::string& one) {
    return columns == 0 || columns_of(options_.label) + 1 + columns_of(one) <= columns;
  };
  const auto found = std::find_if(tails.begin(), tails.end(), fits);
  const std::string tail = found == tails.end() ? tails.back() : *found;

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
