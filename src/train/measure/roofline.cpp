// SPDX-License-Identifier: Apache-2.0
#include "train/measure/roofline.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "base/text/json.h"

namespace trireme::train {
namespace {

std::string family_of(const spec::OpCost& cost) {
  using spec::OpKind;
  switch (cost.kind) {
    case OpKind::gemm:
      return op_name(cost);
    case OpKind::attention_forward:
    case OpKind::attention_ranges_forward:
      return "attention forward";
    case OpKind::attention_backward:
    case OpKind::attention_ranges_backward:
      return "attention backward";
    case OpKind::attention_merge:
    case OpKind::gather_rows:
      return "context parallel";
    case OpKind::row_product:
    case OpKind::scatter_rows:
    case OpKind::attention_cached:
      return "decoding";
    case OpKind::norm_forward:
    case OpKind::norm_backward:
      return "norm";
    case OpKind::rope_forward:
    case OpKind::rope_backward:
      return "rope";
    case OpKind::swiglu_forward:
    case OpKind::swiglu_backward:
    case OpKind::gelu_forward:
    case OpKind::clamp:
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
    case OpKind::add_layers:
    case OpKind::merge_sums:
    case OpKind::merge_records:
    case OpKind::step_control:
    case OpKind::gate:
    case OpKind::adamw:
    case OpKind::momentum:
    case OpKind::normalize:
    case OpKind::muon:
      return "optimizer";
    case OpKind::router_forward:
    case OpKind::router_backward:
    case OpKind::router_bias:
    case OpKind::router_overflow:
    case OpKind::router_fill:
    case OpKind::route_rows:
    case OpKind::arrange_rows:
    case OpKind::gather_pairs:
    case OpKind::sum_pairs:
      return "routing";
    case OpKind::grouped_forward:
    case OpKind::grouped_swiglu_forward:
    case OpKind::grouped_swiglu:
    case OpKind::grouped_backward_input:
    case OpKind::grouped_swiglu_backward:
    case OpKind::grouped_backward_weight:
      return "experts";
    case OpKind::amax:
    case OpKind::quantize:
    case OpKind::transpose:
    case OpKind::weight_amax:
    case OpKind::weight_quantize:
    case OpKind::collect_amax:
    case OpKind::rotate_amax:
      return "quantise";
    case OpKind::fill:
    case OpKind::copy:
    case OpKind::accumulate:
    case OpKind::init_normal:
    case OpKind::content_sum:
      return "other";
  }
  return "other";
}

// Returns 0 if nothing was measured.
double quotient(double a, double b) { return b > 0 ? a / b : 0; }

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

base::Json Roofline::json() const {
  base::Json list = base::Json::array();
  for (const FamilyTime& f : families) {
    list.push_back({{"family", f.name},
                    {"flops", f.flops},
                    {"bytes", f.bytes},
                    {"ms", 1e3 * f.seconds},
                    {"tflops_per_second", quotient(f.flops, f.seconds) / 1e12},
                    {"tb_per_second", quotient(f.bytes, f.seconds) / 1e12},
                    {"bound", is_compute_bound(f) ? "compute" : "memory"},
                    {"of_bound", quotient(bound_seconds(f), f.seconds)},
                    {"of_step", quotient(f.seconds, step_seconds())}});
  }
  return {{"families", list},
          {"peak_tflops", flops.per_second / 1e12},
          {"peak_source", flops.source},
          {"bandwidth_tb_per_second", bandwidth.per_second / 1e12},
          {"bandwidth_source", bandwidth.source},
          {"ms_per_step", 1e3 * step_seconds()}};
}

}  // namespace trireme::train
