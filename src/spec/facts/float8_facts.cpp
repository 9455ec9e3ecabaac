// SPDX-License-Identifier: Apache-2.0
// A block whose products are in 8 bits (spec::Float8Recipe). Letters as in block_facts.cpp.
//
//   F   operands are quantised by rows for the product, and by columns (transposed) for W, which
//       keeps 1 byte a value: h1_t, h2_t, act_t. h1, h2 and act themselves are scratch. o is kept
//       for attention's backward anyway, and W quantises it by columns.
//   B   gradients are quantised by rows for the input's gradient, and by columns for W: dy_t,
//       dup_t, dx2_t, dqkv_t. Weights are transposed in scratch. If scales are known, SwiGLU's
//       backward and the codes of dup are one op (pairs_dup); otherwise dup_t overwrites up.
//   W   multiplies transposed codes.
//
// With one scale a tensor, its largest magnitude is known before it is quantised: norms, activation
// functions and SwiGLU's backward compute it, otherwise a separate op does. It is kept in the
// slot `amax` under every policy, so that what is recomputed has the same codes. Under sequence
// parallelism rows are gathered before they are quantised.
#include "spec/facts/facts_internal.h"
#include "spec/facts/quantize_cost.h"

namespace trireme::spec::internal {

using base::DType;
using base::TensorSpec;

Float8Facts::Float8Facts(const BlockSpec& local, const FactsInput& input,
                         const RotationFacts& rotation_facts, const ContextFacts& context_facts)
    : s(local),
      in(input),
      rotation(rotation_facts),
      context(context_facts),
      fp8(*input.recipe.fp8),
      T(input.shape.tokens),
      R(input.shape.rows()),
      D(local.width),
      HK(local.heads * local.head_dim),
      N(local.qkv_width()),
      U(local.up_width()),
      F(local.ffn),
      ranks(input.shape.mesh[Axis::tp]),
      parts_rows(input.shape.sequence_parallel),
      is_gelu(local.activation == Activation::gelu),
      norms_sum_biases(is_bias_made_in_b(local, input.shape, BlockParam::down_bias)),
      has_amax(fp8.finds_amax()),
      pairs_dup(!is_gelu && !has_amax),
      act(input.recipe.storage),
      grad(input.recipe.grad) {}

void Float8Facts::slots(std::vector<Slot>& all) const {
  const auto at = [&all](BlockSlot slot) -> Slot& { return all[static_cast<size_t>(slot)]; };
  const auto kept = [](const char* name, const TensorSpec& spec) {
    return Slot{.name = name,
                .spec = spec,
                .life = Life::f_to_w,
                .recomputable = true,
                .recomputed_in_b = true,
                .backward_only = true,
                .skips_f = true};
  };
  const auto made = [](const char* name, const TensorSpec& spec) {
    return Slot{.name = name, .spec = spec, .life = Life::b_to_w};
  };
  at(BlockSlot::h1) = at(BlockSlot::dqkv) = {};
  if (has_amax) {
    at(BlockSlot::amax) = {.name = "amax",
                           .spec = {{static_cast<int64_t>(Quantized::qkv_weight)}, DType::f32},
                           .life = Life::f_to_w,
                           .is_decision = true};
  }
  at(BlockSlot::h1_t) = kept("h1_t", codes(D, T));
  at(BlockSlot::dqkv_t) = made("dqkv_t", codes(N, T));
  at(BlockSlot::dx2_t) = made("dx2_t", codes(D, T));
  if (s.moe) return;
  at(BlockSlot::h2) = at(BlockSlot::act) = at(BlockSlot::dup) = {};
  at(BlockSlot::h2_t) = kept("h2_t", codes(D, T));
  at(BlockSlot::act_t) = kept("act_t", codes(F, T));
  at(BlockSlot::dup_t) = made("dup_t", codes(U, T));
  if (!pairs_dup) at(BlockSlot::dup_t).replaces = static_cast<int>(BlockSlot::up);
  at(BlockSlot::dy_t) = made("dy_t", codes(D, T));
}

std::vector<ScratchSet> Float8Facts::attention_scratch(const Is& recomputes) const {
  const TensorSpec none{};
  std::vector<ScratchSet> sets;
  const TensorSpec own = context.has_ulysses() ? context.own_rows() : none;
  sets.push_back({"attention.h1", {own, codes(T, D), stream(), whole()}, true});
  for (const ScratchSet& set : context.forward_scratch()) sets.push_back(set);
  sets.push_back({"attention.o", {codes(T, HK), whole()}, true});
  const auto beside_dqkv = [&](ScratchSet set) {
    set.tensors.insert(set.tensors.begin(), row(N));
    sets.push_back(std::move(set));
  };
  const TensorSpec dout_heads =
      context.has_ulysses() ? TensorSpec{{context.Tu, context.HK}, act} : none;
  beside_dqkv({"attention.dx2", {dout_heads, row(HK), codes(T, D), weight_codes(HK, D)}});
  for (const ScratchSet& set : context.backward_scratch()) beside_dqkv(set);
  for (const ScratchSet& set : rotation.scratch()) beside_dqkv(set);
  beside_dqkv({"attention.dqkv", {stream(), codes(T, N), weight_codes(D, N), whole()}});
  const bool again = recomputes(BlockSlot::h1_t);
  const TensorSpec partials = norm_backward_partials(s.norm, R, D, norms_sum_biases);
  beside_dqkv(
      {"attention.dh1", {stream(), partials, again ? stream() : none, again ? whole() : none}});
  sets.push_back({"attention.o_t", {codes(HK, T)}});
  return sets;
}

std::vector<ScratchSet> Float8Facts::feed_forward_scratch(const Is& recomputes) const {
  const TensorSpec none{};
  std::vector<ScratchSet> sets;
  sets.push_back({"mlp.h2", {codes(T, D), stream(), whole()}, true});
  sets.push_back({"mlp.act", {codes(T, F), row(F)}, true});
  sets.push_back({"mlp.down", {codes(T, F), whole()}, true});
  const TensorSpec dact = is_gelu ? none : row(F);
  const TensorSpec again = recomputes(BlockSlot::act_t) ? row(F) : none;
  const TensorSpec dup_codes = pairs_dup ? codes(T, U) : none;
  sets.push_back({"mlp.dact", {row(U), dup_codes, dact, again, codes(T, D), weight_codes(F, D)}});
  sets.push_back({"mlp.dup", {row(U), stream(), codes(T, U), weight_codes(D, U), whole()}});
  const bool has_h2 = recomputes(BlockSlot::h2_t);
  const TensorSpec partials = norm_backward_partials(s.norm, R, D, norms_sum_biases);
  sets.push_back(
      {"mlp.dh2", {row(U), stream(), partials, has_h2 ? stream() : none, has_h2 ? whole() : none}});
  return sets;
}

void Float8Facts::amax(Work& work, const TensorSpec& x) const {
  if (has_amax) work.ops.push_back(amax_cost(x));
}

void Float8Facts::quantize(Work& work, int64_t width, bool by_rows, bool by_columns) const {
  work.ops.push_back(quantize_cost(
      {.x = row(width), .by_rows = by_rows, .by_columns = by_columns, .shape = fp8.rows}));
}

void Float8Facts::product(Work& work, const GemmShape& shape,
                          std::initializer_list<TensorSpec> extra) const {
  work.ops.push_back(gemm_cost(shape, extra));
}

// Norm, gathered rows and their codes.
void Float8Facts::norm(Work& work, bool is_first, bool by_columns) const {
  const TensorSpec x = stream(), weight{{D}, act};
  const TensorSpec bias = s.norm == NormKind::layer ? weight : TensorSpec{};
  const TensorSpec stats{{R, norm_stats(s.norm)}, DType::f32};
  work.ops.push_back(streaming(OpKind::norm_forward, x, {x, weight, bias, x, stats}));
  StreamComm(in, D).whole(work.comm);
  if (is_first && parts_rows) amax(work, row(D));
  quantize(work, D, true, by_columns);
}

// A projection back to the stream: see block_facts.cpp.
void Float8Facts::project(Work& work, int64_t width) const {
  const TensorSpec none{}, bias = s.linear_bias ? TensorSpec{{D}, act} : none;
  const TensorSpec part{{T / ranks, D}, act};
  product(work, {T, D, width, GemmLayout::nt, in.recipe.format(Role::x_fwd), act},
          {bias, ranks == 1 ? stream() : none});
  if (ranks > 1) work.ops.push_back(streaming(OpKind::accumulate, part, {part, part, part}));
  StreamComm(in, D).sum(work.comm);
}

void Float8Facts::attention_forward(Work& work, bool is_first, const Is& fills,
                                    const Is& keeps) const {
  const bool by_heads = context.has_ulysses();
  if (is_first && has_amax) {
    const TensorSpec all{{static_cast<int64_t>(Quantized::qkv_weight)}, DType::f32};
    work.ops.push_back(streaming(OpKind::fill, all, {all}));
  }
  if (fills(by_heads ? BlockSlot::heads : BlockSlot::qkv)) {
    norm(work, is_first, keeps(BlockSlot::h1_t));
    product(work, {T, N, D, GemmLayout::nt, in.recipe.format(Role::x_fwd), act},
            {s.has_qkv_bias() ? TensorSpec{{N}, act} : TensorSpec{}});
  }
  const BlockSlot rotated = s.keeps_projection() ? BlockSlot::qk : BlockSlot::qkv;
  if (s.rope && fills(by_heads ? BlockSlot::heads : rotated)) rotation.forward(work);
  if (by_heads && fills(BlockSlot::heads)) context.exchange_heads(work);
  if (fills(BlockSlot::o)) context.forward(work);
  if (!fills(BlockSlot::x2)) return;
  if (is_first) amax(work, row(HK));
  quantize(work, HK, true, false);
  project(work, HK);
}

void Float8Facts::feed_forward(Work& work, bool is_first, const Is& fills, const Is& keeps) const {
  if (fills(BlockSlot::up)) {
    norm(work, is_first, keeps(BlockSlot::h2_t));
    product(work, {T, U, D, GemmLayout::nt, in.recipe.format(Role::x_fwd), act},
            {s.linear_bias ? TensorSpec{{U}, act} : TensorSpec{}});
  }
  const bool by_columns = keeps(BlockSlot::act_t);
  if (!is_first && !by_columns) return;
  work.ops.push_back(is_gelu ? streaming(OpKind::gelu_forward, row(F), {row(F), row(F)})
                             : streaming(OpKind::swiglu_forward, row(F), {row(U), row(F)}));
  quantize(work, F, is_first, by_columns);
  if (is_first) project(work, F);
}

// dx = dy w: dy and w by rows, with the transposed weight.
void Float8Facts::input_gradient(Work& work, int64_t in_width, int64_t out_width,
                                 std::initializer_list<TensorSpec> extra) const {
  quantize(work, out_width, true, true);
  gradient_product(work, in_width, out_width, extra);
}

// The same of codes of dy.
void Float8Facts::gradient_product(Work& work, int64_t in_width, int64_t out_width,
                                   std::initializer_list<TensorSpec> extra) const {
  const DType format = in.recipe.format(Role::w_dgrad);
  work.ops.push_back(transpose_cost({{out_width, in_width}, format}));
  if (fp8.weights == ScaleShape::block_128) {
    const auto blocks = [](int64_t n) { return (n + scale_block - 1) / scale_block; };
    work.ops.push_back(transpose_cost({{blocks(out_width), blocks(in_width)}, DType::f32}));
  }
  product(work, {T, in_width, out_width, GemmLayout::nt, in.recipe.format(Role::dy_dgrad), act},
          extra);
}

void Float8Facts::norm_backward(Work& work, bool recomputes) const {
  const TensorSpec none{}, x = stream(), weight{{D}, act}, dweight{{D}, grad};
  const bool is_layer = s.norm == NormKind::layer;
  const TensorSpec stats{{R, norm_stats(s.norm)}, DType::f32}, dbias = is_layer ? dweight : none;
  const TensorSpec sum = norms_sum_biases ? dweight : none;
  work.ops.push_back(streaming(OpKind::norm_backward, x,
                               {x, x, stats, weight, x, x, dweight, dweight, dbias, dbias, sum, sum,
                                recomputes && is_layer ? weight : none, recomputes ? x : none}));
  if (!recomputes) return;
  StreamComm(in, D).whole(work.comm);
  quantize(work, D, false, true);
}

void Float8Facts::feed_forward_backward(Work& work, const Is& recomputes) const {
  const StreamComm comm(in, D);
  const TensorSpec none{};
  const bool has_act = recomputes(BlockSlot::act_t);
  comm.whole(work.comm);
  amax(work, row(D));
  if (is_gelu) {
    const TensorSpec sum =
        is_bias_made_in_b(s, in.shape, BlockParam::up_bias) ? TensorSpec{{U}, grad} : none;
    input_gradient(work, F, D, {row(F), sum, sum, has_act ? row(F) : none});
    amax(work, row(U));
  } else {
    input_gradient(work, F, D, {});
    work.ops.push_back(streaming(OpKind::swiglu_backward, row(F),
                                 {row(U), row(F), row(U), has_act ? row(F) : none}));
  }
  if (pairs_dup) quantize(work, U, true, true);
  if (has_act) quantize(work, F, false, true);
  if (!pairs_dup) quantize(work, U, true, true);
  gradient_product(work, D, U, {});
  comm.sum(work.comm);
  norm_backward(work, recomputes(BlockSlot::h2_t));
}

void Float8Facts::attention_backward(Work& work, const Is& recomputes) const {
  const StreamComm comm(in, D);
  comm.whole(work.comm);
  if (parts_rows || s.moe) amax(work, row(D));
  input_gradient(work, HK, D, {});
  context.backward(work);
  if (s.rope) rotation.backward(work);
  amax(work, row(N));
  input_gradient(work, D, N, {});
  comm.sum(work.comm);
  norm_backward(work, recomputes(BlockSlot::h1_t));
}

void Float8Facts::weight_gradient(Work& work, int64_t out_width, int64_t in_width,
                                  BlockParam bias) const {
  const bool has_bias = bias == BlockParam::qkv_bias ? s.has_qkv_bias() : s.linear_bias;
  const bool sums = has_bias && !is_bias_made_in_b(s, in.shape, bias);
  const TensorSpec sum = sums ? TensorSpec{{out_width}, grad} : TensorSpec{};
  product(work,
          {out_width, in_width, T, GemmLayout::nt, in.recipe.format(Role::dy_wgrad), grad, true},
          {sum, sum});
}

void Float8Facts::feed_forward_weights(Work& work) const {
  weight_gradient(work, D, F, BlockParam::down_bias);
  weight_gradient(work, U, D, BlockParam::up_bias);
}

void Float8Facts::attention_weights(Work& work) const {
  quantize(work, HK, false, true);
  weight_gradient(work, D, HK, BlockParam::out_bias);
  weight_gradient(work, N, D, BlockParam::qkv_bias);
}

}  // namespace trireme::spec::internal
