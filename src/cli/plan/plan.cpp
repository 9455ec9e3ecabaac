// SPDX-License-Identifier: Apache-2.0
// trireme plan: finds the layout of a job, and reports whether it fits, its time and its cost.
#include <chrono>
#include <filesystem>

#include "base/error.h"
#include "base/text/json.h"
#include "cli/plan/plan_job.h"
#include "cli/plan/plan_report.h"
#include "cli/plan/plan_validate.h"
#include "cli/plan/sizes/plan_deadline.h"
#include "cli/plan/sizes/plan_sizes.h"
#include "cli/shell/new_file.h"
#include "cli/verbs.h"
#include "obs/run_dir.h"
#include "spec/layout/layout_text.h"

namespace trireme::cli {
namespace {

using plan::Proposal;
using spec::Layout;

// Prints the state of the search on stderr every two seconds.
class SlowNotice {
 public:
  void show(std::string_view doing) {
    ++steps_;
    const auto now = std::chrono::steady_clock::now();
    if (now < next_) return;
    next_ = now + std::chrono::seconds(2);
    fmt::print(stderr, "plan: {}; {} examined in {:.0f} s\n", doing, steps_ - 1,
               std::chrono::duration<double>(now - began_).count());
  }

 private:
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point next_ = began_ + std::chrono::seconds(2);
  int steps_ = 0;  // searches begun and layouts examined
};

void write_config(const std::filesystem::path& file, const PlanQuestion& q, const Proposal& best,
                  bool may_replace) {
  const std::string text = plan_config(q, best);
  check_new_file({.path = file, .may_replace = may_replace, .option = "--out"});
  obs::write_file(file, text);
}

int explain(const Args& args) {
  const PlanQuestion q = plan_question(args);
  const std::vector<std::string>& texts = args.list("--explain");
  if (texts.size() != 2) {
    throw base::ConfigError(
        fmt::format("--explain: give two layouts, each as one text; found {}", texts.size()));
  }
  std::vector<Proposal> both;
  for (const std::string& text : texts) {
    const Layout layout = asked_layout(q, text);
    if (const std::string rule = plan::broken_rule(q.job, layout); !rule.empty()) {
      throw base::ConfigError(fmt::format("layout '{}': {}", text, rule));
    }
    both.push_back(plan::propose(q.job, q.machine, q.stack, layout));
  }
  const PlannedLayout a = planned_layout(q, both[0]), b = planned_layout(q, both[1]);
  if (args.wants_json()) {
    fmt::print("{}\n", comparison_json(q, a, b).dump());
  } else {
    fmt::print("{}", comparison_text(q, a, b));
  }
  return 0;
}

// Prints a report, and returns the exit code.
int print_answer(const Args& args, bool is_answered, const base::Json& json,
                 const std::string& text) {
  if (args.wants_json()) {
    fmt::print("{}\n", json.dump());
  } else {
    fmt::print("{}", text);
  }
  return is_answered ? 0 : 1;
}

int run_plan(const Args& args) {
  if (args.has("--validate")) return validate_plans(args);
  SlowNotice notice;
  const plan::PlanProgress progress = [&notice](std::string_view doing) { notice.show(doing); };
  if (asks_sizes(args)) {
    const SizesReport report = plan_sizes(args, progress);
    return print_answer(args, report.has_answer(), sizes_json(report), sizes_text(report));
  }
  if (args.has("--deadline")) {
    const DeadlineReport report = plan_deadline(args, progress);
    return print_answer(args, report.answer() != nullptr, deadline_json(report),
                        deadline_text(report));
  }
  if (!args.list("--explain").empty()) return explain(args);
  const PlanQuestion q = plan_question(args);
  const PlanReport report = plan_answer(q, progress);
  const bool is_written = report.best && args.has("--out");
  if (is_written) {
    write_config(args.text("--out"), q, report.best->proposal, args.flag("--overwrite"));
  }
  if (args.wants_json()) {
    fmt::print("{}\n", answer_json(report).dump());
  } else {
    fmt::print("{}", answer_text(report, args.flag("--long")));
    if (is_written) fmt::print("written   {}\n", args.text("--out"));
  }
  return report.best ? 0 : 1;
}

}  // namespace

Verb plan_verb() {
  std::vector<Option> options = plan_question_options();
  const std::vector<Option> more = {
      {.name = "--days",
       .kind = Kind::number,
       .help = "Without a model: the sizes that --gpus can train in so many days"},
      {.name = "--budget",
       .kind = Kind::number,
       .help = "Without a model: the sizes that --gpus can train for so many dollars"},
      {.name = "--deadline",
       .help = "With --tokens: the fewest GPUs that finish in so many days, or by a date "
               "(2027-01-31); --gpus is then the most that there are"},
      {.name = "--out", .help = "Configuration file for trireme train to write the answer to"},
      {.name = "--overwrite",
       .kind = Kind::flag,
       .help = "Replace the file of --out if it already exists"},
      {.name = "--long", .kind = Kind::flag, .help = "List all rejected layouts"},
      {.name = "--explain",
       .kind = Kind::list,
       .help = "Layout to compare with another one, term by term; give the option twice"},
      {.name = "--validate",
       .help =
           "File of measured runs, one JSON object per line, to compare with their predictions"},
      {.name = "--fit",
       .kind = Kind::flag,
       .help =
           "With --validate: also fit constants to the runs, and score the fit on held-out runs"}};
  options.insert(options.end(), more.begin(), more.end());
  return {
      .name = "plan",
      .summary = "Find the layout of a job: does it fit, how fast is it, what does it cost",
      .details =
          "Prices every layout of a job on a machine: time by term, memory by item. The best\n"
          "layouts are then planned exactly as the engine would run them. docs/planner.md "
          "describes\n"
          "the method. Without a model, --days or --budget asks which size the GPUs can train; "
          "with\n"
          "--tokens, --deadline asks how many GPUs finish in time. Exit code 1: nothing fits; the "
          "report lists changes that would fit.\n\n"
          "Examples:\n"
          "  trireme plan --model llama3.2-1b --machine h200 --gpus 8 --batch 512 --seq-len 4096\n"
          "  trireme plan --model llama3.2-1b --machine h200 --gpus 8 --batch 512 --tokens 20B\n"
          "  trireme plan --machine h100 --gpus 8 --days 7\n"
          "  trireme plan --machine h100 --gpus 8 --budget 5k --price 2.5\n"
          "  trireme plan --model llama3.1-8b --machine h100 --batch-tokens 2M --tokens 160B "
          "--deadline 30\n"
          "  trireme plan configs/llama-11m.toml --machine h200 --json\n"
          "  trireme plan --from-hf DIR --machine h100 --gpus 64 --batch-tokens 4e6\n"
          "  trireme plan --validate runs.jsonl",
      .options = std::move(options),
      .takes_overrides = true,
      .run = run_plan};
}

}  // namespace trireme::cli
