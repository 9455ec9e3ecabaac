// SPDX-License-Identifier: Apache-2.0
// A transformer block. Letters: T tokens, R rows of the stream, D width, H heads, G key/value
// heads, K head size, F feed-forward width; H, G and F are those of one rank.
//
//   h1 = norm1(x);  qkv = h1 Wqkv^T;  qk = rope(norm(q), norm(k));  o = attention;  x2 = o Wo^T + x
//   h2 = norm2(x2);  up = h2 Wup^T;  act = swiglu(up) or gelu(up);                   y = act Wd^T +
//   x2
//
// Along tp a rank has some heads and a part of F: Wqkv and Wup are cut by rows, Wo and Wd by
// columns, and x2 and y are sums over ranks; so are the gradients dh1 and dh2. Under sequence
// parallelism a rank has R = T / tp rows of x, h1, x2, h2 and their gradients: h1 and h2 are
// gathered before the products that read them (again in W), dy and dx2 once, in B.
//
// Norm, limit and rotation of q and k: rotation_facts.cpp. B computes the gradients
// of norm weights in the op that computes dx: it has their inputs, and W would have to keep [T, D]
// more for each norm. That op also reads dy (norm2) and dx2 (norm1), whose sums over rows are the
// gradients of the down and out biases: if it has all rows, it computes them, too. The product that
// computes dup with GELU's gradient sums it for the up bias.
//
// A mixture of experts takes the place of the feed-forward in some blocks: expert_facts.cpp. In
// tiles of rows (Layout::ffn_rows) the feed-forward keeps x2 only: tile_facts.cpp.
#include <optional>
#include <utility>

#include "spec/facts/facts_internal.h"

namespace trireme::spec::internal {
namespace {

using base::DType;
using base::TensorSpec;

struct Shapes {
  Shapes(const BlockSpec& s, const FactsInput& in)
      : T(in.shape.tokens),
        R(in.shape.rows()),
        D(s.width),
        HK(s.heads * s.head_dim),
        N(s.qkv_width()),
        U(s.up_width()),
        F(s.ffn),
        stats(norm_stats(s.norm)),
        ranks(in.shape.mesh[Axis::tp]),
        parts_rows(in.shape.sequence_parallel),
        has_tiles(in.shape.has_ffn_tiles()),
        norms_sum_biases(is_bias_made_in_b(s, in.shape, BlockParam::down_bias)),
        act(in.recipe.storage),
        grad(in.recipe.grad) {}

  TensorSpec stream() const { return {{R, D}, act}; }
  TensorSpec row(int64_t width) const { return {{T, width}, act}; }
  TensorSpec f32(int64_t rows, int64_t cols) const { return {{rows, cols}, DType::f32}; }
  TensorSpec vec(int64_t n) const { return {{n}, act}; }
  TensorSpec dvec(int64_t n) const { return {{n}, grad}; }

