// SPDX-License-Identifier: Apache-2.0
#include "plan/price/expert_cost.h"

#include <algorithm>
#include <cmath>

#include "base/shape.h"
#include "plan/price/collective.h"
#include "plan/price/op_time.h"
#include "spec/experts/expert_rows.h"

namespace trireme::plan {

using spec::CommKind;
using spec::OpKind;

bool is_grouped_product(OpKind kind) {
  switch (kind) {
    case OpKind::grouped_forward:
    case OpKind::grouped_swiglu_forward:
    case OpKind::grouped_backward_input:
    case OpKind::grouped_swiglu_backward:
    case OpKind::grouped_backward_weight:
      return true;
    default:
      return false;
  }
}

bool is_row_op(OpKind kind) {
  switch (kind) {
    case OpKind::router_forward:
    case OpKind::router_backward:
    case OpKind::route_rows:
    case OpKind::arrange_rows:
    case OpKind::gather_pairs:
    case OpKind::sum_pairs:
      return true;
    default:
      return false;
  }
}

double busiest_share(const Job& job, const spec::MoeSpec& moe, int ep) {
  return std::clamp(job.expert_imbalance, 1.0, spec::largest_row_budget(moe, ep));
}

double grouped_seconds(const Job& job, const spec::Machine& machine, const spec::Backend& backend,
                       const spec::MoeSpec& moe, const LayerKey& key, const spec::OpCost& op,
                       const ProductFormat& format) {
  const int64_t groups = std::max<int64_t>(1, moe.router.experts / key.ep);
  const double share = busiest_share(job, moe, key.ep);
  const double rows = static_cast<double>(op.m) * share / static_cast<double>(groups);
  const int64_t each =
      base::round_up(std::max<int64_t>(1, std::llround(rows)), backend.expert_tile);
  const auto bytes = static_cast<double>(op.bytes);
  const Product product = op.kind == OpKind::grouped_backward_weight
                              ? Product{op.n, op.k, each, groups, bytes, true, format.float8}
                              : Product{each, op.n, op.k, groups, bytes, false, format.float8};
  return gemm_seconds(machine.processor, product, format.precision);
}

double copies_between_nodes(const spec::RouterSpec& router, int64_t nodes) {
  if (nodes <= 1) return 0;
  const auto n = static_cast<double>(nodes), chosen = static_cast<double>(router.chosen);
  double copies = n * (1 - std::pow(1 - 1 / n, chosen));
  if (router.groups > 1) copies = std::min(copies, static_cast<double>(router.chosen_groups));
  return copies * (n - 1) / n;
}

namespace {

double exchange_seconds(const spec::Machine& machine, const Stack& stack, const spec::MoeSpec& moe,
                        const LayerKey& key, double bytes) {
  const Group group{key.ep, int64_t{key.etp} * key.stages_between};
  if (!stack.two_level_dispatch) {
    return collective_seconds(machine, Collective::all_to_all, group, bytes);
  }
  const double copies = copies_between_nodes(moe.router, domains_of(machine, group));
  return two_level_seconds(machine, group, bytes, copies / static_cast<double>(moe.router.chosen));
}

}  // namespace

double expert_seconds(const Job& job, const spec::Machine& machine, const Stack& stack,
                      const spec::MoeSpec& moe, const LayerKey& key,
                      const std::vector<spec::CommCost>& all) {
  // The engine sends blocks of a fixed size; other programs send the rows that there are, most of
  // them to the busiest rank.
  const double share = stack.is_engine() ? 1 : busiest_share(job, moe, key.ep);
  const bool fixed = sums_in_fixed_order(job, stack);
  double seconds = 0;
  for (const spec::CommCost& comm : all) {
    const auto bytes =
        static_cast<double>(comm.elements) * static_cast<double>(base::size_of(comm.dtype));
    if (comm.axis == spec::Axis::etp && comm.kind == CommKind::all_gather) {
      seconds += collective_seconds(machine, Collective::all_gather, {key.etp, 1}, share * bytes);
    } else if (comm.axis == spec::Axis::etp) {
      seconds +=
          sum_seconds(machine, Collective::reduce_scatter, {key.etp, 1}, share * bytes, fixed);
    } else if (comm.axis == spec::Axis::ep && comm.kind == CommKind::all_to_all) {
      seconds += exchange_seconds(machine, stack, moe, key, share * bytes);
    } else if (comm.axis == spec::Axis::ep) {
      // The loads of experts, over the ranks that have other tokens.
      seconds += sum_seconds(machine, Collective::all_reduce, {comm.ranks, 1}, bytes, fixed);
    }
  }
  return seconds * (1 - stack.ep_overlap);
}

}  // namespace trireme::plan
