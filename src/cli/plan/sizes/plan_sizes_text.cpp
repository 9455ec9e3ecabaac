// SPDX-License-Identifier: Apache-2.0
// Formats the table of sizes of `trireme plan --days`.
#include <fmt/format.h>

#include <algorithm>

#include "base/text/json.h"
#include "cli/plan/plan_words.h"
#include "cli/plan/sizes/plan_sizes.h"
#include "config/files/model_file.h"
#include "obs/terminal/number_text.h"
#include "plan/sizes/model_of_size.h"
#include "spec/layout/layout_text.h"

namespace trireme::cli {
namespace {

using base::Json;

constexpr const char* ratio_source = "Hoffmann et al. 2022, arXiv:2203.15556";

std::string shape_text(const spec::ModelDims& d) {
  return fmt::format("{} layers of width {}, {} heads of {}, feed-forward {}, vocabulary {}",
                     d.layers, obs::grouped(d.hidden), d.heads, d.head_dim, obs::grouped(d.ffn),
                     obs::grouped(d.vocab));
}

std::string row_text(const SizeRow& row, bool has_price) {
  std::string text =
      fmt::format("{:16} {:>8}", row.name, amount_text(static_cast<double>(row.parameters())));
  if (!row.fits) return text + "  " + row.reason;
  const PlannedLayout& p = *row.planned;
  const double ratio = row.tokens_per_parameter();
  text += fmt::format(" {:>8} {:>9} {:>12}", amount_text(row.tokens()),
                      obs::grouped(ratio, ratio < 99.95 ? 1 : 0), days_text(p.run->days));
  if (has_price) text += fmt::format(" {:>10}", p.run->dollars ? money_text(*p.run->dollars) : "-");
  return text + fmt::format("  {:>5.1f} %  {:>9}  {}", 100 * p.rates.mfu,
                            memory_text(static_cast<double>(p.bytes)), row.what);
}

// Returns the largest shipped model that fits and sees enough tokens, or else the one that comes
// nearest to it; null if none fits.
const SizeRow* next_model(const SizesReport& r) {
  constexpr double enough = 0.75 * plan::compute_optimal_ratio;
  const SizeRow* best = nullptr;
  for (const SizeRow& row : r.models) {
    if (!row.fits) continue;
    const double ratio = row.tokens_per_parameter();
    if (best == nullptr || ratio >= enough || ratio > best->tokens_per_parameter()) best = &row;
  }
  return best;
}

// 132600000000 -> "132.6B", as an option takes it.
std::string short_number(double count) {
  if (count >= 1e12) return fmt::format("{:.4g}T", count / 1e12);
  if (count >= 1e9) return fmt::format("{:.4g}B", count / 1e9);
  return fmt::format("{:.4g}M", count / 1e6);
}

Json row_json(const SizeRow& row) {
  Json json = {{"model", row.name},
               {"what", row.what},
               {"parameters", row.parameters()},
               {"shape", row.shape ? config::to_json(*row.shape) : Json()},
               {"tokens", row.tokens()},
               {"tokens_per_parameter", row.tokens_per_parameter()},
               {"global_batch", row.question.job.global_batch},
               {"seq_len", row.question.job.seq_len},
               {"fits", row.fits},
               {"reason", row.reason},
               {"best", nullptr},
               {"nearest", nullptr}};
  if (row.planned) json[row.fits ? "best" : "nearest"] = planned_json(row.question, *row.planned);
  return json;
}

}  // namespace

std::vector<std::string> SizesReport::assumptions() const {
  std::vector<std::string> all = {fmt::format("{:.0f} tokens a parameter are compute-optimal ({})",
                                              plan::compute_optimal_ratio, ratio_source)};
  const auto has_usual_batch = [](const SizeRow& row) { return row.question.assumed.empty(); };
  if (std::ranges::any_of(sizes, has_usual_batch)) {
    all.emplace_back(
        "batches of 0.5 to 4 M tokens by size (Brown et al. 2020, table 2.1), at least 1,000 "
        "steps");
  }
  return all;
}

std::string sizes_text(const SizesReport& r) {
  const PlanQuestion& q = r.question;
  std::string text;
  const auto line = [&text](const std::string& label, const std::string& words) {
    text += fmt::format("{:10}{}\n", label, words);
  };
  const std::string limit = r.budget
                                ? fmt::format("{} for {}", money_text(*r.budget), days_text(r.days))
                                : days_text(r.days);
  const std::string price =
      q.dollars_per_gpu_hour ? fmt::format(" at {:.2f} $/GPU-hour", *q.dollars_per_gpu_hour) : "";
  line("question", fmt::format("what {} x {} can train in {}{}", obs::grouped(q.gpus),
                               q.machine.name, limit, price));
  for (const std::string& assumed : r.assumptions()) line("assumed", assumed);
  const bool has_price = q.dollars_per_gpu_hour.has_value();
  line("", fmt::format("{:16} {:>8} {:>8} {:>9} {:>12}{}  {:>7}  {:>9}", "model", "size", "tokens",
                       "a param.", "time", has_price ? fmt::format(" {:>10}", "cost") : "", "MFU",
                       "memory"));
  const auto rows = [&](const std::string& label, const std::vector<SizeRow>& list) {
    for (const SizeRow& row : list) {
      line(&row == &list.front() ? label : "", row_text(row, has_price));
    }
  };
  rows("sizes", r.sizes);
  for (const SizeRow& row : r.sizes) {
    if (row.shape) line("", fmt::format("{}: {}", row.name, shape_text(*row.shape)));
  }
  rows("models", r.models);
  const auto layout_line = [&](const std::string& label, const SizeRow& row) {
    line(label,
         fmt::format("{}: {:.4g} s a step of {} tokens: {}", row.name, row.planned->seconds(),
                     amount_text(static_cast<double>(row.question.job.tokens())),
                     named_layout(row.planned->proposal.layout)));
  };
  const std::vector<SizeRow>& shown = r.sizes.empty() ? r.models : r.sizes;
  bool is_first = true;
  for (const SizeRow& row : shown) {
    if (!row.fits) continue;
    layout_line(is_first ? "layouts" : "", row);
    is_first = false;
  }
  if (!has_price) {
    line("price", fmt::format("not known: with --price, the dollars of a GPU-hour, rows have their "
                              "cost ({} has no price_per_hour)",
                              q.machine.name));
  }
  if (const SizeRow* next = next_model(r)) {
    line("next",
         fmt::format(
             "trireme plan --model {} --machine {} --gpus {} --batch {} --seq-len "
             "{} --tokens {}{}",
             next->name, q.machine.name, q.gpus, next->question.job.global_batch,
             next->question.job.seq_len, short_number(next->tokens()),
             q.dollars_per_gpu_hour ? fmt::format(" --price {}", *q.dollars_per_gpu_hour) : ""));
  }
  return text;
}

Json sizes_json(const SizesReport& r) {
  const PlanQuestion& q = r.question;
  Json json = {
      {"ok", r.has_answer()},
      {"question", "sizes"},
      {"machine", q.machine.name},
      {"gpus", q.gpus},
      {"days", r.days},
      {"budget", r.budget ? Json(*r.budget) : Json()},
      {"dollars_per_gpu_hour", q.dollars_per_gpu_hour ? Json(*q.dollars_per_gpu_hour) : Json()},
      {"compute_optimal_tokens_per_parameter", plan::compute_optimal_ratio},
      {"source", ratio_source},
      {"assumed", r.assumptions()},
      {"sizes", Json::array()},
      {"models", Json::array()}};
  for (const SizeRow& row : r.sizes) json["sizes"].push_back(row_json(row));
  for (const SizeRow& row : r.models) json["models"].push_back(row_json(row));
  return json;
}

}  // namespace trireme::cli
