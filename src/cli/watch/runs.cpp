// SPDX-License-Identifier: Apache-2.0
// trireme runs: lists the runs in folders, and what experiments have used.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "analysis/ledger.h"
#include "base/error.h"
#include "base/text/json.h"
#include "base/text/printable.h"
#include "board/board.h"
#include "cli/shell/progress.h"
#include "cli/verbs.h"
#include "cli/watch/run_difference.h"
#include "cli/watch/run_search.h"
#include "cli/watch/run_summary.h"
#include "obs/clock.h"
#include "obs/terminal/number_text.h"
#include "obs/terminal/table.h"
#include "obs/terminal/terminal.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

// A run, or the reason why its files cannot be read.
struct ListedRun {
  fs::path folder;
  std::optional<RunSummary> summary;
  analysis::Ledger ledger;  // if it was asked for
  std::string failure;

  double last_time() const { return summary ? summary->run.last_time : 0; }
};

struct Experiment {
  std::string name;
  analysis::Ledger ledger;
  size_t runs = 0;
};

std::vector<ListedRun> listed_runs(const std::vector<fs::path>& folders, bool has_ledgers) {
  std::vector<ListedRun> runs;
  Progress progress("runs", "runs", std::ssize(folders));
  for (const fs::path& folder : folders) {
    progress.update(std::ssize(runs), base::printable(folder.string()));
    ListedRun run{.folder = folder};
    try {
      run.summary = read_summary(folder, obs::wall_seconds());
      if (has_ledgers) run.ledger = analysis::read_ledger(folder);
    } catch (const std::exception& error) {  // one bad folder must not hide the others
      run.summary.reset();
      run.failure = error.what();
    }
    runs.push_back(std::move(run));
  }
  progress.finish();
  std::ranges::stable_sort(runs, std::greater<>(), &ListedRun::last_time);
  return runs;
}

