// SPDX-License-Identifier: Apache-2.0
// The feed-forward of a block as a mixture of experts. Letters: R rows of the stream that the rank
// routes, D width, E experts, K chosen, F an expert's width, S that of the shared experts. A pair
// is a token and one of its choices; rows are pairs, grouped by expert
// (spec/experts/expert_rows.h).
//
//   h2 = norm2(x2);  logits = h2 Wr^T;  choice, weights by the router;  x_rows = rows of h2
//   up = x_rows Wup[e]^T;  act = weight swiglu(up);  rows = act Wd[e]^T
//   y = x2 + shared(h2) + sum over the pairs of a token of its rows
//
// Backward: the rows of dy, then dup, act and the gradients of the weights in the product with Wd;
// the rows of dh2 = dup Wup[e], summed by token; dlogits; norm2. Choices are decisions: recompute
// reads them. On one rank along ep and etp x_rows are gathered again from h2, in B. With several,
// rows of h2 and dy travel to the ranks of their experts and results travel back, so x_rows are
// kept.
//
// With several ranks F and B are four phases: attention; router and rows on their way; experts and
// results on their way back; sum. What travels is in transient slots, so that the work of another
// micro-batch can run meanwhile.
//
// Along tp the stream is cut by rows (sequence parallelism): a rank routes its rows, and the shared
// experts are cut as a dense feed-forward.
#include <utility>

#include "spec/experts/expert_rows.h"
#include "spec/facts/experts/expert_cost.h"
#include "spec/facts/facts_internal.h"

