// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/sizes/plan_deadline.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/text/json.h"
#include "cli/plan/plan_words.h"
#include "cli/shell/number_words.h"
#include "obs/clock.h"
#include "obs/terminal/number_text.h"
#include "train/report/throughput.h"

namespace trireme::cli {
namespace {

constexpr int64_t default_max_gpus = 65536;
constexpr double max_deadline_days = 36500;
constexpr size_t max_trials = 24;
// More GPUs may need less recompute, so each of them may be faster by about this factor.
constexpr double max_gain_of_each = 1.4;

// Returns the numbers to try, ascending.
std::vector<int64_t> counts_to_try(int64_t domain, int64_t max) {
  std::vector<int64_t> counts;
  for (const int64_t odd : {1, 3, 5, 7}) {
    for (int64_t n = odd; n <= max; n *= 2) {
      if (n <= domain || n % domain == 0) counts.push_back(n);
    }
    for (int64_t n = odd * domain; n <= max; n *= 2) counts.push_back(n);
  }
  std::ranges::sort(counts);
  counts.erase(std::ranges::unique(counts).begin(), counts.end());
  return counts;
}

// Returns the days of the run on one GPU at its peak.
double days_at_peak(const PlanQuestion& q) {
  const spec::Processor& p = q.machine.processor;
  double peak = std::max(p.bf16_flops, p.fp32_flops);
  for (const spec::Precision precision : q.space.precision) {
    if (spec::is_fp8(precision)) peak = std::max(peak, p.fp8_flops);
    if (precision == spec::Precision::fp4) peak = std::max(peak, p.fp4_flops);
  }
  const double flops =
      train::formula_flops_per_token(q.job.model, q.job.seq_len) * q.run_tokens.value_or(0);
  return flops / peak / 86400;
}

std::string does_not_fit(const PlanQuestion& q, const plan::Answer& answer) {
  if (answer.nearest) {
    const double room = q.machine.processor.memory_bytes * q.memory_fraction;
    const PlannedLayout nearest = planned_layout(q, *answer.nearest);
    return fmt::format("does not fit: {} a {}",
                       memory_share_text(static_cast<double>(nearest.bytes), room),
                       gpu_word(q.machine));
  }
  if (!answer.search.rejected.empty()) {
    return "no layout: " + rejection_text(q, answer.search.rejected.front());
  }
  return "no layout is possible";
}

GpuTrial trial_of(const Args& args, int64_t gpus, double days, const plan::PlanProgress& progress) {
  GpuTrial trial{.gpus = gpus};
  try {
    trial.question = plan_question(args, gpus);
    PlanQuestion& q = trial.question;
    q.asked.reset();
    plan::SearchOptions options;
    options.gpus = gpus;
    options.space = q.space;
    options.memory_fraction = q.memory_fraction;
    const plan::Answer answer =
        plan::answer(q.job, q.machine, q.stack, options, {.progress = progress, .is_brief = true});
    if (!answer.best) {
      trial.reason = does_not_fit(q, answer);
      return trial;
    }
    trial.planned = planned_layout(q, *answer.best);
    if (trial.planned->run->days > days) {
      trial.reason = fmt::format("takes {}", days_text(trial.planned->run->days));
    }
  } catch (const base::ConfigError& error) {
    trial.reason = error.what();
  }
  return trial;
}

}  // namespace

double days_until(std::string_view deadline, double now) {
  if (const auto days = number_from(deadline)) {
    if (!(*days > 0) || *days > max_deadline_days) {
      throw base::ConfigError(fmt::format("--deadline {}: must be above 0 and at most {:.0f} days",
                                          deadline, max_deadline_days));
    }
    return *days;
  }
  const auto part = [&](size_t at, size_t count) {
    int value = -1;
    const char* const begin = deadline.data() + at;
    const auto [end, error] = std::from_chars(begin, begin + count, value);
    return error == std::errc() && end == begin + count ? value : -1;
  };
  const bool has_form = deadline.size() == 10 && deadline[4] == '-' && deadline[7] == '-';
  const int year = has_form ? part(0, 4) : -1, month = has_form ? part(5, 2) : -1,
            day = has_form ? part(8, 2) : -1;
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!has_form || year < 0 || month < 0 || day < 0 || !date.ok()) {
    throw base::ConfigError(fmt::format(
        "--deadline {}: expected a number of days, as 30, or a date, as 2027-01-31", deadline));
  }
  const auto seconds =
      std::chrono::duration<double>(std::chrono::sys_days(date).time_since_epoch()).count();
  const double days = (seconds - now) / 86400;
  if (!(days > 0)) {
    throw base::ConfigError(
        fmt::format("--deadline {}: this day began {}; give a later one", deadline,
                    days > -1 ? "today" : fmt::format("{:.0f} days ago", std::ceil(-days))));
  }
  return days;
}

