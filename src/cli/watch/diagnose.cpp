// SPDX-License-Identifier: Apache-2.0
// trireme diagnose: predicted against measured, and the causes of the difference.
#include <fmt/format.h>

#include <charconv>

#include "analysis/diagnosis.h"
#include "base/error.h"
#include "base/text/count_text.h"
#include "base/text/printable.h"
#include "cli/verbs.h"
#include "cli/watch/diagnosis_text.h"
#include "obs/clock.h"

namespace trireme::cli {
namespace {

struct StepRange {
  int64_t first = 0, last = 0;
};

StepRange step_range(const std::string& text) {
  StepRange range;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, range.first);
  const bool has_colon = first.ec == std::errc{} && first.ptr != end && *first.ptr == ':';
  const auto last = has_colon ? std::from_chars(first.ptr + 1, end, range.last) : first;
  if (!has_colon || last.ec != std::errc{} || last.ptr != end || range.first < 1 ||
      range.last < range.first) {
    throw base::ConfigError(fmt::format(
        "--steps {}: give the first and the last step as FIRST:LAST, such as 100:400", text));
  }
  return range;
}

int run_diagnose(const Args& args) {
  analysis::RunRecord run = analysis::read_run(args.text("run"), obs::wall_seconds());
  if (args.has("--steps")) {
    const StepRange range = step_range(args.text("--steps"));
    run = analysis::only_steps(std::move(run), range.first, range.last);
  }
  const analysis::Diagnosis diagnosis = analysis::diagnose(run);
  if (args.wants_json()) {
    base::Json answer = {{"ok", true}, {"run", run.folder.string()}, {"name", run.name}};
    answer.update(analysis::to_json(diagnosis));
    answer["problems"] = run.problems;
    fmt::print("{}\n", answer.dump(-1, ' ', false, base::Json::error_handler_t::replace));
    return 0;
  }
  fmt::print("{}: {}\n", base::printable(run.name), base::printable(diagnosis.sentence));
  const analysis::Waterfall& fall = diagnosis.waterfall;
  if (fall.is_measured) {
    fmt::print("\nwhere a step's time goes (means over {}, steps {} to {}):\n{}",
               base::count_text(std::ssize(run.ranks_shape.rows), "rank"), fall.first_step,
               fall.last_step, waterfall_text(fall));
    if (!fall.predicted_seconds && run.prediction.is_object() && run.prediction.contains("why") &&
        run.prediction.at("why").is_string()) {
      fmt::print("no time is predicted: {}\n",
                 base::printable(run.prediction.at("why").get<std::string>()));
    }
  }
  if (!diagnosis.findings.empty()) {
    fmt::print("\ncauses, the largest first:\n{}", findings_text(diagnosis.findings));
  }
  for (const std::string& problem : run.problems)
    fmt::print("note: {}\n", base::printable(problem));
  return 0;
}

}  // namespace

Verb diagnose_verb() {
  return {
      .name = "diagnose",
      .summary = "Show why a run is slower than predicted, or why it ended",
      .details =
          "Reads the files of a run, which may be running, ended, killed or copied, and changes "
          "nothing. It prints one sentence, the time of a step by term (predicted, measured, "
          "difference), and the causes in the order of their cost, each with its figures and "
          "what to change. `unknown` means that something is off and no rule explains it.\n\n"
          "The exit code is 0 whether or not a cause was found; --json has `findings` to test "
          "for.\n\n"
          "Examples:\n"
          "  trireme diagnose runs/kjv\n"
          "  trireme diagnose runs/kjv --steps 100:400\n"
          "  trireme diagnose runs/kjv --json",
      .options = {{.name = "run", .help = "Run's folder", .is_required = true},
                  {.name = "--steps", .help = "First and last step to judge, as 100:400"}},
      .run = run_diagnose};
}

}  // namespace trireme::cli
