// SPDX-License-Identifier: Apache-2.0
#include "plan/context/context_cost.h"

#include <algorithm>

#include "plan/price/collective.h"

namespace trireme::plan {

using spec::CommKind;

double context_comm_seconds(const spec::Machine& machine, const LayerKey& key,
                            const spec::CommCost& comm, bool in_fixed_order) {
  const int64_t stride = comm.is_inner ? key.tp : int64_t{key.tp} * key.ulysses;
  const Group group{comm.ranks > 0 ? comm.ranks : key.cp, stride};
  const auto bytes =
      static_cast<double>(comm.elements) * static_cast<double>(base::size_of(comm.dtype));
  switch (comm.kind) {
    case CommKind::shift: {
      // The slowest hop counts: one that leaves the domain, if any does.
      const bool leaves = group.size * group.stride > machine.domain.size;
      return message_seconds(machine, leaves ? std::max(stride, machine.domain.size) : stride,
                             bytes);
    }
    case CommKind::all_to_all:
      return collective_seconds(machine, Collective::all_to_all, group, bytes);
    case CommKind::all_gather:
      return collective_seconds(machine, Collective::all_gather, group, bytes);
    case CommKind::reduce_scatter:
      return sum_seconds(machine, Collective::reduce_scatter, group, bytes, in_fixed_order);
    case CommKind::all_reduce:
    case CommKind::count:
      break;
  }
  return sum_seconds(machine, Collective::all_reduce, group, bytes, in_fixed_order);
}

double context_seconds(const spec::Machine& machine, const Stack& stack, const LayerKey& key,
                       const std::vector<spec::CommCost>& comms, double compute,
                       bool in_fixed_order) {
  double exposed = 0, gathers = 0, sums = 0, hops = 0;
  int calls = 0, summed = 0;
  for (spec::CommCost comm : comms) {
    if (comm.axis != spec::Axis::cp) continue;
    const bool is_16_bits = !stack.is_engine() && key.precision != Precision::fp32;
    if (is_16_bits && comm.dtype == base::DType::f32) comm.dtype = base::DType::bf16;
    const double seconds = context_comm_seconds(machine, key, comm, in_fixed_order);
    switch (comm.kind) {
      case CommKind::all_gather:
        gathers += seconds;
        ++calls;
        break;
      case CommKind::reduce_scatter:
        sums += seconds;
        ++summed;
        break;
      case CommKind::shift:
        hops += seconds;
        break;
      default:
        exposed += seconds;
    }
  }
  if (calls == 0) return exposed + std::max(hops - stack.cp_overlap * compute, 0.0);
  // While one call computes, the next one's keys are gathered and the last one's sums are sent: the
  // first gather and the last sum have no compute beside them.
  const double first = gathers / calls, last = summed > 0 ? sums / summed : 0;
  const double window = stack.cp_overlap * compute * (calls - 1) / calls;
  return exposed + first + last + std::max(gathers - first + sums - last - window, 0.0);
}

}  // namespace trireme::plan