DeadlineReport plan_deadline(const Args& args, const plan::PlanProgress& progress) {
  for (const char* other : {"--layout", "--out", "--days", "--budget"}) {
    if (!args.has(other)) continue;
    throw base::ConfigError(
        fmt::format("{}: --deadline asks for the number of GPUs; plan that number with {} "
                    "afterwards",
                    other, other));
  }
  if (!args.has("--tokens")) {
    throw base::ConfigError(
        "--deadline: also give --tokens, the tokens of the run (and no --gpus, or the most that "
        "there are)");
  }
  DeadlineReport report;
  report.days = days_until(args.text("--deadline"), obs::wall_seconds());
  const int64_t max = asked_gpus(args).value_or(default_max_gpus);
  report.question = plan_question(args, 1);
  const PlanQuestion& q = report.question;
  const std::vector<int64_t> counts = counts_to_try(q.machine.domain.size, max);
  // Numbers that cannot be enough need no search.
  const double at_peak = days_at_peak(q);
  const plan::StateNeed state = plan::state_need(
      q.job, q.machine, q.stack, {.space = q.space, .memory_fraction = q.memory_fraction});
  const auto by_peak = static_cast<int64_t>(std::ceil(at_peak / report.days));
  report.first_gpus = std::max<int64_t>({1, by_peak, state.min_gpus});
  if (report.first_gpus > 1) {
    report.ruled_out = by_peak >= state.min_gpus
                           ? fmt::format("take more than {} even at the peak of the machine",
                                         days_text(report.days))
                           : fmt::format("do not hold weights, gradients and optimizer ({})",
                                         memory_text(state.bytes));
  }
  double least = 0;  // GPUs that may be enough, judging by those that were tried
  double best_days = 0;
  int64_t best_gpus = 0;
  for (const int64_t gpus : counts) {
    if (gpus < report.first_gpus || static_cast<double>(gpus) < least) continue;
    if (report.trials.size() == max_trials || (best_gpus > 0 && gpus > 16 * best_gpus)) break;
    report.trials.push_back(trial_of(args, gpus, report.days, progress));
    const GpuTrial& trial = report.trials.back();
    if (trial.reason.empty()) break;
    if (!trial.planned) continue;
    const double days = trial.planned->run->days;
    least = static_cast<double>(gpus) * days / report.days / max_gain_of_each;
    if (best_gpus == 0 || days < best_days) {
      best_days = days;
      best_gpus = gpus;
    }
  }
  return report;
}

std::string deadline_text(const DeadlineReport& r) {
  const PlanQuestion& q = r.question;
  std::string text;
  const auto line = [&text](const std::string& label, const std::string& words) {
    text += fmt::format("{:10}{}\n", label, words);
  };
  line("question",
       fmt::format("how many {} train {} ({} parameters) on {} tokens in {}: {} sequences of {} "
                   "tokens a step",
                   q.machine.name, q.job.model.name,
                   amount_text(static_cast<double>(spec::parameter_count(q.job.model))),
                   amount_text(*q.run_tokens), days_text(r.days), obs::grouped(q.job.global_batch),
                   obs::grouped(q.job.seq_len)));
  for (const std::string& assumed : q.assumed) line("assumed", assumed);
  if (!r.ruled_out.empty()) {
    line("tried", fmt::format("fewer than {} {}", gpus_text(q.machine, r.first_gpus), r.ruled_out));
  }
  for (const GpuTrial& trial : r.trials) {
    const bool is_first = r.ruled_out.empty() && &trial == &r.trials.front();
    line(is_first ? "tried" : "", fmt::format("{}: {}", gpus_text(q.machine, trial.gpus),
                                              trial.reason.empty() ? "enough" : trial.reason));
  }
  const GpuTrial* answer = r.answer();
  if (answer == nullptr) {
    line("answer", fmt::format("no number of {} that was tried finishes in {}; give more days, a "
                               "larger --batch, or --precision with 8 bits",
                               q.machine.name, days_text(r.days)));
    return text;
  }
  const PlannedLayout& p = *answer->planned;
  line("answer", fmt::format("{}: {}", gpus_text(q.machine, answer->gpus), run_text(*p.run)));
  line("", fmt::format(
               "{:.4g} s a step (+-{:.0f} %), MFU {:.1f} %; {} a {}", p.seconds(),
               100 * p.proposal.band.time, 100 * p.rates.mfu,
               memory_share_text(static_cast<double>(p.bytes), q.machine.processor.memory_bytes),
               gpu_word(q.machine)));
  line("", named_layout(p.proposal.layout));
  const double late = p.run->days * (1 + p.proposal.band.time);
  if (late > r.days) {
    line("warning", fmt::format("at the slow end of its band it takes {}; restarts, evaluation and "
                                "queues come on top",
                                days_text(late)));
  }
  line("next", fmt::format("the same question with --gpus {} and without --deadline shows its plan",
                           answer->gpus));
  return text;
}

base::Json deadline_json(const DeadlineReport& r) {
  using base::Json;
  const PlanQuestion& q = r.question;
  const GpuTrial* answer = r.answer();
  Json trials = Json::array();
  for (const GpuTrial& trial : r.trials) {
    const bool has_run = trial.planned && trial.planned->run;
    trials.push_back({{"gpus", trial.gpus},
                      {"is_enough", trial.reason.empty()},
                      {"reason", trial.reason},
                      {"days", has_run ? Json(trial.planned->run->days) : Json()}});
  }
  Json json = {{"ok", answer != nullptr},
               {"question", "deadline"},
               {"model", q.job.model.name},
               {"machine", q.machine.name},
               {"tokens", *q.run_tokens},
               {"deadline_days", r.days},
               {"global_batch", q.job.global_batch},
               {"seq_len", q.job.seq_len},
               {"assumed", q.assumed},
               {"first_gpus", r.first_gpus},
               {"ruled_out", r.ruled_out},
               {"trials", trials},
               {"gpus", nullptr},
               {"best", nullptr}};
  if (answer != nullptr) {
    json["gpus"] = answer->gpus;
    json["best"] = planned_json(answer->question, *answer->planned);
  }
  return json;
}

}  // namespace trireme::cli
