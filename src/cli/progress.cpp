// SPDX-License-Identifier: Apache-2.0
#include "cli/progress.h"

#include <unistd.h>

#include "obs/clock.h"
#include "obs/terminal.h"

namespace trireme::cli {
namespace {

constexpr double silent_seconds = 2;

obs::ProgressOptions options(std::string label, std::string unit, int64_t total) {
  return {.label = std::move(label),
          .unit = std::move(unit),
          .total = total,
          .is_live = obs::is_terminal(STDERR_FILENO),
          .width = [] { return obs::terminal_width(STDERR_FILENO); },
          .write = [](std::string_view text) { obs::write_quietly(STDERR_FILENO, text); }};
}

}  // namespace

Progress::Progress(std::string label, std::string unit, int64_t total)
    : begin_seconds_(obs::steady_seconds()),
      progress_(options(std::move(label), std::move(unit), total)) {}

void Progress::begin(int64_t done) { progress_.begin(done); }

void Progress::update(int64_t done, std::string_view note) {
  if (!has_drawn_ && obs::steady_seconds() - begin_seconds_ < silent_seconds) return;
  has_drawn_ = true;
  progress_.update(done, note);
}

void Progress::line(std::string_view text) { progress_.line(text); }

void Progress::finish() {
  if (has_drawn_) progress_.finish();
}

}  // namespace trireme::cli