double total(const obs::PhaseSeconds& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// Drops the runs that --filter does not find, and sorts by --sort. Runs that cannot be read match
// no search and are the last ones.
void select_runs(const Args& args, RunSearch search, std::vector<ListedRun>& runs) {
  std::vector<SearchedRun> searched;
  for (const ListedRun& run : runs) {
    const bool has_dollars = run.summary && run.ledger.has_dollars;
    searched.push_back(
        run.summary
            ? searched_run(*run.summary,
                           has_dollars ? std::optional(total(run.ledger.dollars)) : std::nullopt)
            : SearchedRun());
  }
  search.resolve(searched);
  std::vector<size_t> order(runs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (args.has("--sort")) {
    order = order_of(searched, whole_name(args.text("--sort"), searched, "--sort"),
                     args.flag("--reverse"));
  } else if (args.flag("--reverse")) {
    std::ranges::reverse(order);
  }
  std::vector<ListedRun> selected;
  for (const size_t i : order) {
    const bool is_found = runs[i].summary ? search.finds(searched[i]) : !args.has("--filter");
    if (is_found) selected.push_back(std::move(runs[i]));
  }
  runs = std::move(selected);
}

std::vector<Experiment> experiments_of(const std::vector<ListedRun>& runs) {
  std::map<std::string, std::vector<analysis::Ledger>> by_group;
  for (const ListedRun& run : runs) {
    if (!run.summary) continue;
    by_group[run.summary->run.group].push_back(run.ledger);
  }
  std::vector<Experiment> all;
  for (const auto& [name, ledgers] : by_group) {
    all.push_back({name, analysis::sum_of(ledgers), ledgers.size()});
  }
  return all;
}

base::Json run_row_json(const ListedRun& run) {
  if (!run.summary) {
    return {{"folder", run.folder.string()}, {"state", "unknown"}, {"error", run.failure}};
  }
  base::Json json = to_json(*run.summary);
  json.erase("events");
  json.erase("late_ranks");
  if (run.ledger.has_dollars) json["dollars"] = total(run.ledger.dollars);
  return json;
}

base::Json experiment_json(const Experiment& one) {
  base::Json json = analysis::to_json(one.ledger);
  json["group"] = one.name;
  json["runs"] = one.runs;
  return json;
}

std::string runs_text(const std::vector<ListedRun>& runs, int columns) {
  std::vector<std::vector<std::string>> rows;
  const auto or_empty = [](const std::optional<double>& value, const auto& text) {
    return value ? text(*value) : std::string();
  };
  const auto loss_text = [](double value) { return fmt::format("{:.4f}", value); };
  for (const ListedRun& run : runs) {
    if (!run.summary) {
      rows.push_back({base::printable(run.folder.filename().string()), "unknown", "", "", "", "",
                      "", base::printable(run.failure)});
      continue;
    }
    const RunSummary& s = *run.summary;
    rows.push_back(
        {base::printable(s.run.name), std::string(name_of(s.run.state)), step_text(s.run),
         or_empty(s.loss, loss_text), or_empty(s.validation_loss, loss_text),
         or_empty(s.tokens_per_second, [](double value) { return obs::grouped(value, 0); }),
         or_empty(s.age_seconds, age_text), base::printable(s.diagnosis.sentence)});
  }
  const obs::Column titles[] = {
      {"run", obs::Align::left},         {"state", obs::Align::left},
      {"step", obs::Align::right},       {"loss", obs::Align::right},
      {"validation", obs::Align::right}, {"tokens/s", obs::Align::right},
      {"age", obs::Align::right},        {"what is going on", obs::Align::left}};
  const std::string table = obs::table_text(titles, rows);
  if (columns <= 0) return table;
  std::string cut;
  for (size_t at = 0; at < table.size();) {
    const size_t end = std::min(table.find('\n', at), table.size());
    cut += obs::cut_to_columns(std::string_view(table).substr(at, end - at), columns);
    cut += '\n';
    at = end + 1;
  }
  return cut;
}

std::string experiments_text(const std::vector<Experiment>& experiments) {
  std::vector<std::vector<std::string>> rows;
  for (const Experiment& one : experiments) {
    const analysis::Ledger& ledger = one.ledger;
    rows.push_back({one.name.empty() ? "(no group)" : base::printable(one.name),
                    fmt::format("{}", one.runs), fmt::format("{}", ledger.attempts.size()),
                    fmt::format("{}", ledger.failures.size()),
                    fmt::format("{:.2f}", total(ledger.device_hours)),
                    fmt::format("{:.1f} %", 100 * ledger.useful_share()),
                    obs::count_text(ledger.tokens.trained),
                    ledger.has_dollars ? fmt::format("{:.2f}", total(ledger.dollars)) : ""});
  }
  const obs::Column titles[] = {
      {"experiment", obs::Align::left},    {"runs", obs::Align::right},
      {"attempts", obs::Align::right},     {"failures", obs::Align::right},
      {"device-hours", obs::Align::right}, {"useful", obs::Align::right},
      {"tokens", obs::Align::right},       {"$", obs::Align::right}};
  return obs::table_text(titles, rows);
}

int run_runs(const Args& args) {
  std::vector<std::string> folders = args.list("folders");
  if (args.flag("--diff")) return print_difference(args, folders);
  if (folders.empty()) {
    folders.emplace_back("runs");
    if (!fs::is_directory(folders.front())) {
      throw base::IoError(
          "runs: there is no such folder here; give the folders of runs, or folders that contain "
          "runs");
    }
  }
  const bool has_groups = args.flag("--group");
  RunSearch search(args.has("--filter") ? args.text("--filter") : "");
  const bool has_cost =
      search.names("cost") || (args.has("--sort") && args.text("--sort") == "cost");
  std::vector<ListedRun> runs = listed_runs(board::runs_of(folders), has_groups || has_cost);
  select_runs(args, std::move(search), runs);
  const std::vector<Experiment> experiments =
      has_groups ? experiments_of(runs) : std::vector<Experiment>();
  if (args.wants_json()) {
    base::Json json = {{"ok", true}, {"runs", base::Json::array()}};
    for (const ListedRun& run : runs) json["runs"].push_back(run_row_json(run));
    if (has_groups) {
      json["groups"] = base::Json::array();
      for (const Experiment& one : experiments) json["groups"].push_back(experiment_json(one));
    }
    fmt::print("{}\n", json.dump(-1, ' ', false, base::Json::error_handler_t::replace));
    return 0;
  }
  const int columns = obs::is_terminal(STDOUT_FILENO) ? obs::terminal_width(STDOUT_FILENO) : 0;
  fmt::print("{}", runs_text(runs, columns));
  if (has_groups) fmt::print("\n{}", experiments_text(experiments));
  return 0;
}

}  // namespace

Verb runs_verb() {
  return {
      .name = "runs",
      .summary = "List runs: state, step, loss, speed, and what is going on",
      .details =
          "Lists the runs in the given folders (default: runs/), the one that wrote last "
          "first. The files of runs are only read, so runs that are alive, have ended, were "
          "killed or copied are listed alike. A run whose files cannot be read is listed with "
          "the reason.\n\n"
          "With --group the runs are also added up by job.group: attempts, failures, "
          "device-hours, the part of them that trained tokens that were kept, and dollars if "
          "a price is known.\n\n"
          "--filter keeps the runs that match all of its words and conditions. A condition is a "
          "name, one of = != < <= > >= ~ (contains), and a value. Names are name, state, loss, "
          "validation, speed (tokens per second), mfu (percent), cost (dollars), step, steps, age "
          "and begin (seconds), group, tags, folder, lamp, sentence, and the keys of "
          "configurations; "
          "lr stands for optimizer.lr if no other key ends with it. --sort takes the same "
          "names.\n\n"
          "With --diff the keys are printed in which the configurations of two runs differ.\n\n"
          "Examples:\n"
          "  trireme runs\n"
          "  trireme runs runs/kjv --json\n"
          "  trireme runs runs --group\n"
          "  trireme runs runs --filter 'state=done loss<5' --sort validation\n"
          "  trireme runs --diff runs/kjv runs/bf16",
      .options = {{.name = "folders",
                   .kind = Kind::list,
                   .help = "Folders of runs, or folders that contain runs; default: runs"},
                  {.name = "--group",
                   .kind = Kind::flag,
                   .help = "Also add up the runs of each experiment (job.group)"},
                  {.name = "--filter",
                   .help = "Words and conditions: 'llama loss<3 optimizer.lr=0.001'"},
                  {.name = "--sort",
                   .help = "Column or key to sort by, the smallest first; default: the run that "
                           "wrote last first"},
                  {.name = "--reverse", .kind = Kind::flag, .help = "Turn the order round"},
                  {.name = "--diff",
                   .kind = Kind::flag,
                   .help = "Compare the configurations of two runs"}},
      .run = run_runs};
}

}  // namespace trireme::cli
