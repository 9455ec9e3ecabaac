// SPDX-License-Identifier: Apache-2.0
// Experts whose products are in 8 bits (spec::Float8Recipe), in the order of nn/experts/. Letters
// as in expert_facts.cpp. Router and shared experts stay in the storage type.
//
//   F   rows of h2 are quantised by rows for the product with Wup, and by columns (transposed) for
//       W; so is act. The rows themselves and act are scratch.
//   B   rows of dy are quantised both ways, then dup, whose transposed codes take the memory of up.
//       Weights are transposed in scratch, those of all experts of the rank at once.
//   W   multiplies transposed codes: h2_t, act_t, dup_t and dy_t.
//
// With one scale a tensor, the largest magnitude of the rows is that of h2 or dy on one rank along
// ep and etp; with several, an op finds it among the rows that have arrived. Rows after the last
// group are not quantised.
#include "spec/facts/experts/expert_cost.h"
#include "spec/facts/facts_internal.h"
#include "spec/facts/quantize_cost.h"

namespace trireme::spec::internal {

using base::DType;
using base::TensorSpec;

void ExpertFacts::codes_slots(std::vector<Slot>& slots) const {
  const auto at = [&slots](BlockSlot slot) -> Slot& { return slots[static_cast<size_t>(slot)]; };
  const int64_t D = s.width, F = moe.ffn;
  const auto kept = [](const char* name, const TensorSpec& spec, bool is_cheap) {
    return Slot{.name = name,
                .spec = spec,
                .life = Life::f_to_w,
                .recomputable = is_cheap,
                .recomputed_in_b = is_cheap,
                .backward_only = true};
  };
  const auto made = [](const char* name, const TensorSpec& spec) {
    return Slot{.name = name, .spec = spec, .life = Life::b_to_w};
  };
  for (const BlockSlot slot :
       {BlockSlot::x_rows, BlockSlot::act, BlockSlot::dup, BlockSlot::dy_rows}) {
    at(slot) = {};
  }
  at(BlockSlot::h2_t) = kept("x_rows_t", codes(D, rows.grouped), rows.is_local());
  at(BlockSlot::act_t) = kept("act_t", codes(F, rows.grouped), true);
  at(BlockSlot::dup_t) = made("dup_t", codes(2 * F, rows.grouped));
  at(BlockSlot::dup_t).replaces = static_cast<int>(BlockSlot::up);
  at(BlockSlot::dy_t) = made("dy_rows_t", codes(D, rows.grouped));
}

std::vector<ScratchSet> ExpertFacts::codes_scratch(const Is& recomputes) const {
  const int64_t D = s.width, F = moe.ffn, G = rows.groups;
  const TensorSpec none{};
  // The rows of h2 and of dy are where the results of experts and the rows of dh2 will be.
  const TensorSpec grouped = row(rows.grouped, D), inner = row(rows.grouped, F);
  const TensorSpec gathered = rows.etp > 1 ? row(rows.gathered, D) : none;
  const TensorSpec dup = row(rows.grouped, 2 * F), dweight = flat_f32(rows.grouped);
  const TensorSpec act_again = recomputes(BlockSlot::act_t) ? inner : none;
  const auto weights = [&](int64_t out, int64_t width) {
    return codes_spec(fp8->weights, G * out, width);
  };
  std::vector<ScratchSet> sets;
  sets.push_back({"experts.up", {grouped, codes(rows.grouped, D)}, true});
  sets.push_back({"experts.act", {grouped, codes(rows.grouped, F), inner}, true});
  const auto backward = [&](const char* name, const TensorSpec& last) {
    sets.push_back({name, {grouped, dup, dweight, inner, act_again, codes(rows.grouped, D), last}});
  };
  backward("experts.dy", gathered);
  backward("experts.dact", weights(F, D));
  sets.push_back({"experts.dup", {grouped, dup, codes(rows.grouped, 2 * F), weights(D, 2 * F)}});
  sets.push_back({"experts.drows", {grouped, gathered}});
  if (moe.shared_ffn > 0 && in.shape.sequence_parallel) {
    sets.push_back({"experts.whole", {row(in.shape.tokens, D)}, true});
  }
  return sets;
}

void ExpertFacts::quantize(Work& work, int64_t width, bool by_rows, bool by_columns) const {
  work.ops.push_back(quantize_cost({.x = row(rows.grouped, width),
                                    .by_rows = by_rows,
                                    .by_columns = by_columns,
                                    .shape = fp8->rows}));
}

void ExpertFacts::transpose_weights(Work& work, int64_t out, int64_t in_width) const {
  const auto blocks = [](int64_t n) { return (n + scale_block - 1) / scale_block; };
  work.ops.push_back(
      transpose_cost({{rows.groups * out, in_width}, in.recipe.format(Role::w_dgrad)}));
  if (fp8->weights == ScaleShape::block_128) {
    work.ops.push_back(transpose_cost({{rows.groups * blocks(out), blocks(in_width)}, DType::f32}));
  }
}

void ExpertFacts::codes_forward(Work& work, bool makes_y, const Is& fills, const Is& keeps) const {
  const int64_t D = s.width, F = moe.ffn;
  const ProductTypes types(in.recipe.format(Role::x_fwd), act);
  if (fills(BlockSlot::up)) {
    dispatch(work, D, act);
    if (makes_y && has_amax() && !rows.is_local()) {
      work.ops.push_back(amax_cost(row(rows.grouped, D)));
    }
    quantize(work, D, true, keeps(BlockSlot::h2_t));
    work.ops.push_back(grouped_forward_cost({rows.expected(), rows.groups, 2 * F, D}, types));
  }
  const bool by_columns = keeps(BlockSlot::act_t);
  if (!makes_y && !by_columns) return;
  work.ops.push_back(grouped_swiglu_cost(rows.expected(), F, act));
  quantize(work, F, makes_y, by_columns);
  if (!makes_y) return;
  work.ops.push_back(grouped_forward_cost({rows.expected(), rows.groups, D, F}, types));
  give_back(work, D, act);
}

void ExpertFacts::codes_backward(Work& work, const Is& recomputes) const {
  const int64_t D = s.width, F = moe.ffn;
  const ProductTypes types(in.recipe.format(Role::dy_dgrad), act);
  const bool has_act = recomputes(BlockSlot::act_t);
  if (has_amax()) {
    work.ops.push_back(amax_cost(row(rows.is_local() ? rows.tokens : rows.grouped, D)));
  }
  quantize(work, D, true, true);
  transpose_weights(work, D, F);
  work.ops.push_back(
      grouped_swiglu_backward_cost({rows.expected(), rows.groups, D, F}, types, has_act));
  if (has_act) quantize(work, F, false, true);
  router_backward(work);
  quantize(work, 2 * F, true, true);
  transpose_weights(work, 2 * F, D);
  work.ops.push_back(grouped_backward_input_cost({rows.expected(), rows.groups, 2 * F, D}, types));
}

}  // namespace trireme::spec::internal
