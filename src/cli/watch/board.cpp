// SPDX-License-Identifier: Apache-2.0
// trireme board: serves pages about runs on a local port until it is interrupted.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <thread>

#include "analysis/read/run_state.h"
#include "base/error.h"
#include "base/text/count_text.h"
#include "base/text/json.h"
#include "board/assets.h"
#include "board/board.h"
#include "board/gate.h"
#include "board/http/server.h"
#include "cli/shell/environment.h"
#include "cli/verbs.h"
#include "cli/watch/plan_page.h"
#include "cli/watch/read_runs.h"
#include "obs/clock.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

std::atomic<bool> is_interrupted = false;  // a signal handler can access globals only

void on_board_interrupt(int /*number*/) { is_interrupted = true; }

void watch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_board_interrupt;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(number, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

// Returns the folder for caches by the XDG specification; empty if there is none.
fs::path user_cache_folder() {
  const comm::Environment environment = process_environment();
  const auto value = [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  };
  const std::string folder = value("XDG_CACHE_HOME");
  if (!folder.empty() && fs::path(folder).is_absolute()) return fs::path(folder) / "trireme";
  const std::string home = value("HOME");
  return home.empty() ? fs::path() : fs::path(home) / ".cache" / "trireme";
}

std::string token_of(const Args& args, const board::ListenPlace& place) {
  if (!args.has("--token-file")) {
    if (place.is_loopback()) return board::random_token();
    throw base::ConfigError(fmt::format(
        "--listen {}: other machines could connect; give --token-file with a secret of your own, "
        "or listen on 127.0.0.1 and use ssh -L",
        args.text("--listen")));
  }
  const std::string path = args.text("--token-file");
  std::ifstream in(path);
  std::string token;
  if (!in || !std::getline(in, token)) {
    throw base::IoError(fmt::format("--token-file {}: cannot be read", path));
  }
  const bool is_plain = std::all_of(token.begin(), token.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_';
  });
  if (token.size() < 16 || token.size() > 512 || !is_plain) {
    throw base::ConfigError(fmt::format(
        "--token-file {}: the first line must have 16 to 512 letters, digits, - or _; for example "
        "the output of: openssl rand -hex 16",
        path));
  }
  return token;
}

std::string url_of(const board::ListenPlace& place, int port, const std::string& token) {
  if (place.is_unix()) return fmt::format("http://localhost/?token={}", token);
  const bool is_any = place.address == "0.0.0.0" || place.address == "::";
  const std::string host = is_any ? "127.0.0.1"
                           : place.address.find(':') != std::string::npos
                               ? "[" + place.address + "]"
                               : place.address;
  return fmt::format("http://{}:{}/?token={}", host, port, token);
}

void print_start(const Args& args, const board::ListenPlace& place, int port,
                 const std::string& url, size_t runs) {
  if (args.wants_json()) {
    base::Json out = {{"ok", true}, {"url", url}, {"port", port}, {"runs", runs}};
    if (place.is_unix()) out["socket"] = place.socket.string();
    fmt::print("{}\n", out.dump());
  } else {
    fmt::print("board of {}: {}\n", base::count_text(static_cast<int64_t>(runs), "run"), url);
    std::array<char, 256> host{};
    if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
    if (place.is_unix()) {
      fmt::print(
          "from your machine: ssh -L 8080:{} {}; then open the address with localhost:8080\n",
          fs::absolute(place.socket).string(), host.data());
    } else if (place.is_loopback()) {
      fmt::print("from another machine: ssh -L {}:localhost:{} {}\n", port, port, host.data());
    }
    fmt::print("Ctrl-C ends it\n");
  }
  std::fflush(stdout);
}

bool only_running(const Args& args) {
  if (!args.has("--state")) return false;
  if (args.text("--state") == "running") return true;
  throw base::ConfigError(
      fmt::format("--state {}: must be running; without it runs of all states are shown",
                  args.text("--state")));
}

// Returns the seconds until new runs are looked for again: half a second on a local disk, and
// longer where listing the folders is slow.
double pause_after_search(double seconds) { return std::max(0.4, 20 * seconds); }

