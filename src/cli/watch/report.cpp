// SPDX-License-Identifier: Apache-2.0
// trireme report: writes the board of runs as one HTML file.
#include <fmt/format.h>

#include <filesystem>

#include "base/error.h"
#include "base/text/json.h"
#include "board/assets.h"
#include "board/report/report.h"
#include "cli/verbs.h"
#include "cli/watch/read_runs.h"
#include "obs/run_dir.h"
#include "obs/terminal/number_text.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

int run_report(const Args& args) {
  board::expect_assets();
  const fs::path out = args.text("--out");
  if (fs::is_directory(out)) {
    throw base::IoError(fmt::format("--out {}: is a folder; give a file, such as {}", out.string(),
                                    (out / "report.html").string()));
  }
  board::Board board({.runs = board::runs_of(args.list("runs"))});
  board.poll();
  read_runs(board, "report");
  const std::string html = board::report_html(board);
  obs::write_file(out, html);
  if (args.wants_json()) {
    fmt::print("{}\n", base::Json{{"ok", true},
                                  {"report", out.string()},
                                  {"runs", board.runs().size()},
                                  {"bytes", html.size()}}
                           .dump());
  } else {
    fmt::print("{}: {}; open it in a browser, no network is needed\n", out.string(),
               obs::bytes_text(static_cast<int64_t>(html.size())));
  }
  return 0;
}

}  // namespace

Verb report_verb() {
  return {
      .name = "report",
      .summary = "Write the board of runs as one HTML file, with the post-mortem of failures",
      .details =
          "The file has pages, curves, diagnosis, ledger and events of the runs, and opens\n"
          "without a server or a network. Curves have all points up to 50,000 together, others\n"
          "the minimum and maximum of 2,000 columns. Secrets of the configuration are masked.\n\n"
          "Examples:\n"
          "  trireme report runs/kjv --out report.html\n"
          "  trireme report runs/kjv runs/bf16 --out report.html --json",
      .options =
          {{.name = "runs", .kind = Kind::list, .help = "Folders of runs", .is_required = true},
           {.name = "--out", .help = "File to write", .is_required = true}},
      .run = run_report};
}

}  // namespace trireme::cli
