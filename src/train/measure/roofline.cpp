// SPDX-License-Identifier: Apache-2.0
#include "train/measure/roofline.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/check.h"
#include "base/text/json.h"
#include "obs/terminal/table.h"

namespace trireme::train {
namespace {

std::string family_of(const spec::OpCost& cost) {
  using spec::OpKind;
  switch (cost.kind) {
    case OpKind::gemm:
      return op_name(cost);
    case OpKind::attention_forward:
      return "attention forward";
    case OpKind::attention_backward:
      return "attention backward";
    case OpKind::norm_forward:
    case OpKind::norm_backward:
      return "norm";
    case OpKind::rope_forward:
    case OpKind::rope_backward:
      return "rope";
    case OpKind::swiglu_forward:
    case OpKind::swiglu_backward:
    case OpKind::gelu_forward:
      return "activation";
    case OpKind::cross_entropy_stats:
    case OpKind::cross_entropy_grad:
    case OpKind::cross_entropy_merge:
    case OpKind::cross_entropy:
      return "cross-entropy";
    case OpKind::embedding_forward:
    case OpKind::embedding_backward:
      return "embedding";
    case OpKind::sum_squares:
    case OpKind::merge_sums:
    case OpKind::step_control:
    case OpKind::adamw:
      return "optimizer";
    case OpKind::fill:
    case OpKind::copy:
    case OpKind::accumulate:
    case OpKind::init_normal:
      return "other";
  }
  return "other";
}

struct Unit {
  const char* prefix;
  double size;
};

// The largest unit of which `value` is at least one.
Unit unit_of(double value) {
  for (const Unit unit : {Unit{"T", 1e12}, Unit{"G", 1e9}, Unit{"M", 1e6}}) {
    if (value >= unit.size) return unit;
  }
  return {"k", 1e3};
}

// 0 where nothing was measured.
double ratio(double a, double b) { return b > 0 ? a / b : 0; }

}  // namespace

std::vector<FamilyTime> family_times(const std::vector<TimedOp>& ops, int64_t steps) {
  TRIREME_CHECK(steps > 0, "{} steps", steps);
  std::map<std::string, FamilyTime> by_name;
  const auto n = static_cast<double>(steps);
  for (const TimedOp& op : ops) {
    FamilyTime& family = by_name[family_of(op.cost)];
    family.flops += op.cost.flops / n;
    family.bytes += static_cast<double>(op.cost.bytes) / n;
    family.seconds += op.seconds() / n;
  }
  std::vector<FamilyTime> families;
  for (auto& [name, family] : by_name) {
    family.name = name;
    families.push_back(family);
  }
  std::stable_sort(families.begin(), families.end(),
                   [](const FamilyTime& a, const FamilyTime& b) { return a.seconds > b.seconds; });
  return families;
}

bool Roofline::is_compute_bound(const FamilyTime& family) const {
  return family.flops / flops.per_second > family.bytes / bandwidth.per_second;
}

double Roofline::bound_seconds(const FamilyTime& family) const {
  return std::max(family.flops / flops.per_second, family.bytes / bandwidth.per_second);
}

double Roofline::step_seconds() const {
  double sum = 0;
  for (const FamilyTime& family : families) sum += family.seconds;
  return sum;
}

std::string Roofline::text() const {
  // A CPU reaches thousandths of what a GPU does: each column has the unit of its largest value.
  FamilyTime largest;
  double largest_flop_rate = flops.per_second, largest_byte_rate = bandwidth.per_second;
  for (const FamilyTime& f : families) {
    largest.flops = std::max(largest.flops, f.flops);
    largest.bytes = std::max(largest.bytes, f.bytes);
    largest_flop_rate = std::max(largest_flop_rate, ratio(f.flops, f.seconds));
    largest_byte_rate = std::max(largest_byte_rate, ratio(f.bytes, f.seconds));
  }
  const Unit work = unit_of(largest.flops), moved = unit_of(largest.bytes);
  const Unit work_rate = unit_of(largest_flop_rate), moved_rate = unit_of(largest_byte_rate);
  const std::array<obs::Column, 9> columns = {{{"kernels", obs::Align::left},
                                               {work.prefix + std::string("FLOP")},
                                               {moved.prefix + std::string("B")},
                                               {"ms"},
                                               {work_rate.prefix + std::string("FLOP/s")},
                                               {moved_rate.prefix + std::string("B/s")},
                                               {"bound by", obs::Align::left},
                                               {"of bound"},
                                               {"of step"}}};
  std::vector<std::vector<std::string>> cells;
  const auto row = [&](const FamilyTime& f, const std::string& bound, double bound_share) {
    cells.push_back({f.name, fmt::format("{:.2f}", f.flops / work.size),
                     fmt::format("{:.2f}", f.bytes / moved.size),
                     fmt::format("{:.3f}", 1e3 * f.seconds),
                     fmt::format("{:.2f}", ratio(f.flops, f.seconds) / work_rate.size),
                     fmt::format("{:.2f}", ratio(f.bytes, f.seconds) / moved_rate.size), bound,
                     fmt::format("{:.1f} %", 100 * bound_share),
                     fmt::format("{:.1f} %", 100 * ratio(f.seconds, step_seconds()))});
  };
  FamilyTime sum{.name = "step"};
  double bound = 0;
  for (const FamilyTime& f : families) {
    row(f, is_compute_bound(f) ? "compute" : "memory", ratio(bound_seconds(f), f.seconds));
    sum.flops += f.flops;
    sum.bytes += f.bytes;
    sum.seconds += f.seconds;
    bound += bound_seconds(f);
  }
  cells.emplace_back();
  row(sum, "", ratio(bound, sum.seconds));
  return obs::table_text(columns, cells) +
         fmt::format(
             "peak {:.4g} {}FLOP/s ({}), {:.4g} {}B/s ({}); times are of uncaptured steps and "
             "hold the gaps between kernels\n",
             flops.per_second / work_rate.size, work_rate.prefix, flops.source,
             bandwidth.per_second / moved_rate.size, moved_rate.prefix, bandwidth.source);
}

base::Json Roofline::json() const {
  base::Json list = base::Json::array();
  for (const FamilyTime& f : families) {
    list.push_back({{"family", f.name},
                    {"flops", f.flops},
                    {"bytes", f.bytes},
                    {"ms", 1e3 * f.seconds},
                    {"tflops_per_second", ratio(f.flops, f.seconds) / 1e12},
                    {"tb_per_second", ratio(f.bytes, f.seconds) / 1e12},
                    {"bound", is_compute_bound(f) ? "compute" : "memory"},
                    {"of_bound", ratio(bound_seconds(f), f.seconds)},
                    {"of_step", ratio(f.seconds, step_seconds())}});
  }
  return {{"families", list},
          {"peak_tflops", flops.per_second / 1e12},
          {"peak_source", flops.source},
          {"bandwidth_tb_per_second", bandwidth.per_second / 1e12},
          {"bandwidth_source", bandwidth.source},
          {"ms_per_step", 1e3 * step_seconds()}};
}

}  // namespace trireme::train