  int64_t T, R, D, HK, N, U, F, stats;
  int ranks;
  bool parts_rows, has_tiles, norms_sum_biases;
  DType act, grad;
};

std::vector<Slot> block_slots(const BlockSpec& s, const Shapes& h, const RotationFacts& rotation,
                              const ContextFacts& context, const ExpertFacts* experts,
                              const Float8Facts* fp8) {
  std::vector<Slot> slots(static_cast<size_t>(BlockSlot::count));
  const auto at = [&slots](BlockSlot slot) -> Slot& { return slots[static_cast<size_t>(slot)]; };
  const TensorSpec none{};
  at(BlockSlot::x) = {.name = "x", .spec = h.stream()};
  at(BlockSlot::dy) = {.name = "dy", .spec = h.stream(), .life = Life::b_to_w};
  at(BlockSlot::stats1) = {.name = "stats1", .spec = h.f32(h.R, h.stats)};
  // Outputs of norms and activation functions that only W reads.
  const auto recomputed_in_b = [](const char* name, const TensorSpec& spec) {
    return Slot{.name = name,
                .spec = spec,
                .life = Life::f_to_w,
                .recomputable = true,
                .recomputed_in_b = true};
  };
  at(BlockSlot::h1) = recomputed_in_b("h1", h.stream());
  const bool by_heads = context.has_ulysses();
  rotation.slots(slots, by_heads);
  at(BlockSlot::o) = {.name = "o", .spec = h.row(h.HK), .life = Life::f_to_w};
  at(BlockSlot::lse) = {.name = "lse", .spec = h.f32(context.part.heads, context.Tu)};
  at(BlockSlot::x2) = {.name = "x2", .spec = h.stream()};
  // The inner tensors of a feed-forward in tiles are scratch.
  const auto unless_tiled = [&](const TensorSpec& spec) { return h.has_tiles ? none : spec; };
  at(BlockSlot::stats2) = {.name = "stats2", .spec = unless_tiled(h.f32(h.R, h.stats))};
  at(BlockSlot::h2) = recomputed_in_b("h2", unless_tiled(h.stream()));
  // With GELU, if act is kept, `up` contains GELU's slope, which is all that the backward needs.
  at(BlockSlot::up) = {.name = "up", .spec = unless_tiled(h.row(h.U))};
  at(BlockSlot::act) = recomputed_in_b("act", unless_tiled(h.row(h.F)));
  at(BlockSlot::dqkv) = {.name = "dqkv", .spec = h.row(h.N), .life = Life::b_to_w};
  at(BlockSlot::dx2) = {.name = "dx2", .spec = h.stream(), .life = Life::b_to_w};
  at(BlockSlot::dup) = {.name = "dup", .spec = unless_tiled(h.row(h.U)), .life = Life::b_to_w};
  const TensorSpec whole = h.parts_rows ? h.row(h.D) : none;
  at(BlockSlot::dy_whole) = {.name = "dy_whole", .spec = unless_tiled(whole), .life = Life::b_to_w};
  at(BlockSlot::dx2_whole) = {.name = "dx2_whole", .spec = whole, .life = Life::b_to_w};
  const auto of_group = [&](int64_t width) {
    return by_heads ? TensorSpec{{context.Tu, width}, h.act} : none;
  };
  at(BlockSlot::heads) = {.name = "heads", .spec = of_group(context.HK + 2 * context.KV)};
  at(BlockSlot::o_heads) = {.name = "o_heads", .spec = of_group(context.HK)};
  if (experts != nullptr) experts->slots(slots);
  if (fp8 != nullptr) fp8->slots(slots);
  if (experts != nullptr || fp8 != nullptr) return slots;
  // SwiGLU's backward is elementwise, so its result may overwrite its input. GELU's is the epilogue
  // of a GEMM.
  if (s.activation == Activation::swiglu && !h.has_tiles) {
    at(BlockSlot::dup).replaces = static_cast<int>(BlockSlot::up);
  }
  return slots;
}

std::vector<ScratchSet> block_scratch(const BlockSpec& s, const Shapes& h,
                                      const RotationFacts& rotation, const ContextFacts& context,
                                      const TileFacts& tiles, const ExpertFacts* experts,
                                      const Float8Facts* fp8, const Float8Facts::Is& recomputes) {
  const TensorSpec partials = norm_backward_partials(s.norm, h.R, h.D, h.norms_sum_biases);
  std::vector<ScratchSet> sets;
  const auto add = [&sets](const std::vector<ScratchSet>& more) {
    sets.insert(sets.end(), more.begin(), more.end());
  };
  if (fp8 != nullptr) {
    add(fp8->attention_scratch(recomputes));
    add(experts != nullptr ? experts->scratch(recomputes) : fp8->feed_forward_scratch(recomputes));
    return sets;
  }
  if (h.parts_rows) {
    sets.push_back({"whole stream", {h.row(h.D)}, true});  // gathered, or before it is summed
    sets.push_back({"whole gradient", {h.stream(), h.row(h.D)}});  // of the stream, beside its part
    if (context.has_ulysses()) {
      sets.push_back({"whole stream and qkv", {context.own_rows(), h.row(h.D)}, true});
    }
  }
  for (const ScratchSet& set : context.forward_scratch()) sets.push_back(set);
  if (experts != nullptr) {
    add(experts->scratch(recomputes));
  } else if (h.has_tiles) {
    for (const ScratchSet& set : tiles.scratch()) sets.push_back(set);
  } else {
    if (s.activation == Activation::swiglu) sets.push_back({"mlp.dact", {h.row(h.F)}});
    sets.push_back({"mlp.dh2", {h.stream(), partials}});
  }
  for (const ScratchSet& set : context.backward_scratch()) sets.push_back(set);
  for (const ScratchSet& set : rotation.scratch()) sets.push_back(set);
  sets.push_back({"attention.dh1", {h.stream(), partials}});
  return sets;
}

// Returns the forward operations that fill the slots for which `fills` is true, and y if `makes_y`.
template <typename Fills>
Work forward_work(const BlockSpec& s, const FactsInput& in, const Shapes& h,
                  const RotationFacts& rotation, const ContextFacts& context,
                  const TileFacts& tiles, const ExpertFacts* experts, const Float8Facts* fp8,
                  const Float8Facts::Is& keeps, bool makes_y, Fills fills) {
  Work work;
  std::vector<OpCost>& ops = work.ops;
  const StreamComm comm(in, h.D);
  const TensorSpec none{};
  const TensorSpec x = h.stream(), stats = h.f32(h.R, h.stats);
  const TensorSpec bias = s.norm == NormKind::layer ? h.vec(h.D) : none;
  const auto norm = [&] {
    ops.push_back(streaming(OpKind::norm_forward, x, {x, h.vec(h.D), bias, x, stats}));
  };
  if (fp8 != nullptr) {
    fp8->attention_forward(work, makes_y, fills, keeps);
    if (experts == nullptr) {
      fp8->feed_forward(work, makes_y, fills, keeps);
    } else {
      if (fills(BlockSlot::h2)) norm();
      experts->forward(work, makes_y, fills, keeps);
    }
    return work;
  }
  if (fills(BlockSlot::h1)) norm();
  const bool by_heads = context.has_ulysses();
  if (fills(by_heads ? BlockSlot::heads : BlockSlot::qkv)) {
    comm.whole(work.comm);
    ops.push_back(gemm_cost({h.T, h.N, h.D, GemmLayout::nt, h.act, h.act},
                            {s.has_qkv_bias() ? h.vec(h.N) : none}));
  }
  const BlockSlot rotated = s.keeps_projection() ? BlockSlot::qk : BlockSlot::qkv;
  if (s.rope && fills(by_heads ? BlockSlot::heads : rotated)) rotation.forward(work);
  if (by_heads && fills(BlockSlot::heads)) context.exchange_heads(work);
  if (fills(BlockSlot::o)) context.forward(work);
  // A projection back to the stream. Before the sum over ranks, the first rank adds the bias, and
  // each rank adds the residual to its part of the rows.
  const auto project = [&](int64_t width) {
    const TensorSpec out_bias = s.linear_bias ? h.vec(h.D) : none;
    const TensorSpec part{{h.T / h.ranks, h.D}, h.act};
    ops.push_back(gemm_cost({h.T, h.D, width, GemmLayout::nt, h.act, h.act},
                            {out_bias, h.ranks == 1 ? x : none}));
    if (h.ranks > 1) ops.push_back(streaming(OpKind::accumulate, part, {part, part, part}));
    comm.sum(work.comm);
  };
  if (fills(BlockSlot::x2)) project(h.HK);
  if (h.has_tiles) {
    if (makes_y) tiles.forward(work);
    return work;
  }
  if (fills(BlockSlot::h2)) norm();
  if (experts != nullptr) {
    experts->forward(work, makes_y, fills, keeps);
    return work;
  }
  const bool gelu = s.activation == Activation::gelu;
  if (fills(BlockSlot::up)) {
    comm.whole(work.comm);
    // With GELU, d is act and the epilogue also writes up.
    ops.push_back(gemm_cost({h.T, h.U, h.D, GemmLayout::nt, h.act, h.act},
                            {s.linear_bias ? h.vec(h.U) : none, gelu ? h.row(h.U) : none}));
  }
  if (!gelu && fills(BlockSlot::act)) {
    ops.push_back(streaming(OpKind::swiglu_forward, h.row(h.F), {h.row(h.U), h.row(h.F)}));
  }
  if (makes_y) project(h.F);
  return work;
}

// `recomputes` is true for slots that B recomputes.
template <typename Recomputes>
Work input_gradient_work(const BlockSpec& s, const FactsInput& in, const Shapes& h,
                         const RotationFacts& rotation, const ContextFacts& context,
                         const TileFacts& tiles, const ExpertFacts* experts, const Float8Facts* fp8,
                         Recomputes recomputes) {
  Work work;
  std::vector<OpCost>& ops = work.ops;
  const StreamComm comm(in, h.D);
  const TensorSpec none{};
  const TensorSpec x = h.stream();
  const auto norm = [&](BlockSlot result) {
    const bool is_layer = s.norm == NormKind::layer;
    const TensorSpec dbias = is_layer ? h.dvec(h.D) : none;
    const TensorSpec sum = h.norms_sum_biases ? h.dvec(h.D) : none;
    const TensorSpec y = recomputes(result) ? x : none;
    const TensorSpec bias = recomputes(result) && is_layer ? h.vec(h.D) : none;
    ops.push_back(streaming(OpKind::norm_backward, x,
                            {x, x, h.f32(h.R, h.stats), h.vec(h.D), x, x, h.dvec(h.D), h.dvec(h.D),
                             dbias, dbias, sum, sum, bias, y}));
  };
  if (experts != nullptr) {
    experts->backward(work, recomputes, [&] { norm(BlockSlot::h2); });
  } else if (fp8 != nullptr) {
    fp8->feed_forward_backward(work, recomputes);
  } else if (h.has_tiles) {
    tiles.backward(work);
  } else {
    comm.whole(work.comm);
    if (s.activation == Activation::swiglu) {
      ops.push_back(gemm_cost({h.T, h.F, h.D, GemmLayout::nn, h.act, h.act}, {}));
      const TensorSpec y = recomputes(BlockSlot::act) ? h.row(h.F) : none;
      ops.push_back(
          streaming(OpKind::swiglu_backward, h.row(h.F), {h.row(h.U), h.row(h.F), h.row(h.U), y}));
    } else {
      const TensorSpec sum =
          is_bias_made_in_b(s, in.shape, BlockParam::up_bias) ? h.dvec(h.U) : none;
      const TensorSpec again = recomputes(BlockSlot::act) ? h.row(h.F) : none;
      ops.push_back(
          gemm_cost({h.T, h.F, h.D, GemmLayout::nn, h.act, h.act}, {h.row(h.F), sum, sum, again}));
    }
    ops.push_back(gemm_cost({h.T, h.D, h.U, GemmLayout::nn, h.act, h.act}, {}));
    comm.sum(work.comm);
    norm(BlockSlot::h2);
  }
  if (fp8 != nullptr) {
    fp8->attention_backward(work, recomputes);
    return work;
  }
  comm.whole(work.comm);
  ops.push_back(gemm_cost({h.T, h.HK, h.D, GemmLayout::nn, h.act, h.act}, {}));
  context.backward(work);
  if (s.rope) rotation.backward(work);
  ops.push_back(gemm_cost({h.T, h.D, h.N, GemmLayout::nn, h.act, h.act}, {}));
  comm.sum(work.comm);
  norm(BlockSlot::h1);
  return work;
}

Work weight_gradient_work(const BlockSpec& s, const FactsInput& in, const Shapes& h,
                          const ExpertFacts* experts, const Float8Facts* fp8) {
  if (fp8 != nullptr) {
    Work work;
    if (experts != nullptr) {
      experts->weights(work);
    } else {
      fp8->feed_forward_weights(work);
    }
    fp8->attention_weights(work);
    return work;
  }
  const auto wgrad = [&](int64_t out, int64_t width, BlockParam bias) {
    const bool has_bias = bias == BlockParam::qkv_bias ? s.has_qkv_bias() : s.linear_bias;
    const bool sums = has_bias && !is_bias_made_in_b(s, in.shape, bias);
    const TensorSpec sum = sums ? h.dvec(out) : TensorSpec{};
    return gemm_cost({out, width, h.T, GemmLayout::tn, h.act, h.grad, true}, {sum, sum});
  };
  Work work;
  const StreamComm comm(in, h.D);
  if (experts != nullptr) {
    experts->weights(work);
  } else if (!h.has_tiles) {
    work.ops = {wgrad(h.D, h.F, BlockParam::down_bias), wgrad(h.U, h.D, BlockParam::up_bias)};
    comm.whole(work.comm);  // h2
  }
  work.ops.push_back(wgrad(h.D, h.HK, BlockParam::out_bias));
  work.ops.push_back(wgrad(h.N, h.D, BlockParam::qkv_bias));
  comm.whole(work.comm);  // h1
  return work;
}

}  // namespace

Facts block_facts(const BlockSpec& block, const FactsInput& in) {
  const BlockSpec s = local_block(block, in.shape.mesh);
  const Shapes h(s, in);
  const RotationFacts rotation(s, in);
  const ContextFacts context(s, in);
  const TileFacts tiles(s, in);
  std::optional<ExpertFacts> of_experts;
  if (s.moe) of_experts.emplace(s, in);
  const ExpertFacts* experts = of_experts ? &*of_experts : nullptr;
  std::optional<Float8Facts> of_fp8;
  if (in.recipe.fp8) of_fp8.emplace(s, in, rotation, context);
  const Float8Facts* fp8 = of_fp8 ? &*of_fp8 : nullptr;
  Facts f;
  f.params = block_params(block, in.model, in.layer);
  f.stash = block_slots(s, h, rotation, context, experts, fp8);
  const auto has_fate = [&](Fate fate) {
    return [&f, &in, fate](BlockSlot slot) {
      const auto index = static_cast<int>(slot);
      return fate_of(f.stash[static_cast<size_t>(index)], index, in.recompute) == fate;
    };
  };
  const auto keep = [](std::vector<OpCost>& ops, std::vector<CommCost>& comm, Work work) {
    ops = std::move(work.ops);
    comm = std::move(work.comm);
  };
  f.scratch =
      block_scratch(s, h, rotation, context, tiles, experts, fp8, has_fate(Fate::recomputed_in_b));
  keep(f.f, f.f_comm,
       forward_work(s, in, h, rotation, context, tiles, experts, fp8, has_fate(Fate::kept), true,
                    [](BlockSlot) { return true; }));
  keep(f.b, f.b_comm,
       input_gradient_work(s, in, h, rotation, context, tiles, experts, fp8,
                           has_fate(Fate::recomputed_in_b)));
  keep(f.w, f.w_comm, weight_gradient_work(s, in, h, experts, fp8));
  keep(f.r, f.r_comm,
       forward_work(s, in, h, rotation, context, tiles, experts, fp8, has_fate(Fate::recomputed),
                    false, has_fate(Fate::recomputed)));
  if (h.has_tiles) f.b_recomputed_flops = tiles.recomputed_flops();
  return f;
}

}  // namespace trireme::spec::internal
