// SPDX-License-Identifier: Apache-2.0
#include "plan/price/context_cost.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "plan/price/price.h"
#include "plan/samples_test.h"
#include "spec/facts/facts.h"

namespace trireme::plan {
namespace {

using spec::Axis;
using spec::CommCost;
using spec::CommKind;

LayerKey key_of(int cp, int ulysses = 1) {
  LayerKey key;
  key.cp = cp;
  key.ulysses = ulysses;
  return key;
}

// One link of 50 GB/s between any two GPUs, without latency.
spec::Machine slow_links() {
  spec::Machine machine = shipped_machine("h100");
  machine.domain.size = 1;
  machine.domain.link = machine.network.link = {};
  machine.network.link.bytes_per_second = 50e9;
  machine.network.reach = 1;
  return machine;
}

std::vector<CommCost> gathers(int calls, int64_t elements, bool backward) {
  std::vector<CommCost> all(static_cast<size_t>(calls),
                            {CommKind::all_gather, Axis::cp, elements, base::DType::bf16, 8});
  if (!backward) return all;
  for (int i = 0; i < calls; ++i) {
    all.push_back({CommKind::reduce_scatter, Axis::cp, elements, base::DType::f32, 8});
  }
  return all;
}

// Plays compute and transfers on a stream each: before call i computes, its keys must have come;
// the keys of call i + 1 come next, then the sums of call i - 1.
double played_exposed(int calls, double gather, double sum, double compute) {
  double wire = gather, clock = 0;
  std::vector<double> arrived = {gather};
  for (int i = 0; i < calls; ++i) {
    clock = std::max(clock, arrived.back()) + compute;
    if (i + 1 < calls) arrived.push_back(wire += gather);
    // Sums of this call leave when it is computed.
    wire = std::max(wire, clock) + sum;
  }
  return std::max(wire, clock) - calls * compute;
}

TEST(ContextCost, gathers_hide_under_the_compute_of_the_call_before) {
  Stack stack = trireme_stack();
  stack.cp_overlap = 1;
  const spec::Machine machine = slow_links();
  const LayerKey key = key_of(8);
  const int64_t elements = int64_t{2} * 131072 * 128;
  const double gather = context_comm_seconds(machine, key, gathers(1, elements, false).front());
  EXPECT_NEAR(gather, 7.0 / 8 * static_cast<double>(elements) * 2 / 50e9, 1e-9);
  for (const double ratio : {1.0, 1.5, 4.0}) {
    const double compute = ratio * gather;
    EXPECT_NEAR(context_seconds(machine, stack, key, gathers(8, elements, false), 8 * compute),
                played_exposed(8, gather, 0, compute), 1e-9);
  }
  // In the backward, if compute takes longer than both transfers.
  EXPECT_NEAR(context_seconds(machine, stack, key, gathers(8, elements, true), 8 * 4 * gather),
              played_exposed(8, gather, 2 * gather, 4 * gather), 1e-9);
  // Without compute nothing hides.
  EXPECT_NEAR(context_seconds(machine, stack, key, gathers(8, elements, false), 0), 8 * gather,
              1e-9);
}

// Llama 3 8B, 131,072 tokens on 8 ranks with links of 50 GB/s: at most 15 % of the gather is
// exposed.
TEST(ContextCost, one_eighth_of_the_gather_of_a_long_sequence_is_exposed) {
  const spec::Machine machine = slow_links();
  const Job job = job_of("llama-8b", 8, 131072);
  Layout l;
  l.cp = 8;
  l.zero_stage = 1;
  const LayerCost cost = Pricer(job, machine, trireme_stack()).layers(filled(job, l)).block;
  constexpr double whole = 469762048 / 50e9;
  EXPECT_LE(cost.f_cp, 0.15 * whole);
  EXPECT_GE(cost.f_cp, 0.12 * whole);
}

TEST(ContextCost, exchanges_of_heads_are_exposed_and_rings_hide) {
  Stack stack = trireme_stack();
  stack.cp_overlap = 1;
  const spec::Machine machine = shipped_machine("h100");
  const LayerKey key = key_of(8, 8);
  const std::vector<CommCost> exchange = {
      {CommKind::all_to_all, Axis::cp, 1 << 24, base::DType::bf16, 8, true}};
  const double seconds = context_comm_seconds(machine, key, exchange.front());
  EXPECT_GT(seconds, 0);
  EXPECT_DOUBLE_EQ(context_seconds(machine, stack, key, exchange, 1), seconds);
  const std::vector<CommCost> ring(7, {CommKind::shift, Axis::cp, 1 << 24, base::DType::bf16, 8});
  EXPECT_DOUBLE_EQ(context_seconds(machine, stack, key_of(8), ring, 1), 0);
  EXPECT_DOUBLE_EQ(context_seconds(machine, stack, key_of(8), ring, 0),
                   7 * context_comm_seconds(machine, key_of(8), ring.front()));
  // Collectives along tp are not these.
  EXPECT_EQ(context_seconds(machine, stack, key, {{CommKind::all_gather, Axis::tp, 1 << 24}}, 0),
            0);
}

TEST(ContextCost, contiguous_slices_leave_half_of_the_ranks_idle) {
  const spec::Machine machine = shipped_machine("h100");
  const Job job = job_of("llama-8b", 8, 131072);
  const auto forward = [&](spec::ContextSlices slices) {
    Layout l;
    l.cp = 8;
    l.zero_stage = 1;
    l.context_slices = slices;
    return Pricer(job, machine, trireme_stack()).layers(filled(job, l)).block.f;
  };
  const double even = forward(spec::ContextSlices::zigzag);
  EXPECT_GT(forward(spec::ContextSlices::contiguous), 1.5 * even);
  EXPECT_LT(forward(spec::ContextSlices::contiguous), 15.0 / 8 * even);
  EXPECT_NEAR(forward(spec::ContextSlices::striped) / even, 1, 1e-3);
}

// Ranks along cp share the work: the model's FLOPs do not depend on their number.
TEST(ContextCost, flops_of_a_step_are_those_of_one_rank) {
  const spec::Machine machine = shipped_machine("h100");
  const Job job = job_of("llama-8b", 8, 16384);
  Pricer pricer(job, machine, trireme_stack());
  const double one = pricer.price({}).model_flops;
  for (const char* text :
       {"cp=2", "cp=4 kind=ring", "cp=4 kind=ulysses", "tp=2 cp=4", "cp=8 kind=ulysses_gather"}) {
    const Layout l = layout_from_text(text, 8);
    EXPECT_NEAR(pricer.price(l).model_flops / one, 1, 1e-9) << text;
  }
}

}  // namespace
}  // namespace trireme::plan
