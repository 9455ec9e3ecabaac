// SPDX-License-Identifier: Apache-2.0
#include "plan/price/context_cost.h"

#include <algorithm>

#include "plan/price/collective.h"

namespace trireme::plan {
namespace {

using spec::CommKind;
using spec::ContextComm;

// Returns the exposed seconds of one direction.
double exposed_seconds(const spec::Machine& machine, const Stack& stack, int tp,
                       const std::vector<ContextComm>& comms, double compute) {
  double exposed = 0, hidden = 0;
  int heads = 1;
  for (const ContextComm& comm : comms) {
    const double seconds = context_comm_seconds(machine, comm, tp);
    if (comm.kind == CommKind::all_to_all) {
      exposed += seconds;
    } else if (comm.kind == CommKind::shift) {
      hidden += seconds;
    } else {
      heads = comm.count;
      exposed += seconds / heads;
      hidden += seconds - seconds / heads;
    }
  }
  // While one head computes, the next one is gathered: the compute of one head hides nothing.
  const double window = heads > 1 ? compute * (heads - 1) / heads : compute;
  return exposed + std::max(hidden - stack.cp_overlap * window, 0.0);
}

}  // namespace

spec::ContextShape context_shape(const Job& job, const Stack& stack, const LayerKey& key,
                                 const spec::AttentionShape& attention) {
  spec::ContextShape shape;
  shape.sequences = key.micro_batch;
  shape.seq_len = job.seq_len;
  shape.heads = attention.heads;
  shape.kv_heads = attention.kv_heads;
  shape.head_dim = attention.head_dim;
  shape.dtype = attention.dtype;
  shape.grad_dtype = stack.is_engine() ? base::DType::f32 : attention.dtype;
  shape.cp = key.cp;
  shape.kind = key.context_kind;
  shape.ulysses = std::max(key.ulysses, 1);
  return shape;
}

double context_comm_seconds(const spec::Machine& machine, const ContextComm& comm, int tp) {
  const Group group{comm.ranks, int64_t{comm.stride} * tp};
  const auto bytes =
      static_cast<double>(comm.elements) * static_cast<double>(base::size_of(comm.dtype));
  double seconds = 0;
  if (comm.kind == CommKind::shift) {
    // The slowest hop counts: one that leaves the domain, if any does.
    const bool leaves = group.size * group.stride > machine.domain.size;
    seconds = message_seconds(
        machine, leaves ? std::max(group.stride, machine.domain.size) : group.stride, bytes);
  } else {
    const Collective kind = comm.kind == CommKind::all_to_all   ? Collective::all_to_all
                            : comm.kind == CommKind::all_gather ? Collective::all_gather
                            : comm.kind == CommKind::all_reduce ? Collective::all_reduce
                                                                : Collective::reduce_scatter;
    seconds = collective_seconds(machine, kind, group, bytes);
  }
  return comm.count * seconds;
}

ContextSeconds context_seconds(const spec::Machine& machine, const Stack& stack,
                               const LayerKey& key, const spec::ContextShape& shape,
                               const ContextSeconds& compute) {
  const spec::ContextComms comms = spec::context_comm(shape);
  return {exposed_seconds(machine, stack, key.tp, comms.forward, compute.forward),
          exposed_seconds(machine, stack, key.tp, comms.backward, compute.backward)};
}

}  // namespace trireme::plan
