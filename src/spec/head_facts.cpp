// SPDX-License-Identifier: Apache-2.0
// The head: final norm, logits, cross-entropy. Logits are never stored: F computes them chunk by
// chunk together with the loss, their gradient, dh and dW. What is left for B is the norm's
// backward; W is empty.
#include <algorithm>

#include "spec/facts_internal.h"

namespace trireme::spec::internal {

std::vector<Param> head_params(const HeadSpec& s, const ModelSpec& model) {
  std::vector<Param> params(static_cast<size_t>(HeadParam::count));
  const auto at = [&params](HeadParam p) -> Param& { return params[static_cast<size_t>(p)]; };
  at(HeadParam::norm_weight) = make_param("head.norm.weight", {s.width}, Init::ones, 0);
  if (s.norm == NormKind::layer) {
    at(HeadParam::norm_bias) = make_param("head.norm.bias", {s.width}, Init::zeros, 0);
  }
  at(HeadParam::weight) = make_param(s.tied ? "embedding.tokens" : "head.weight",
                                     {s.vocab, s.width}, Init::normal, model.init_std);
  at(HeadParam::weight).tied_copy = s.tied;
  at(HeadParam::weight).shard.cuts = {{Axis::tp, 0, {s.vocab}}};
  return params;
}

Facts head_facts(const HeadSpec& s, const FactsInput& in) {
  const int64_t tokens = in.shape.tokens;
  const base::DType act = in.recipe.storage, grad = in.recipe.grad;
  const auto f32 = [](base::Shape shape) { return base::TensorSpec{shape, base::DType::f32}; };
  const base::TensorSpec x{{tokens, s.width}, act};
  const base::TensorSpec stats = f32({tokens, norm_stats(s.norm)});
  const base::TensorSpec weight{{s.width}, act}, weight_grad{{s.width}, grad};
  const base::TensorSpec bias = s.norm == NormKind::layer ? weight : base::TensorSpec{};
  const base::TensorSpec bias_grad = s.norm == NormKind::layer ? weight_grad : base::TensorSpec{};
  const base::TensorSpec partials = f32({norm_partials(tokens), s.width * norm_stats(s.norm)});

  Facts f;
  f.params = head_params(s, in.model);
  f.stash.resize(static_cast<size_t>(HeadSlot::count));
  f.stash[slot_x] = {.name = "x", .spec = x};
  f.stash[slot_dy] = {.name = "dy", .spec = {}, .life = Life::b_to_w};
  f.stash[static_cast<size_t>(HeadSlot::stats)] = {.name = "stats", .spec = stats};
  f.stash[static_cast<size_t>(HeadSlot::dh)] = {.name = "dh", .spec = x, .backward_only = true};

  const int64_t chunk = std::min(tokens, in.shape.head_chunk_rows);
  f.scratch = {
      {"head.chunk",
       {{{chunk, s.width}, act}, logits_spec(in.backend, chunk, s.vocab, act), f32({chunk, 3})},
       true},
      {"head.norm", {partials}}};

  for (int64_t begin = 0; begin < tokens; begin += chunk) {
    const int64_t rows = std::min(chunk, tokens - begin);
    const base::TensorSpec x_rows{{rows, s.width}, act}, logits{{rows, s.vocab}, act};
    const base::TensorSpec labels{{rows}, base::DType::i32}, ce = f32({rows, 3});
    f.f.push_back(streaming(OpKind::norm_forward, x_rows,
                            {x_rows, weight, bias, x_rows, f32({rows, norm_stats(s.norm)})}));
    f.f.push_back(gemm_cost({rows, s.vocab, s.width, Layout::nt, act, act}, {}));
    f.f.push_back(streaming(OpKind::cross_entropy, logits, {logits, labels, ce, logits}));
    f.f.push_back(gemm_cost({rows, s.width, s.vocab, Layout::nn, act, act}, {}));
    f.f.push_back(gemm_cost({s.vocab, s.width, rows, Layout::tn, act, grad, true}, {}));
  }
  f.b = {streaming(OpKind::norm_backward, x,
                   {x, x, stats, weight, x, weight_grad, weight_grad, bias_grad, bias_grad})};
  return f;
}

}  // namespace trireme::spec::internal
