// SPDX-License-Identifier: Apache-2.0
// Rules of thumb that are formulas: bytes of state, bytes on the wire.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "plan/price/collective.h"
#include "plan/price/price.h"
#include "plan/search/confirm.h"
#include "spec/facts/comm_cost.h"
#include "spec/facts/facts.h"
#include "spec/parallel/data_parallel.h"
#include "tests/planner/rules_rig.h"

namespace trireme::tests {
namespace {

using plan::Item;

// Returns the bytes of weights, gradients and optimizer on one unsharded rank. It has two
// micro-batches, because gradients of a single one may lie where activations were
// (spec/memory/grad_places.h).
double state_bytes(const spec::ModelSpec& model, base::DType grads) {
  const plan::Job job = job_of(model, 2048, 2);
  const spec::Machine machine = shipped_machine("h100");
  plan::Pricer pricer(job, machine, plan::trireme_stack());
  const plan::Price price = pricer.price({.grad_dtype = grads});
  return price.at(Item::weights) + price.at(Item::gradients) + price.at(Item::optimizer);
}

// Returns the engine's plan with `ranks` data ranks.
spec::Plan data_plan(const spec::ModelSpec& model, int ranks, int stage, base::DType sums,
                     int microbatches = 1) {
  spec::Layout layout;
  spec::set_data_ranks(layout, ranks, stage);
  layout.accumulation = microbatches;
  layout.grad_dtype = layout.reduce_dtype = sums;
  return spec::solve_or_throw(model, {.seq_len = 128}, layout, spec::cuda_backend(false));
}

Row state_row() {
  std::string ours;
  const std::array<double, 3> sizes = {7e9, 70e9, 405e9};
  const std::array<spec::ModelSpec, 3> models = {llama2(7), shipped_model("llama3-70b"),
                                                 shipped_model("llama3-405b")};
  const std::array<double, 3> published = {llama2_7b_params, llama3_70b_params, llama3_405b_params};
  const std::array<int, 3> by_rule = {2, 14, 81}, real = {2, 15, 82};
  for (size_t i = 0; i < models.size(); ++i) {
    const double params = published[i];
    EXPECT_EQ(static_cast<double>(spec::parameter_count(models[i])), params);
    const double bytes = state_bytes(models[i], base::DType::bf16);
    EXPECT_NEAR(bytes / params, 16, 1e-3);
    EXPECT_NEAR(state_bytes(models[i], base::DType::f32) / params, 18, 1e-3);
    EXPECT_EQ(std::ceil(16 * sizes[i] / 80e9), by_rule[i]);
    EXPECT_EQ(std::ceil(bytes / 80e9), real[i]);
    ours += fmt::format("{}{:.2f}B: {:.0f} GB, {} GPUs", i == 0 ? "" : "; ", params / 1e9,
                        bytes / 1e9, real[i]);
  }
  return {
      "State takes 2 + 2 + 4 + 4 + 4 = 16 bytes per parameter (18 with fp32 gradients): 7B = 112 "
      "GB, 70B = 1.12 TB, 405B = 6.48 TB, so 2, 14, 81 GPUs of 80 GB for state alone",
      ours,
      "holds for round sizes; the models with these names are slightly larger and need 15 and 82",
      Evidence::formula};
}

Row zero_row() {
  constexpr int ranks = 8;
  const spec::ModelSpec model = llama2(7);
  const double params = llama2_7b_params;
  const std::array<double, 4> by_rule = {16, 4 + 12.0 / 8, 2 + 14.0 / 8, 16.0 / 8};
  std::string ours;
  for (int stage = 0; stage <= 3; ++stage) {
    const spec::MemoryTable memory =
        data_plan(model, ranks, stage, base::DType::bf16, stage == 1 ? 2 : 1).predicted.largest();
    const double each = static_cast<double>(memory.params + memory.grads + memory.optim) / params;
    EXPECT_NEAR(each, by_rule[static_cast<size_t>(stage)], 0.01) << stage;
    ours += fmt::format("{}{:.2f}", stage == 0 ? "" : ", ", each);
  }
  return {"ZeRO-1 takes 4 + 12/N, ZeRO-2 2 + 14/N, ZeRO-3 16/N bytes per parameter",
          fmt::format("7B on 8 ranks, as the engine allocates, ZeRO-0 to 3: {}", ours),
          "holds; ZeRO-2 and ZeRO-3 also need buffers for gathered layers", Evidence::formula};
}

Row traffic_row() {
  constexpr int ranks = 8;
  const spec::ModelSpec model = llama2(7);
  const double params = llama2_7b_params;
  std::array<double, 4> half{}, full{};
  for (int stage = 0; stage <= 3; ++stage) {
    const auto sent = [&](base::DType sums) {
      const spec::TrafficTable table =
          spec::predict_traffic(model, data_plan(model, ranks, stage, sums), {});
      return static_cast<double>(table.total()) / params;
    };
    half[static_cast<size_t>(stage)] = sent(base::DType::bf16);
    full[static_cast<size_t>(stage)] = sent(base::DType::f32);
  }
  // Each collective sends 7/8 of a tensor of 2 or 4 bytes per parameter. DDP: two passes over the
  // gradients; ZeRO-1 and 2: one over gradients, one over weights; ZeRO-3: two over weights.
  const double weights = 7.0 / 8 * 2, sums = 7.0 / 8 * 4;
  const std::array<double, 4> half_expected = {2 * weights, 2 * weights, 2 * weights, 3 * weights};
  const std::array<double, 4> full_expected = {2 * sums, sums + weights, sums + weights,
                                               sums + 2 * weights};
  for (size_t stage = 0; stage < 4; ++stage) {
    EXPECT_NEAR(half[stage], half_expected[stage], 0.01) << stage;
    EXPECT_NEAR(full[stage], full_expected[stage], 0.01) << stage;
  }
  return {"Traffic at one micro-batch: DDP = ZeRO-1 = ZeRO-2, ZeRO-3 = 1.5 times that",
          fmt::format("bytes per parameter that a rank of 8 sends, gradients summed in bf16: "
                      "{:.2f}, {:.2f}, {:.2f}, {:.2f}; in fp32: {:.2f}, {:.2f}, {:.2f}, {:.2f}",
                      half[0], half[1], half[2], half[3], full[0], full[1], full[2], full[3]),
          "holds if gradients and weights have the same size; with sums in fp32 ZeRO-1 sends "
          "less than DDP, and ZeRO-3 as much as DDP",
          Evidence::formula};
}

Row ring_row() {
  constexpr int ranks = 8;
  constexpr int64_t elements = int64_t{1} << 24;
  const auto part = [&](spec::CommKind kind) {
    const spec::CommCost cost{kind, spec::Axis::tp, elements, base::DType::bf16};
    return static_cast<double>(spec::sent_bytes(cost, ranks)) / (2.0 * elements);
  };
  const double reduce = part(spec::CommKind::all_reduce);
  const double gather = part(spec::CommKind::all_gather);
  const double scatter = part(spec::CommKind::reduce_scatter);
  // For an all-to-all Trireme computes only a time.
  spec::Machine machine = shipped_machine("h100");
  machine.domain.link.latency = 0;
  const double rate = machine.domain.link.bytes_per_second * machine.domain.reach;
  const double exchange =
      rate / 1e9 * plan::collective_seconds(machine, plan::Collective::all_to_all, {ranks, 1}, 1e9);
  EXPECT_DOUBLE_EQ(reduce, 2.0 * (ranks - 1) / ranks);
  EXPECT_DOUBLE_EQ(gather, 1.0 * (ranks - 1) / ranks);
  EXPECT_DOUBLE_EQ(reduce, gather + scatter);
  EXPECT_NEAR(exchange, 1.0 * (ranks - 1) / ranks, 1e-9);
  return {
      "A rank sends 2 (N-1)/N of the tensor in an all-reduce and (N-1)/N in an all-gather, "
      "reduce-scatter or all-to-all; AllReduce = ReduceScatter + AllGather",
      fmt::format("N = 8: {:.3f}, {:.3f}, {:.3f}, {:.3f}", reduce, gather, scatter, exchange),
      "holds; tensors below 4,096 elements are sent to all ranks instead", Evidence::formula};
}

Row tensor_row() {
  const spec::ModelSpec model = shipped_model("llama3-70b");
  spec::LocalShape shape;
  shape.seq_len = shape.tokens = shape.head_chunk_rows = 8192;
  shape.mesh[spec::Axis::tp] = 8;
  size_t forward = 0, backward = 0;
  for (int layer = 1; layer <= model.blocks(); ++layer) {
    const spec::Facts facts = spec::facts(model, layer, shape, spec::recipe_from_name("bf16"),
                                          spec::Recompute::none, spec::cuda_backend(false));
    forward += facts.f_comm.size();
    backward += facts.b_comm.size() + facts.w_comm.size();
  }
  EXPECT_EQ(forward, 160U);
  EXPECT_EQ(backward, 160U);
  return {
      "Tensor parallelism: one all-reduce forward and one backward for each MLP and each "
      "attention, 160 forward for 80 layers",
      fmt::format("{} forward, {} backward, for each micro-batch", forward, backward),
      "holds; with sequence parallelism each becomes an all-gather and a reduce-scatter of the "
      "same bytes",
      Evidence::formula};
}

}  // namespace

std::vector<Row> state_rows() {
  return {state_row(), zero_row(), traffic_row(), ring_row(), tensor_row()};
}

}  // namespace trireme::tests
