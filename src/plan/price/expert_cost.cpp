// SPDX-License-Identifier: Apache-2.0
#include "plan/price/expert_cost.h"

#include <algorithm>

#include "plan/price/collective.h"
#include "plan/price/op_time.h"

namespace trireme::plan {
namespace {

constexpr double storage_bytes = 2;

}  // namespace

int64_t shared_width(const Experts& experts, int tp) {
  return std::max<int64_t>(experts.shared_ffn, int64_t{8} * tp);
}

void add_experts(const Job& job, const spec::Machine& machine, const Stack& stack,
                 const LayerKey& key, LayerCost& cost) {
  const Experts& e = *job.experts;
  const auto& block = spec::typical_block(job.model);
  const int64_t tokens = key.micro_batch * job.seq_len / key.cp;
  // Each rank along tp works on its share of the rows, with or without sequence parallelism.
  const int64_t rows = std::max<int64_t>(1, tokens * e.chosen / key.tp);
  const int64_t local = std::max<int64_t>(1, e.count / key.ep);
  const int64_t each = std::max<int64_t>(1, rows / local);
  const bool gated = block.activation == spec::Activation::swiglu;
  const int64_t up = gated ? 2 * e.ffn : e.ffn;
  const spec::Processor& p = machine.processor;
  const auto seconds = [&](int64_t m, int64_t n, int64_t k, bool accumulates) {
    const double bytes =
        storage_bytes * static_cast<double>(local) * static_cast<double>(m * k + n * k + m * n);
    return stack.gemm * gemm_seconds(p, {m, n, k, local, bytes, accumulates}, key.precision);
  };
  const auto moved = [&](double columns) {
    return streaming_seconds(p,
                             stack.streaming * storage_bytes * static_cast<double>(rows) * columns);
  };
  const auto width = static_cast<double>(block.width), inner = static_cast<double>(up);
  const auto ffn = static_cast<double>(e.ffn);
  // Rows are permuted into the order of their experts and back, each a read and a write.
  const double ordering = 2 * moved(2 * width);
  cost.f += seconds(each, up, block.width, false) + seconds(each, block.width, e.ffn, false) +
            moved(inner + ffn) + ordering;
  cost.b += seconds(each, e.ffn, block.width, false) + seconds(each, block.width, up, false) +
            moved(2 * inner + 2 * ffn) + ordering;
  cost.w += seconds(e.ffn, block.width, each, true) + seconds(up, block.width, each, true);
  cost.f_kernels += 12;
  cost.b_kernels += 16;
  const double flops = 2 * static_cast<double>(rows) * width * (inner + ffn);
  cost.flops += 3 * flops;
  cost.cut_flops += 3 * flops * key.tp;
  // Dispatch to the experts' ranks and back, along cp and dp, starting in the rank's own domain.
  const double bytes = static_cast<double>(rows) * width * storage_bytes;
  const double once = collective_seconds(machine, Collective::all_to_all, {key.ep, key.tp}, bytes);
  cost.f_ep += 2 * once * (1 - stack.ep_overlap);
  cost.b_ep += 2 * once * (1 - stack.ep_overlap);
  cost.expert_params += static_cast<double>(local) * width * (inner + ffn);
  const double act = storage_bytes * static_cast<double>(rows);
  if (key.recompute == spec::Recompute::full) {
    cost.r += cost.f;
    cost.expert_working += act * (2 * width + inner + ffn);
  } else {
    cost.kept_for_w +=
        act * (2 * width + inner + (key.recompute == spec::Recompute::none ? ffn : 0.0));
    cost.expert_working += act * (inner + width);
  }
}

}  // namespace trireme::plan
