// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/plan_validate.h"

#include <fmt/format.h>

#include <map>

#include "base/error.h"
#include "base/text/count_text.h"
#include "base/text/json.h"
#include "cli/plan/plan_words.h"
#include "cli/shell/progress.h"
#include "cli/verbs.h"
#include "config/document.h"
#include "config/files/machine_file.h"
#include "config/files/stack_file.h"
#include "plan/validate/fit.h"
#include "spec/layout/layout_text.h"

namespace trireme::cli {
namespace {

using base::Json;
using plan::ErrorSummary;
using plan::PublishedRun;
using plan::Validated;

std::vector<PublishedRun> published_runs_of(const Args& args) {
  // There are many runs and few files: each file is read once.
  std::map<std::string, spec::Machine> machines;
  std::map<std::string, spec::Stack> stacks;
  const plan::Finders find = {[&](const std::string& name) {
                                const auto [found, is_new] = machines.try_emplace(name);
                                if (is_new)
                                  found->second =
                                      config::machine_from_file(name, machine_folders());
                                return found->second;
                              },
                              [&](const std::string& name) {
                                const auto [found, is_new] = stacks.try_emplace(name);
                                if (is_new)
                                  found->second = config::stack_from_file(name, stack_folders());
                                return found->second;
                              }};
  const std::string file = args.text("--validate");
  return plan::published_runs(config::read_text(file), find, file);
}

// Returns a summary per source, then one of models with experts, one of dense models in 16 bits,
// and one of all runs.
std::vector<ErrorSummary> summaries(const std::vector<Validated>& rows) {
  std::map<std::string, std::vector<Validated>> sources;
  std::vector<Validated> dense, experts;
  for (const Validated& row : rows) {
    sources[row.run->source].push_back(row);
    if (plan::is_dense_16(*row.run)) dense.push_back(row);
    if (plan::has_experts(row.run->job)) experts.push_back(row);
  }
  std::vector<ErrorSummary> all;
  for (const auto& [source, own] : sources) all.push_back(plan::summary_of(own, source));
  all.push_back(plan::summary_of(experts, "with experts"));
  all.push_back(plan::summary_of(dense, "dense, 16 bits"));
  all.push_back(plan::summary_of(rows, "all"));
  return all;
}

// Returns a line, or nothing if there are no such runs.
std::string summary_text(const ErrorSummary& s) {
  if (s.timed + s.weighed == 0) return {};
  std::string text =
      fmt::format("{:5} runs  {:6.1f} %  bias {:+6.1f} %", s.timed, 100 * s.time, 100 * s.bias);
  text += s.weighed > 0 ? fmt::format("  memory {:5.1f} % of {}", 100 * s.memory, s.weighed)
                        : std::string(22, ' ');
  return fmt::format("{}  {}\n", text, s.name);
}

Json summaries_json(const std::vector<ErrorSummary>& all) {
  const auto one = [](const ErrorSummary& s) {
    return Json{{"name", s.name}, {"runs", s.timed},          {"mean_abs_error", s.time},
                {"bias", s.bias}, {"memory_runs", s.weighed}, {"memory_mean_abs_error", s.memory}};
  };
  Json json = one(all.back());
  json["dense_16"] = one(all[all.size() - 2]);
  json["experts"] = one(all[all.size() - 3]);
  json["by_source"] = Json::array();
  for (size_t i = 0; i + 3 < all.size(); ++i) json["by_source"].push_back(one(all[i]));
  return json;
}

Json row_json(const Validated& row) {
  const PublishedRun& run = *row.run;
  Json json = {{"id", run.id},
               {"source", run.source},
               {"layout", spec::to_text(run.layout)},
               {"machine", run.machine.name},
               {"stack", run.stack.name},
               {"predicted_seconds", row.price.seconds},
               {"predicted_bytes", run.bytes > 0 ? row.bytes : row.price.bytes},
               {"assumed", run.assumed},
               {"taken", run.assumed}};  // "taken": the old name of "assumed"
  json["measured_seconds"] = run.seconds > 0 ? Json(run.seconds) : Json(nullptr);
  json["error"] = run.seconds > 0 ? Json(row.time_error) : Json(nullptr);
  json["measured_bytes"] = run.bytes > 0 ? Json(run.bytes) : Json(nullptr);
  json["memory_error"] = run.bytes > 0 ? Json(row.memory_error) : Json(nullptr);
  return json;
}

std::string row_text(const Validated& row) {
  const PublishedRun& run = *row.run;
  std::string text = fmt::format("{:48.48}", run.id);
  text += run.seconds > 0 ? fmt::format("{:>11.4g} s {:>11.4g} s {:+7.1f} %", row.price.seconds,
                                        run.seconds, 100 * row.time_error)
                          : std::string(36, ' ');
  if (run.bytes > 0) {
    text += fmt::format(" {:>10} {:>10} {:+6.1f} %", memory_text(row.bytes), memory_text(run.bytes),
                        100 * row.memory_error);
  }
  return text + "\n";
}

struct Fits {
  std::vector<plan::Fitted> constants;
  std::vector<ErrorSummary> fitted, by_source, by_hash;
};

Fits make_fits(const std::vector<PublishedRun>& runs) {
  Fits fits;
  Progress progress("fit", "%", 100);
  std::vector<PublishedRun> all = runs, train = runs;
  fits.constants = plan::fit(train, all);
  fits.fitted = summaries(plan::validate(all));
  progress.update(5);
  const plan::HeldOut hash = plan::hash_split(
      runs, [&](double done) { progress.update(5 + static_cast<int64_t>(10 * done)); });
  fits.by_hash = summaries(hash.rows);
  const plan::HeldOut sources = plan::leave_one_source_out(
      runs, [&](double done) { progress.update(15 + static_cast<int64_t>(85 * done)); });
  fits.by_source = summaries(sources.rows);
  progress.finish();
  return fits;
}

Json fits_json(const Fits& fits) {
  Json constants = Json::array();
  for (const plan::Fitted& f : fits.constants) {
    if (f.runs == 0) continue;
    constants.push_back(
        {{"name", f.name}, {"shipped", f.shipped}, {"fitted", f.fitted}, {"runs", f.runs}});
  }
  return {{"constants", constants},
          {"in_sample", summaries_json(fits.fitted)},
          {"leave_one_source_out", summaries_json(fits.by_source)},
          {"hash_split", summaries_json(fits.by_hash)}};
}

void print_fits(const Fits& fits) {
  fmt::print("\nfit       constants, shipped and fitted to these runs\n");
  for (const plan::Fitted& f : fits.constants) {
    if (f.runs == 0) continue;
    fmt::print("          {:32} {:>10.4g} {:>10.4g}  {} runs\n", f.name, f.shipped, f.fitted,
               f.runs);
  }
  const auto part = [](const char* title, const std::vector<ErrorSummary>& all) {
    fmt::print("\n{}\n", title);
    for (const ErrorSummary& s : all) fmt::print("{}", summary_text(s));
  };
  part("fitted to these runs", fits.fitted);
  part("each source predicted by a fit to all others", fits.by_source);
  part("each half, by a hash of the id, predicted by a fit to the other", fits.by_hash);
}

}  // namespace

int validate_plans(const Args& args) {
  const std::vector<PublishedRun> runs = published_runs_of(args);
  const std::vector<Validated> rows = plan::validate(runs);
  const std::vector<ErrorSummary> all = summaries(rows);
  std::optional<Fits> fits;
  if (args.flag("--fit")) fits = make_fits(runs);
  if (args.wants_json()) {
    Json json = {{"ok", true}, {"summary", summaries_json(all)}};
    json["rows"] = Json::array();
    for (const Validated& row : rows) json["rows"].push_back(row_json(row));
    json["not_predicted"] = Json::array();
    for (const PublishedRun& run : runs) {
      if (run.reason.empty()) continue;
      json["not_predicted"].push_back(
          {{"id", run.id}, {"source", run.source}, {"reason", run.reason}});
    }
    if (fits) json["fit"] = fits_json(*fits);
    fmt::print("{}\n", json.dump());
    return 0;
  }
  fmt::print("{:48}{:>13} {:>13} {:>9}\n", "run", "predicted", "measured", "error");
  for (const Validated& row : rows) fmt::print("{}", row_text(row));
  std::map<std::string, int> reasons;
  for (const PublishedRun& run : runs) {
    if (!run.reason.empty()) ++reasons[run.reason];
  }
  for (const auto& [reason, count] : reasons) {
    fmt::print("not predicted: {}: {}\n", base::count_text(count, "run"), reason);
  }
  fmt::print("\nmean absolute error of the step time\n");
  for (const ErrorSummary& s : all) fmt::print("{}", summary_text(s));
  if (fits) print_fits(*fits);
  return 0;
}

}  // namespace trireme::cli
