// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/op_time_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "obs/terminal/table.h"

namespace trireme::cli {
namespace {

struct Unit {
  const char* prefix;
  double size;
};

// Returns the largest unit that is at most `value`.
Unit unit_of(double value) {
  for (const Unit unit : {Unit{"T", 1e12}, Unit{"G", 1e9}, Unit{"M", 1e6}}) {
    if (value >= unit.size) return unit;
  }
  return {"k", 1e3};
}

// Returns 0 if nothing was measured.
double ratio(double a, double b) { return b > 0 ? a / b : 0; }

}  // namespace

std::string to_text(const train::Roofline& roofline) {
  // Each column has the unit of its largest value, since a CPU is about a thousand times slower
  // than a GPU.
  train::FamilyTime largest;
  double largest_flop_rate = roofline.flops.per_second,
         largest_byte_rate = roofline.bandwidth.per_second;
  for (const train::FamilyTime& f : roofline.families) {
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
  const auto row = [&](const train::FamilyTime& f, const std::string& bound, double bound_share) {
    cells.push_back({f.name, fmt::format("{:.2f}", f.flops / work.size),
                     fmt::format("{:.2f}", f.bytes / moved.size),
                     fmt::format("{:.3f}", 1e3 * f.seconds),
                     fmt::format("{:.2f}", ratio(f.flops, f.seconds) / work_rate.size),
                     fmt::format("{:.2f}", ratio(f.bytes, f.seconds) / moved_rate.size), bound,
                     fmt::format("{:.1f} %", 100 * bound_share),
                     fmt::format("{:.1f} %", 100 * ratio(f.seconds, roofline.step_seconds()))});
  };
  train::FamilyTime sum{.name = "step"};
  double bound = 0;
  for (const train::FamilyTime& f : roofline.families) {
    row(f, roofline.is_compute_bound(f) ? "compute" : "memory",
        ratio(roofline.bound_seconds(f), f.seconds));
    sum.flops += f.flops;
    sum.bytes += f.bytes;
    sum.seconds += f.seconds;
    bound += roofline.bound_seconds(f);
  }
  cells.emplace_back();
  row(sum, "", ratio(bound, sum.seconds));
  return obs::table_text(columns, cells) + fmt::format(
                                               "peak {:.4g} {}FLOP/s ({}), {:.4g} {}B/s ({}); "
                                               "times are of uncaptured steps and include the "
                                               "gaps between kernels\n",
                                               roofline.flops.per_second / work_rate.size,
                                               work_rate.prefix, roofline.flops.source,
                                               roofline.bandwidth.per_second / moved_rate.size,
                                               moved_rate.prefix, roofline.bandwidth.source);
}

std::string to_text(const std::vector<train::OpTime>& times, int64_t steps) {
  std::string out;
  const auto n = static_cast<double>(steps);
  for (const train::OpTime& time : times) {
    const double seconds = std::max(time.seconds, 1e-9);
    out += fmt::format("{:9.3f} ms a step  {:5.0f} x  {:9.1f} GFLOP/s  {:8.1f} GB/s  {}\n",
                       1e3 * time.seconds / n, static_cast<double>(time.count) / n,
                       time.flops / seconds / 1e9, time.bytes / seconds / 1e9, time.name);
  }
  return out;
}

}  // namespace trireme::cli