namespace trireme::spec::internal {

using base::DType;
using base::TensorSpec;

ExpertFacts::ExpertFacts(const BlockSpec& local, const FactsInput& input)
    : s(local),
      in(input),
      moe(*local.moe),
      rows(expert_rows(*local.moe, input.shape, input.backend)),
      act(input.recipe.storage),
      fp8(input.recipe.fp8 ? &*input.recipe.fp8 : nullptr) {}

TensorSpec ExpertFacts::row(int64_t n, int64_t width) const { return {{n, width}, act}; }
TensorSpec ExpertFacts::f32(int64_t n, int64_t width) const { return {{n, width}, DType::f32}; }
TensorSpec ExpertFacts::i32(int64_t n, int64_t width) const { return {{n, width}, DType::i32}; }
TensorSpec ExpertFacts::flat_f32(int64_t n) const { return {{n}, DType::f32}; }
TensorSpec ExpertFacts::flat_i32(int64_t n) const { return {{n}, DType::i32}; }

int64_t ExpertFacts::load_rows() const {
  if (moe.balance.aux == 0) return 0;
  return moe.balance.scope == AuxScope::sequence ? in.shape.sequences : 1;
}

int ExpertFacts::load_ranks() const {
  const Sizes& mesh = in.shape.mesh;
  const int rows_of_sequences = mesh[Axis::cp] * mesh[Axis::tp];
  if (moe.balance.scope != AuxScope::global) return rows_of_sequences;
  return mesh[Axis::dp] * mesh[Axis::zero] * rows_of_sequences;
}

void ExpertFacts::slots(std::vector<Slot>& slots) const {
  const auto at = [&slots](BlockSlot slot) -> Slot& { return slots[static_cast<size_t>(slot)]; };
  const int64_t R = rows.tokens, K = rows.chosen, D = s.width, F = moe.ffn, S = moe.shared_ffn;
  const TensorSpec none{};
  const auto recomputed_in_b = [](const char* name, const TensorSpec& spec) {
    return Slot{.name = name,
                .spec = spec,
                .life = Life::f_to_w,
                .recomputable = true,
                .recomputed_in_b = true};
  };
  at(BlockSlot::up) = {.name = "up", .spec = row(rows.grouped, 2 * F)};
  at(BlockSlot::act) = recomputed_in_b("act", row(rows.grouped, F));
  at(BlockSlot::dup) = {.name = "dup",
                        .spec = row(rows.grouped, 2 * F),
                        .life = Life::b_to_w,
                        .replaces = static_cast<int>(BlockSlot::up)};
  at(BlockSlot::logits) = {.name = "logits", .spec = f32(R, rows.experts)};
  at(BlockSlot::choice) = {.name = "choice", .spec = i32(R, K), .is_decision = true};
  at(BlockSlot::load) = {.name = "load",
                         .spec = load_rows() > 0 ? f32(load_rows(), rows.experts) : none,
                         .backward_only = true,
                         .is_decision = true};
  at(BlockSlot::place) = {.name = "place", .spec = i32(R, K)};
  at(BlockSlot::pair) = {.name = "pair", .spec = flat_i32(rows.sent)};
  const bool travels = !rows.is_local();
  at(BlockSlot::arranged) = {.name = "arranged", .spec = travels ? flat_i32(rows.gathered) : none};
  at(BlockSlot::source) = {.name = "source", .spec = travels ? flat_i32(rows.grouped) : none};
  at(BlockSlot::starts) = {
      .name = "starts", .spec = flat_i32(rows.groups + 1), .life = Life::f_to_w};
  at(BlockSlot::row_weight) = {.name = "row_weight", .spec = flat_f32(rows.grouped)};
  at(BlockSlot::x_rows) = recomputed_in_b("x_rows", row(rows.grouped, D));
  if (travels) {
    at(BlockSlot::x_rows).recomputable = false;
    at(BlockSlot::x_rows).recomputed_in_b = false;
  }
  at(BlockSlot::dy_rows) = {.name = "dy_rows", .spec = row(rows.grouped, D), .life = Life::b_to_w};
  at(BlockSlot::dlogits) = {.name = "dlogits", .spec = row(R, rows.experts), .life = Life::b_to_w};
  if (travels) {
    const auto transient = [&](BlockSlot slot, const char* name, bool exists) {
      at(slot) = {.name = name, .spec = exists ? row(rows.sent, D) : none, .is_transient = true};
    };
    transient(BlockSlot::outgoing, "outgoing", true);
    transient(BlockSlot::incoming, "incoming", rows.ep > 1);
    transient(BlockSlot::answers, "answers", true);
    transient(BlockSlot::returned, "returned", rows.ep > 1);
  }
  if (fp8 != nullptr) codes_slots(slots);
  if (S == 0) {
    at(BlockSlot::dy_whole) = {.name = "dy_whole", .spec = none, .life = Life::b_to_w};
    return;
  }
  const int64_t T = in.shape.tokens;
  at(BlockSlot::shared_up) = {.name = "shared_up", .spec = row(T, 2 * S)};
  at(BlockSlot::shared_act) = recomputed_in_b("shared_act", row(T, S));
  at(BlockSlot::shared_dup) = {.name = "shared_dup",
                               .spec = row(T, 2 * S),
                               .life = Life::b_to_w,
                               .replaces = static_cast<int>(BlockSlot::shared_up)};
}

std::vector<ScratchSet> ExpertFacts::scratch(const Is& recomputes) const {
  const int64_t R = rows.tokens, K = rows.chosen, D = s.width, S = moe.shared_ffn;
  const TensorSpec none{};
  const bool moves = rows.ep > 1, gathers = rows.etp > 1, travels = moves || gathers;
  const bool parts_rows = in.shape.sequence_parallel;
  const TensorSpec stream = row(R, D), whole = parts_rows ? row(in.shape.tokens, D) : none;
  const TensorSpec partials = norm_backward_partials(s.norm, R, D, false);
  const auto ints = [](bool exists, int64_t n) {
    return exists ? TensorSpec{{n}, DType::i32} : TensorSpec{};
  };
  // What one value of each row needs on its way to the experts, and back.
  std::vector<ScratchSet> sets;
  const auto values = [&](bool exists, int64_t n) { return exists ? f32(n, 1) : none; };
  const TensorSpec weights = f32(R, K), counts = flat_i32(rows.experts);
  sets.push_back({"experts.route",
                  {weights, counts, ints(travels, rows.experts + 1), ints(moves, rows.experts),
                   ints(gathers, rows.etp * rows.experts)},
                  true});
  sets.push_back({"experts.weights",
                  {weights, counts, values(travels, rows.sent), values(moves, rows.sent),
                   values(gathers, rows.gathered)},
                  true});
  // Results of the experts; what the ranks along etp received, and partial sums for them.
  const TensorSpec grouped = row(rows.grouped, D);
  const TensorSpec gathered = gathers ? row(rows.gathered, D) : none;
  // Between phases rows are in slots; within one they are here.
  const TensorSpec local_rows = travels ? none : grouped;
  sets.push_back({"experts.rows", {grouped, gathered}, true});
  if (S > 0) {
    sets.push_back({"experts.shared", {local_rows, stream, whole}, true});
    sets.push_back({"experts.dshared", {row(in.shape.tokens, S)}});
  }
  const TensorSpec dweight = flat_f32(rows.grouped);
  const TensorSpec dweights = travels ? f32(rows.sent, 1) : none;
  // What gives back one value of each row.
  std::vector<TensorSpec> back = {dweight, dweights, values(travels, rows.gathered),
                                  values(moves && gathers, rows.sent)};
  if (fp8 != nullptr) {
    for (const ScratchSet& set : codes_scratch(recomputes)) sets.push_back(set);
    back.insert(back.end(), {grouped, row(rows.grouped, 2 * moe.ffn)});
  } else {
    sets.push_back({"experts.drows", {dweight, dweights, grouped, gathered}});
  }
  sets.push_back({"experts.dweights", std::move(back)});
  // The router's and the shared experts' parts of dh2, then all.
  const TensorSpec of_shared = S > 0 ? stream : none;
  const TensorSpec local_dweight = travels || fp8 != nullptr ? none : dweight;
  sets.push_back({"experts.dh2", {local_dweight, local_rows, of_shared, stream, stream, partials}});
  if (S > 0 && parts_rows) {
    sets.push_back({"experts.dh2.shared", {local_dweight, local_rows, stream, whole}});
  }
  return sets;
}

void ExpertFacts::exchange(Work& work, int64_t width, DType dtype) const {
  if (rows.ep > 1) {
    work.comm.push_back({CommKind::all_to_all, Axis::ep, rows.sent * width, dtype});
  }
}

// Rows of pairs to the ranks of their experts, grouped there: on their way, and on their arrival.
void ExpertFacts::send(Work& work, int64_t width, DType dtype) const {
  if (rows.is_local()) return;
  work.ops.push_back(gather_pairs_cost(rows.sent, width, dtype));
  exchange(work, width, dtype);
}

void ExpertFacts::receive(Work& work, int64_t width, DType dtype) const {
  if (rows.etp > 1) {
    work.comm.push_back({CommKind::all_gather, Axis::etp, rows.gathered * width, dtype});
  }
  work.ops.push_back(gather_pairs_cost(rows.grouped, width, dtype));
}

void ExpertFacts::dispatch(Work& work, int64_t width, DType dtype) const {
  send(work, width, dtype);
  receive(work, width, dtype);
}

// Rows of experts back to the ranks of their tokens.
void ExpertFacts::give_back(Work& work, int64_t width, DType dtype) const {
  if (rows.is_local()) return;
  work.ops.push_back(gather_pairs_cost(rows.gathered, width, dtype));
  if (rows.etp > 1) {
    work.comm.push_back({CommKind::reduce_scatter, Axis::etp, rows.gathered * width, dtype});
  }
  exchange(work, width, dtype);
}

void ExpertFacts::route(Work& work, bool decides) const {
  const RouterSpec& r = moe.router;
  const bool is_global = moe.balance.scope == AuxScope::global;
  const int64_t load = decides && !is_global ? load_rows() : 0;
  work.ops.push_back(router_forward_cost({.tokens = rows.tokens,
                                          .experts = rows.experts,
                                          .chosen = rows.chosen,
                                          .has_bias = r.has_bias,
                                          .has_stats = decides,
                                          .sequences = load}));
  if (decides && load_rows() > 0) {
    const TensorSpec counts = flat_f32(rows.experts);
    if (is_global) work.ops.push_back(streaming(OpKind::copy, counts, {counts, counts}));
    const int ranks = load_ranks();
    if (ranks > 1) {
      work.comm.push_back(
          {CommKind::all_reduce, Axis::ep, load_rows() * rows.experts, DType::f32, ranks});
    }
  }
  work.ops.push_back(route_rows_cost({.tokens = rows.tokens,
                                      .experts = rows.experts,
                                      .chosen = rows.chosen,
                                      .rows = rows.sent,
                                      .has_stats = decides}));
  if (decides) work.ops.push_back(router_fill_cost(rows.experts));
  if (!rows.is_local()) {
    if (rows.ep > 1) {
      work.comm.push_back({CommKind::all_to_all, Axis::ep, rows.experts, DType::i32});
    }
    if (rows.etp > 1) {
      work.comm.push_back({CommKind::all_gather, Axis::etp, rows.etp * rows.experts, DType::i32});
    }
    work.ops.push_back(arrange_rows_cost({.blocks = int64_t{rows.etp} * rows.ep,
                                          .groups = rows.groups,
                                          .sent = rows.gathered,
                                          .rows = rows.grouped}));
  }
  dispatch(work, 1, DType::f32);
}

void ExpertFacts::forward(Work& work, bool makes_y, const Is& fills, const Is& keeps) const {
  const int64_t R = rows.tokens, D = s.width, F = moe.ffn, S = moe.shared_ffn;
  const StreamComm comm(in, D);
  if (fills(BlockSlot::logits)) {
    work.ops.push_back(gemm_cost({R, rows.experts, D, GemmLayout::nt, act, DType::f32}, {}));
  }
  if (fills(BlockSlot::place)) route(work, fills(BlockSlot::choice));
  if (fp8 != nullptr) {
    codes_forward(work, makes_y, fills, keeps);
  } else {
    if (fills(BlockSlot::x_rows)) dispatch(work, D, act);
    const GroupedSwigluShape products{rows.expected(), rows.groups, D, F};
    if (fills(BlockSlot::up)) {
      work.ops.push_back(grouped_swiglu_forward_cost(products, act));
    } else if (fills(BlockSlot::act)) {
      work.ops.push_back(grouped_swiglu_cost(rows.expected(), F, act));
    }
    if (makes_y) {
      work.ops.push_back(grouped_forward_cost({rows.expected(), rows.groups, D, F}, act));
      give_back(work, D, act);
    }
  }
  if (S > 0) {
    const int64_t T = in.shape.tokens;
    if (fills(BlockSlot::shared_up)) {
      comm.whole(work.comm);
      work.ops.push_back(gemm_cost({T, 2 * S, D, GemmLayout::nt, act, act}, {}));
    }
    if (fills(BlockSlot::shared_act)) {
      work.ops.push_back(streaming(OpKind::swiglu_forward, row(T, S), {row(T, 2 * S), row(T, S)}));
    }
    if (makes_y) {
      work.ops.push_back(gemm_cost({T, D, S, GemmLayout::nt, act, act}, {}));
      comm.sum(work.comm);
    }
  }
  if (makes_y) {
    work.ops.push_back(sum_pairs_cost(
        {.tokens = R, .chosen = rows.chosen, .width = D, .terms = S > 0 ? 2 : 1}, act));
  }
}

void ExpertFacts::router_backward(Work& work) const {
  give_back(work, 1, DType::f32);
  work.ops.push_back(router_backward_cost({.tokens = rows.tokens,
                                           .experts = rows.experts,
                                           .chosen = rows.chosen,
                                           .has_labels = moe.balance.aux != 0 || moe.balance.z != 0,
                                           .sequences = load_rows()},
                                          act));
}

void ExpertFacts::backward(Work& work, const Is& recomputes,
                           const std::function<void()>& norm) const {
  const int64_t R = rows.tokens, D = s.width, F = moe.ffn, S = moe.shared_ffn;
  const int64_t T = in.shape.tokens;
  const StreamComm comm(in, D);
  send(work, D, act);
  if (S > 0) {
    comm.whole(work.comm);
    work.ops.push_back(gemm_cost({T, S, D, GemmLayout::nn, act, act}, {}));
    const TensorSpec y = recomputes(BlockSlot::shared_act) ? row(T, S) : TensorSpec{};
    work.ops.push_back(streaming(OpKind::swiglu_backward, row(T, S),
                                 {row(T, 2 * S), row(T, S), row(T, 2 * S), y}));
  }
  receive(work, D, act);
  if (fp8 != nullptr) {
    codes_backward(work, recomputes);
  } else {
    const GroupedSwigluShape products{rows.expected(), rows.groups, D, F};
    work.ops.push_back(grouped_swiglu_backward_cost(products, act, recomputes(BlockSlot::act)));
    router_backward(work);
    work.ops.push_back(grouped_backward_input_cost({rows.expected(), rows.groups, 2 * F, D}, act));
  }
  give_back(work, D, act);
  if (S > 0) {
    work.ops.push_back(gemm_cost({T, D, 2 * S, GemmLayout::nn, act, act}, {}));
    comm.sum(work.comm);
  }
  work.ops.push_back(gemm_cost({R, D, rows.experts, GemmLayout::nn, act, act}, {}));
  work.ops.push_back(sum_pairs_cost(
      {.tokens = R, .chosen = rows.chosen, .width = D, .terms = S > 0 ? 2 : 1}, act));
  norm();
  if (fp8 != nullptr && recomputes(BlockSlot::h2_t)) {
    receive(work, D, act);
    quantize(work, D, false, true);
  } else if (fp8 == nullptr && recomputes(BlockSlot::x_rows)) {
    dispatch(work, D, act);
  }
}

void ExpertFacts::weights(Work& work) const {
  const int64_t D = s.width, F = moe.ffn, S = moe.shared_ffn, T = in.shape.tokens;
  const DType grad = in.recipe.grad;
  const DType operands = fp8 != nullptr ? in.recipe.format(Role::dy_wgrad) : act;
  work.ops.push_back(
      grouped_backward_weight_cost({rows.expected(), rows.groups, D, F}, operands, grad, true));
  work.ops.push_back(
      grouped_backward_weight_cost({rows.expected(), rows.groups, 2 * F, D}, operands, grad, true));
  work.ops.push_back(
      gemm_cost({rows.experts, D, rows.tokens, GemmLayout::tn, act, grad, true}, {}));
  if (S == 0) return;
  work.ops.push_back(gemm_cost({D, S, T, GemmLayout::tn, act, grad, true}, {}));
  work.ops.push_back(gemm_cost({2 * S, D, T, GemmLayout::tn, act, grad, true}, {}));
  StreamComm(in, D).whole(work.comm);  // h2
}

}  // namespace trireme::spec::internal
