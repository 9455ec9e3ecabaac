// SPDX-License-Identifier: Apache-2.0
#include "cli/shell/progress.h"

#include <unistd.h>

#include "cli/shell/environment.h"
#include "obs/clock.h"
#include "obs/terminal/terminal.h"

namespace trireme::cli {
namespace {

constexpr double silent_seconds = 2;

obs::ProgressOptions options(std::string label, std::string unit, int64_t total,
                             const TerminalStyle& style) {
  return {.label = std::move(label),
          .unit = std::move(unit),
          .total = total,
          .is_live = style.is_live,
          .has_escapes = style.has_escapes,
          .width = [] { return obs::terminal_width(STDERR_FILENO); },
          .write = [](std::string_view text) { obs::write_quietly(STDERR_FILENO, text); }};
}

}  // namespace

Progress::Progress(std::string label, std::string unit, int64_t total)
    : Progress(std::move(label), std::move(unit), total,
               terminal_style(process_environment(), obs::is_terminal(STDERR_FILENO))) {}

Progress::Progress(std::string label, std::string unit, int64_t total, const TerminalStyle& style)
    : begin_seconds_(obs::steady_seconds()),
      is_shown_(style.is_live),
      progress_(options(std::move(label), std::move(unit), total, style)) {}

void Progress::begin(int64_t done) { progress_.begin(done); }

void Progress::update(int64_t done, std::string_view note) {
  if (!is_shown_ && obs::steady_seconds() - begin_seconds_ < silent_seconds) return;
  is_shown_ = true;
  progress_.update(done, note);
}

void Progress::line(std::string_view text) { progress_.log(text); }

void Progress::finish() {
  if (is_shown_) progress_.finish();
}

}  // namespace trireme::cli
