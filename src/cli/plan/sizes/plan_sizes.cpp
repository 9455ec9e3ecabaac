// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/sizes/plan_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "cli/plan/plan_batch.h"
#include "cli/plan/plan_source.h"
#include "cli/plan/plan_words.h"
#include "cli/verbs.h"
#include "config/files/model_file.h"
#include "plan/sizes/model_of_size.h"

namespace trireme::cli {
namespace {

constexpr int64_t default_seq_len = 4096;
constexpr double max_days = 36500;
// The share of the peak with which the search for a size begins; it has no effect on the answer.
constexpr double first_share = 0.4;

// What all rows have in common.
struct SizesQuestion {
  const Args& args;
  const plan::PlanProgress& progress;
  int64_t gpus = 0;
  double days = 0;
  double flops = 0;  // an estimate of what the GPUs compute in the time

  double seconds() const { return 86400 * days; }
};

const std::array<const char*, 5> sources = {"config", "--model", "--from-hf", "--from-megatron",
                                            "--from-torchtitan"};

bool has_source(const Args& args) {
  return std::ranges::any_of(sources, [&](const char* name) { return args.has(name); });
}

double positive(const Args& args, const std::string& name, double max, const char* unit) {
  const double value = args.number(name);
  if (!(value > 0) || value > max) {
    throw base::ConfigError(fmt::format("{} {}: must be above 0 and at most {:.0f} {}", name,
                                        args.text(name), max, unit));
  }
  return value;
}

// Sets sequences and batch of a job whose model is set. A batch that is not given is a usual one of
// the size, and divides by the GPUs.
void take_step(const SizesQuestion& of, PlanQuestion& q) {
  plan::Job& job = q.job;
  job.seq_len = std::min(job.model.max_seq, default_seq_len);
  take_seq_len(of.args, q);
  take_batch(of.args, q);
  q.gpus = of.gpus;
  if (job.global_batch > 0) return;
  const auto parameters = static_cast<double>(spec::active_parameter_count(job.model));
  const double tokens = plan::batch_tokens_for(parameters, of.flops / (6 * parameters));
  int64_t unit = of.gpus;
  while (unit % 2 == 0) unit /= 2;
  const double units = tokens / static_cast<double>(job.seq_len * unit);
  job.global_batch = unit * std::max<int64_t>(1, std::llround(units));
}

// Searches the layout of a row, and sets the tokens of the time.
void plan_row(const SizesQuestion& of, SizeRow& row) {
  PlanQuestion& q = row.question;
  complete_question(of.args, q);
  plan::SearchOptions options;
  options.gpus = q.gpus;
  options.space = q.space;
  options.memory_fraction = q.memory_fraction;
  const plan::Answer answer =
      plan::answer(q.job, q.machine, q.stack, options, {.progress = of.progress, .is_brief = true});
  const std::optional<plan::Proposal>& found = answer.best ? answer.best : answer.nearest;
  row.fits = answer.best.has_value();
  if (!found) {
    row.reason = answer.search.rejected.empty() ? "no layout is possible"
                                                : rejection_text(q, answer.search.rejected.front());
    return;
  }
  const double steps = std::floor(of.seconds() / found->confirmed.seconds);
  q.run_tokens = std::max(1.0, steps) * static_cast<double>(q.job.tokens());
  row.planned = planned_layout(q, *found);
  if (!row.fits) {
    const double room = q.machine.processor.memory_bytes * q.memory_fraction;
    row.reason = fmt::format("does not fit: {} a {}",
                             memory_share_text(static_cast<double>(row.planned->bytes), room),
                             gpu_word(q.machine));
    if (answer.state) {
      row.reason +=
          fmt::format("; at least {} hold its state", gpus_text(q.machine, answer.state->min_gpus));
    }
  } else if (steps < 1) {
    row.fits = false;
    row.reason =
        fmt::format("a step takes {:.4g} s, longer than the time", found->confirmed.seconds);
  }
}

SizeRow shape_row(const SizesQuestion& of, double parameters) {
  SizeRow row;
  const int64_t seq_len = of.args.has("--seq-len") ? of.args.integer("--seq-len") : default_seq_len;
  if (seq_len < 1 || seq_len > 1 << 24) {
    throw base::ConfigError(fmt::format("--seq-len {}: must be from 1 to {}", seq_len, 1 << 24));
  }
  row.shape = plan::model_of_size(
      std::clamp(parameters, plan::min_model_parameters, plan::max_model_parameters), seq_len);
  row.name = row.shape->name;
  row.question.model = row.name;
  row.question.job.model = spec::make_model(*row.shape);
  take_step(of, row.question);
  plan_row(of, row);
  return row;
}

// Finds the size that sees `ratio` tokens a parameter in the time.
SizeRow sized_row(const SizesQuestion& of, double ratio) {
  constexpr int max_tries = 5;
  constexpr double tolerance = 0.02;
  double parameters = std::sqrt(of.flops / (6 * ratio));
  SizeRow best;
  double least = 0;
  for (int i = 0; i < max_tries; ++i) {
    SizeRow row = shape_row(of, parameters);
    const double error = std::abs(std::log(row.tokens_per_parameter() / ratio));
    const double next = std::sqrt(row.tokens_per_parameter() / ratio);
    parameters = static_cast<double>(row.parameters()) * next;
    if (i == 0 || error < least) {
      best = std::move(row);
      least = error;
    }
    if (least < tolerance || !(next > 0)) break;
  }
  return best;
}

std::string kind_of_ratio(double ratio) {
  const double share = ratio / plan::compute_optimal_ratio;
  if (share < 0.75) return fmt::format("too few tokens ({:.0f} % of optimal)", 100 * share);
  if (share < 1.5) return "compute-optimal";
  return fmt::format("over-trained {:.{}f} x", share, share < 9.95 ? 1 : 0);
}

SizeRow model_row(const SizesQuestion& of, SizeRow row) {
  take_step(of, row.question);
  try {
    plan_row(of, row);
  } catch (const base::ConfigError& error) {
    row.fits = false;
    row.reason = error.what();
  }
  if (row.planned) row.what = kind_of_ratio(row.tokens_per_parameter());
  return row;
}

// A model that was shortened for tests, as llama3.1-8b-4l: "-" and a number of layers.
bool is_shortened(const std::string& name) {
  const size_t dash = name.rfind('-');
  if (dash == std::string::npos || !name.ends_with('l') || name.size() < dash + 3) return false;
  return std::all_of(name.begin() + static_cast<std::ptrdiff_t>(dash) + 1, name.end() - 1,
                     [](char c) { return c >= '0' && c <= '9'; });
}

// Returns the shipped dense models near a size, the smallest first.
std::vector<SizeRow> shipped_rows(const SizesQuestion& of, double optimal) {
  constexpr double smallest = 1.0 / 15, largest = 2.5;
  constexpr size_t max_rows = 8;
  std::vector<SizeRow> rows;
  for (const std::string& name : config::model_names(model_folders())) {
    if (is_shortened(name)) continue;
    const spec::ModelDims dims = config::model_from_file(name, model_folders());
    if (dims.moe || (of.args.has("--seq-len") && of.args.integer("--seq-len") > dims.max_seq)) {
      continue;
    }
    SizeRow row;
    row.name = row.question.model = name;
    row.question.job.model = spec::make_model(dims);
    const double size = static_cast<double>(row.parameters()) / optimal;
    const bool is_known = std::ranges::any_of(
        rows, [&](const SizeRow& one) { return one.parameters() == row.parameters(); });
    if (size < smallest || size > largest || is_known) continue;
    rows.push_back(std::move(row));
  }
  std::ranges::sort(rows, {}, &SizeRow::parameters);
  if (rows.size() > max_rows) {
    rows.erase(rows.begin(), rows.end() - static_cast<std::ptrdiff_t>(max_rows));
  }
  for (SizeRow& row : rows) row = model_row(of, std::move(row));
  return rows;
}

}  // namespace

bool SizesReport::has_answer() const {
  const auto fits = [](const SizeRow& row) { return row.fits; };
  return std::ranges::any_of(sizes, fits) || std::ranges::any_of(models, fits);
}

bool asks_sizes(const Args& args) {
  if (!args.has("--days") && !args.has("--budget")) return false;
  const char* given = args.has("--days") ? "--days" : "--budget";
  for (const char* other : {"--tokens", "--deadline", "--layout", "--out", "--critical-batch"}) {
    if (!args.has(other)) continue;
    throw base::ConfigError(fmt::format(
        "{} and {}: {} asks for the size and the tokens that the GPUs can train; {}", given, other,
        given,
        std::string_view(other) == "--tokens" || std::string_view(other) == "--deadline"
            ? "for the GPUs that a model and its tokens need give --tokens with --deadline"
            : "plan one of the sizes with " + std::string(other) + " afterwards"));
  }
  return true;
}

SizesReport plan_sizes(const Args& args, const plan::PlanProgress& progress) {
  const std::optional<int64_t> gpus = asked_gpus(args);
  SizesReport report;
  // Checks the options that do not depend on the size, and gives the price.
  PlanQuestion& base = report.question;
  SizesQuestion of{.args = args, .progress = progress};
  if (!gpus && !has_source(args)) {
    throw base::ConfigError("--days and --budget: also give the GPUs that there are, --gpus N");
  }
  std::optional<SizeRow> own;
  if (has_source(args)) {
    own.emplace();
    take_source(args, own->question);
    own->name = own->question.job.model.name;
    own->question.asked.reset();
    own->question.job.global_batch = 0;
    base.gpus = gpus.value_or(own->question.gpus);
  } else {
    base.gpus = *gpus;
  }
  if (base.gpus < 1) throw base::ConfigError("not enough to plan with: give --gpus N");
  base.job.model = spec::make_model(plan::model_of_size(1e9, default_seq_len));
  base.job.seq_len = base.job.global_batch = 1;
  complete_question(args, base);
  of.gpus = base.gpus;
  of.days = args.has("--days") ? positive(args, "--days", max_days, "days") : max_days;
  if (args.has("--budget")) {
    report.budget = positive(args, "--budget", 1e12, "dollars");
    if (!base.dollars_per_gpu_hour || *base.dollars_per_gpu_hour <= 0) {
      throw base::ConfigError(
          fmt::format("--budget: the machine file of {} has no price_per_hour: give --price, the "
                      "dollars of a GPU-hour",
                      base.machine.name));
    }
    const double hours =
        *report.budget / (*base.dollars_per_gpu_hour * static_cast<double>(of.gpus));
    of.days = std::min(of.days, hours / 24);
  }
  report.days = of.days;
  const spec::Processor& p = base.machine.processor;
  of.flops = first_share * std::max(p.bf16_flops, p.fp32_flops) * static_cast<double>(of.gpus) *
             of.seconds();
  if (own) {
    report.models.push_back(model_row(of, *std::move(own)));
    return report;
  }
  for (const double times : {1.0, 5.0, 10.0}) {
    const double ratio = times * plan::compute_optimal_ratio;
    SizeRow row = sized_row(of, ratio);
    // Near the smallest model several ratios have the same size.
    if (!report.sizes.empty() && report.sizes.back().parameters() == row.parameters()) continue;
    row.what = times == 1 ? "compute-optimal" : fmt::format("over-trained {:.0f} x", times);
    const bool is_met = std::abs(row.tokens_per_parameter() / ratio - 1) < 0.15;
    if (row.planned && !is_met) row.what = kind_of_ratio(row.tokens_per_parameter());
    report.sizes.push_back(std::move(row));
  }
  report.models = shipped_rows(of, static_cast<double>(report.sizes.front().parameters()));
  return report;
}

}  // namespace trireme::cli