int run_board(const Args& args) {
  const bool is_developing = args.has("--assets");
  if (!is_developing) board::expect_assets();
  const board::ListenPlace place =
      board::listen_place_from(args.has("--listen") ? args.text("--listen") : "127.0.0.1:0");
  const std::string token = token_of(args, place);
  const bool has_planner = args.flag("--plan");
  if (args.list("runs").empty() && !has_planner) {
    throw base::ConfigError("nothing to show: give the folder of a run, or --plan");
  }
  board::BoardOptions options{.runs = board::runs_of(args.list("runs")),
                              .folders = args.list("runs"),
                              .only_running = only_running(args)};
  if (options.only_running) {
    std::erase_if(options.runs, [](const fs::path& run) {
      return !analysis::is_running(run, obs::wall_seconds());
    });
  }
  PlanPage planner;
  if (has_planner) {
    options.plan = [&planner](const board::Request& request) { return planner.handle(request); };
  }
  if (!args.flag("--no-cache")) options.cache_folder = user_cache_folder();
  if (is_developing) options.assets_folder = args.text("--assets");
  const double seconds = args.has("--seconds") ? args.number("--seconds") : 0;

  board::Board board(std::move(options));
  board.poll_files();
  // One run is read before its page is opened; the list of many waits for none of them.
  if (board.runs().size() == 1) read_runs(board, "board");
  board.save_caches(false);
  board.analyse_first(int64_t{64} << 20);

  watch_interrupts();
  // The port is known once the server listens; requests before that find no gate.
  std::unique_ptr<board::Gate> gate;
  std::atomic<bool> is_ready = false;
  board::Server server(place, {}, [&](const board::Request& request) -> board::Response {
    board::Response response;
    if (!is_ready) {
      response = board::error_response(503, "the board is starting");
    } else if (std::optional<board::Response> refused = gate->check(request)) {
      response = std::move(*refused);
    } else {
      try {
        response = board.handle(request);
      } catch (const std::exception& error) {
        response = board::error_response(500, error.what());
      }
    }
    board::Gate::add_headers(request, response);
    return response;
  });
  gate = std::make_unique<board::Gate>(
      board::Gate::Options{.token = token,
                           .port = server.port(),
                           .hosts = args.list("--host"),
                           .metrics_are_open = args.flag("--open-metrics")});
  is_ready = true;
  print_start(args, place, server.port(), url_of(place, server.port(), token), board.runs().size());
  // Streams of updates end before the server waits for its threads, also after an exception.
  const std::unique_ptr<board::Board, void (*)(board::Board*)> streams(
      &board, [](board::Board* one) { one->stop(); });
  // Analysing a long run takes seconds, in which new steps must be shown.
  const std::jthread analyst([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      board.analyse(1);
      std::this_thread::sleep_for(std::chrono::milliseconds(250));
    }
  });
  const double begin = obs::steady_seconds();
  double next_search = begin;
  while (!is_interrupted && (seconds <= 0 || obs::steady_seconds() - begin < seconds)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    if (const double now = obs::steady_seconds(); now >= next_search) {
      board.find_runs();
      next_search = obs::steady_seconds() + pause_after_search(obs::steady_seconds() - now);
    }
    board.poll_files();
    board.save_caches(false);
  }
  board.save_caches(true);
  return 0;
}

}  // namespace

Verb board_verb() {
  return {
      .name = "board",
      .summary = "Show runs in a browser: live, offline and after they have ended",
      .details =
          "Serves pages on a free port of this machine and prints their address, which contains a\n"
          "secret; a request without it is refused. The folders of the runs are only read: a run\n"
          "does not notice, and a run that was killed or copied is shown like any other. A folder\n"
          "that contains runs stands for all of them, also for those that begin later.\n"
          "\n"
          "  --listen 127.0.0.1:8080   a port of your choice\n"
          "  --listen unix:PATH        a socket that only you can open, for ssh -L 8080:PATH\n"
          "  --listen 0.0.0.0:8080     for other machines: needs --token-file\n"
          "\n"
          "/metrics has the state of the runs for Prometheus, with the header\n"
          "`Authorization: Bearer SECRET`, or without it if --open-metrics is given.\n\n"
          "Examples:\n"
          "  trireme board runs/kjv\n"
          "  trireme board runs/kjv runs/bf16 --listen 127.0.0.1:8080\n"
          "  trireme board runs --listen unix:board.sock --json\n"
          "  trireme board runs --state running --open-metrics\n"
          "  trireme board --plan",
      .options =
          {{.name = "runs", .kind = Kind::list, .help = "Folders of runs"},
           {.name = "--state",
            .help = "running: show only runs that are going on or begin later; they stay when they "
                    "end"},
           {.name = "--plan",
            .kind = Kind::flag,
            .help = "Also serve the planner: the answers of trireme plan, with or without runs"},
           {.name = "--listen",
            .help = "IP address and port, or unix:PATH (default: a free port of 127.0.0.1)"},
           {.name = "--token-file",
            .help = "File whose first line is the secret; default: a new random one"},
           {.name = "--host",
            .kind = Kind::texts,
            .help = "Name under which browsers reach this machine, if it is neither an IP address "
                    "nor localhost"},
           {.name = "--open-metrics",
            .kind = Kind::flag,
            .help = "Serve /metrics and /healthz without the secret"},
           {.name = "--assets", .help = "Folder of pages to serve instead of the embedded ones"},
           {.name = "--no-cache",
            .kind = Kind::flag,
            .help = "Do not keep what was read of large runs in the user's cache folder"},
           {.name = "--seconds",
            .kind = Kind::number,
            .help = "End after this time; default: at Ctrl-C"}},
      .run = run_board};
}

}  // namespace trireme::cli
