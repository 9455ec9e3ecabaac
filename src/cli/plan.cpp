// SPDX-License-Identifier: Apache-2.0
// trireme plan: will it fit, how fast will it be, which layout, and why not that one.
#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "cli/plan_job.h"
#include "cli/plan_report.h"
#include "cli/plan_validate.h"
#include "cli/verbs.h"
#include "obs/run_dir.h"
#include "plan/config_text.h"
#include "plan/layout_text.h"

namespace trireme::cli {
namespace {

using plan::Layout;
using plan::Proposal;

// The layout that the question came with, priced as the program that it came from would run it.
std::optional<Proposal> priced(const PlanQuestion& q) {
  if (!q.asked) return {};
  if (q.asked->processors() != q.processors) {
    throw base::ConfigError(fmt::format("{} is of {} processors, and there are {}",
                                        plan::words(*q.asked), q.asked->processors(),
                                        q.processors));
  }
  if (const std::string rule = plan::broken_rule(q.job, *q.asked); !rule.empty()) {
    throw base::ConfigError(fmt::format("layout '{}': {}", plan::to_text(*q.asked), rule));
  }
  return plan::propose(q.job, q.machine, q.own_stack ? *q.own_stack : q.stack, *q.asked);
}

void write_config(const std::filesystem::path& file, const PlanQuestion& q, const Proposal& best,
                  bool may_replace) {
  if (!best.confirmed.problem.empty()) {
    throw base::ConfigError(fmt::format("--out: the engine does not run {}: {}",
                                        plan::words(best.layout), best.confirmed.problem));
  }
  if (q.model.empty()) {
    throw base::ConfigError(
        "--out: a configuration names its model by a file; give it as --model or --from-hf");
  }
  if (std::filesystem::exists(file) && !may_replace) {
    throw base::IoError(fmt::format("{}: there already; --overwrite replaces it", file.string()));
  }
  const std::string comment =
      fmt::format("trireme plan: {} on {} x {}.\n{}\n{:.4g} s a step predicted, {:.1f} GB.",
                  q.job.model.name, q.processors, q.machine.name, plan::to_text(best.layout),
                  best.confirmed.seconds, best.confirmed.bytes / 1e9);
  const plan::Stack& stack = q.stack;
  obs::write_file(
      file, plan::config_text(q.job, best.layout,
                              {.model = q.model,
                               .comment = comment,
                               .bf16_grads = stack.grad_bytes < 4,
                               .bf16_sums = stack.reduce_bytes < stack.grad_bytes,
                               .half_masters = plan::master_of(stack, best.layout.precision) ==
                                               base::DType::u16}));
}

int explain(const Args& args) {
  const PlanQuestion q = plan_question(args);
  const std::vector<std::string>& texts = args.list("--explain");
  if (texts.size() != 2) {
    throw base::ConfigError(
        fmt::format("--explain: two layouts, each as one text, not {}", texts.size()));
  }
  std::vector<Proposal> both;
  for (const std::string& text : texts) {
    const Layout layout = plan::layout_from_text(text, q.processors);
    if (const std::string rule = plan::broken_rule(q.job, layout); !rule.empty()) {
      throw base::ConfigError(fmt::format("layout '{}': {}", text, rule));
    }
    both.push_back(plan::propose(q.job, q.machine, q.stack, layout));
  }
  if (args.wants_json()) {
    fmt::print("{}\n", comparison_json(q, both[0], both[1]).dump());
  } else {
    fmt::print("{}", comparison_text(q, both[0], both[1]));
  }
  return 0;
}

int run_plan(const Args& args) {
  if (args.has("--validate")) return validate_plans(args);
  if (!args.list("--explain").empty()) return explain(args);
  const PlanQuestion q = plan_question(args);
  plan::SearchOptions options;
  options.processors = q.processors;
  options.space = q.space;
  options.memory_fraction = q.memory_fraction;
  PlanAsked asked{priced(q), {}};
  if (asked.layout && q.own_stack) {
    asked.better =
        plan::better_than(q.job, q.machine, *q.own_stack, options, asked.layout->price, 3);
  }
  const plan::Answer answer = plan::answer(q.job, q.machine, q.stack, options);
  if (answer.best && args.has("--out")) {
    write_config(args.text("--out"), q, *answer.best, args.flag("--overwrite"));
  }
  if (args.wants_json()) {
    fmt::print("{}\n", answer_json(q, answer, asked).dump());
  } else {
    fmt::print("{}", answer_text(q, answer, asked, args.flag("--long")));
    if (answer.best && args.has("--out")) fmt::print("written   {}\n", args.text("--out"));
  }
  return answer.best ? 0 : 1;
}

}  // namespace

Verb plan_verb() {
  std::vector<Option> options = plan_question_options();
  const std::vector<Option> more = {
      {.name = "--out", .help = "Write the answer as a configuration for trireme train"},
      {.name = "--overwrite", .kind = Kind::flag, .help = "Replace that file"},
      {.name = "--long", .kind = Kind::flag, .help = "List everything that was rejected"},
      {.name = "--explain",
       .kind = Kind::list,
       .help = "Compare two layouts term by term; given twice, one layout each"},
      {.name = "--validate", .help = "Predict the runs of this file, one JSON object a line"},
      {.name = "--fit",
       .kind = Kind::flag,
       .help = "Fit constants to them, too, and score the fit on runs held out"}};
  options.insert(options.end(), more.begin(), more.end());
  return {.name = "plan",
          .summary = "Find the fastest layout of a job, and say why",
          .details =
              "Prices every layout of a job on a machine: time by term, memory by item. The answer "
              "is\nlooked at once more as the engine would run it. docs/planner.md says how.\n"
              "Exit code 1: nothing fits; the text says what would have to change.\n\n"
              "Examples:\n"
              "  trireme plan --model llama-1b --machine h200 --gpus 8 --batch 512 --seq-len 4096\n"
              "  trireme plan configs/llama-11m.toml --machine h200 --json\n"
              "  trireme plan --from-hf DIR --machine h100 --gpus 64 --batch-tokens 4e6\n"
              "  trireme plan --validate runs.jsonl",
          .options = std::move(options),
          .takes_overrides = true,
          .run = run_plan};
}

}  // namespace trireme::cli
