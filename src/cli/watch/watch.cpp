// SPDX-License-Identifier: Apache-2.0
// trireme watch: a run as a text screen that follows its files.
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>

#include "base/error.h"
#include "base/text/json.h"
#include "cli/shell/environment.h"
#include "cli/shell/terminal_style.h"
#include "cli/verbs.h"
#include "cli/watch/watch_screen.h"
#include "obs/clock.h"
#include "obs/terminal/terminal.h"

namespace trireme::cli {
namespace {

std::atomic<bool> watch_is_interrupted = false;  // a signal handler can access globals only

void on_watch_interrupt(int /*number*/) { watch_is_interrupted = true; }

// The terminal while a screen is drawn on it: the alternate screen without a cursor, and keys that
// are read without a newline. The destructor restores it.
class LiveTerminal {
 public:
  LiveTerminal() {
    struct sigaction action {};
    action.sa_handler = on_watch_interrupt;
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(number, &action, nullptr);
    has_keys_ = ::tcgetattr(STDIN_FILENO, &before_) == 0;
    if (has_keys_) {
      termios keys = before_;
      keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      ::tcsetattr(STDIN_FILENO, TCSANOW, &keys);
    }
    obs::write_quietly(STDOUT_FILENO, "\033[?1049h\033[?25l");
  }
  ~LiveTerminal() {
    obs::write_quietly(STDOUT_FILENO, "\033[?25h\033[?1049l");
    if (has_keys_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  LiveTerminal(const LiveTerminal&) = delete;
  LiveTerminal& operator=(const LiveTerminal&) = delete;

  // Waits; returns true if the user has pressed q.
  bool is_ended_within(int milliseconds) const {
    pollfd keys{.fd = has_keys_ ? STDIN_FILENO : -1, .events = POLLIN, .revents = 0};
    if (::poll(&keys, 1, milliseconds) <= 0) return false;
    char key = 0;
    if (::read(STDIN_FILENO, &key, 1) <= 0) return true;  // the terminal is gone
    return key == 'q' || key == 'Q';
  }

  static void draw(const std::vector<std::string>& lines) {
    std::string frame = "\033[H";
    for (const std::string& line : lines) frame += line + "\033[K\r\n";
    obs::write_quietly(STDOUT_FILENO, frame + "\033[J");
  }

 private:
  termios before_{};
  bool has_keys_ = false;
};

ScreenShape shape_of_terminal(bool is_unicode) {
  winsize size{};
  const bool is_known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  // The last line stays empty: a newline in it would scroll.
  return {.columns = is_known ? std::max<int>(size.ws_col, min_screen_columns) : 80,
          .rows = is_known ? std::max(size.ws_row - 1, 1) : 23,
          .is_unicode = is_unicode};
}

void watch_live(const std::string& folder, double seconds, bool is_unicode) {
  const LiveTerminal terminal;
  RunSummary summary;
  double next_reading = 0;  // by the steady clock
  while (!watch_is_interrupted) {
    const double now = obs::wall_seconds();
    if (const double begin = obs::steady_seconds(); begin >= next_reading) {
      summary = read_summary(folder, now);
      // The files of a long run take seconds to read: they are read less often.
      const double end = obs::steady_seconds();
      next_reading = std::max(begin + seconds, end + 10 * (end - begin));
    }
    ScreenShape shape = shape_of_terminal(is_unicode);
    --shape.rows;
    std::vector<std::string> lines = watch_screen(summary, shape, now);
    lines.emplace_back(obs::cut_to_columns("q or Ctrl-C ends", shape.columns));
    LiveTerminal::draw(lines);
    if (terminal.is_ended_within(250)) return;
  }
}

int run_watch(const Args& args) {
  const std::string folder = args.text("run");
  const double seconds = args.number("--every");
  if (!(seconds >= 0.2) || seconds > 3600) {
    throw base::ConfigError(
        fmt::format("--every {}: must be from 0.2 to 3600 seconds", args.text("--every")));
  }
  const int64_t columns = args.has("--columns") ? args.integer("--columns") : 0;
  if (args.has("--columns") && (columns < min_screen_columns || columns > 1000)) {
    throw base::ConfigError(
        fmt::format("--columns {}: must be from {} to 1000", columns, min_screen_columns));
  }
  const double now = obs::wall_seconds();
  if (args.wants_json()) {
    const RunSummary summary = read_summary(folder, now);
    base::Json json = {{"ok", true}};
    json.update(to_json(summary));
    json["waterfall"] = analysis::to_json(summary.diagnosis).at("waterfall");
    fmt::print("{}\n", json.dump(-1, ' ', false, base::Json::error_handler_t::replace));
    return 0;
  }
  const comm::Environment environment = process_environment();
  const bool is_unicode = is_utf8_locale(environment);
  const bool is_live = terminal_style(environment, obs::is_terminal(STDOUT_FILENO)).is_live;
  if (is_live && !args.flag("--once") && columns == 0) {
    watch_live(folder, seconds, is_unicode);
    return 0;
  }
  const int width = columns > 0 ? static_cast<int>(columns)
                                : std::max(obs::terminal_width(STDOUT_FILENO), min_screen_columns);
  for (const std::string& line :
       watch_screen(read_summary(folder, now), {.columns = width, .is_unicode = is_unicode}, now)) {
    fmt::print("{}\n", line);
  }
  return 0;
}

}  // namespace

Verb watch_verb() {
  return {
      .name = "watch",
      .summary = "Follow a run in the terminal: loss, speed, where time goes, events",
      .details =
          "Draws one screen and redraws it while the run writes: one sentence, the loss, the "
          "speed beside the predicted one, the terms of a step's time, the ranks that arrive "
          "last, the checkpoint to go back to, and the last events. It only reads files, uses "
          "no colour, fits 40 columns, and follows the size of the terminal, also in tmux and "
          "over ssh. q or Ctrl-C ends it; the run does not notice.\n\n"
          "Where the output is not a terminal, and with --once, one screen is printed.\n\n"
          "Examples:\n"
          "  trireme watch runs/kjv\n"
          "  trireme watch runs/kjv --once --columns 40\n"
          "  trireme watch runs/kjv --json",
      .options = {{.name = "run", .help = "Run's folder", .is_required = true},
                  {.name = "--once", .kind = Kind::flag, .help = "Print one screen and end"},
                  {.name = "--every",
                   .kind = Kind::number,
                   .fallback = "1",
                   .help = "Seconds between two readings of the run's files"},
                  {.name = "--columns",
                   .kind = Kind::integer,
                   .help = "Width of the printed screen; default: that of the terminal, or 80"}},
      .run = run_watch};
}

}  // namespace trireme::cli
