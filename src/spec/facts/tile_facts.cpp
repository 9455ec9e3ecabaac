// SPDX-License-Identifier: Apache-2.0
// The feed-forward of a block in tiles of rows (Layout::ffn_rows). Letters as in block_facts.cpp;
// n: the rank's rows of a tile, N: those of all ranks under sequence parallelism, otherwise n.
//
//   F, for every tile:  h2 = norm2(x2);  up = h2 Wup^T;  act = swiglu(up) or gelu(up);
//                       y = act Wd^T + x2
//   B, for every tile:  h2, up and act again;  dact = dy Wd;  dup, in place of up;
//                       dWd += dy^T act;  dWup += dup^T h2;  dh2 = dup Wup;  dx2 by norm2
//
// No slot is kept, and W has nothing to compute. Along tp the sums of y and dh2 are those of a
// tile; under sequence parallelism so are the gathered rows of h2 and dy. Recomputing h2 costs a
// small part of what recomputing up costs, so it is not kept under any policy.
#include <algorithm>

#include "spec/facts/facts_internal.h"

namespace trireme::spec::internal {

using base::TensorSpec;

TileFacts::TileFacts(const BlockSpec& local, const FactsInput& input)
    : s(local),
      in(input),
      ranks(input.shape.mesh[Axis::tp]),
      parts(input.shape.sequence_parallel ? ranks : 1),
      max_rows(input.shape.tile_rows()),
      norms_sum_biases(is_bias_made_in_b(local, input.shape, BlockParam::down_bias)) {}

template <typename Body>
void TileFacts::for_each(Body body) const {
  const int64_t all = in.shape.rows();
  for (int64_t begin = 0; begin < all; begin += max_rows) body(std::min(max_rows, all - begin));
}

TensorSpec TileFacts::row(int64_t rows, int64_t width) const {
  return {{rows, width}, in.recipe.storage};
}

TensorSpec TileFacts::stats(int64_t rows) const {
  return {{rows, norm_stats(s.norm)}, base::DType::f32};
}

void TileFacts::norm_and_up(Work& work, int64_t n) const {
  const base::DType act = in.recipe.storage;
  const int64_t N = n * parts;
  const TensorSpec x = row(n, s.width), weight{{s.width}, act};
  const TensorSpec bias = s.norm == NormKind::layer ? weight : TensorSpec{};
  work.ops.push_back(streaming(OpKind::norm_forward, x, {x, weight, bias, x, stats(n)}));
  StreamComm(in, s.width).whole(work.comm, N);
  const bool gelu = s.activation == Activation::gelu;
  const TensorSpec up_bias = s.linear_bias ? TensorSpec{{s.up_width()}, act} : TensorSpec{};
  // With GELU, d is act and the epilogue also writes up.
  work.ops.push_back(gemm_cost({N, s.up_width(), s.width, GemmLayout::nt, act, act},
                               {up_bias, gelu ? row(N, s.up_width()) : TensorSpec{}}));
}

void TileFacts::forward(Work& work) const {
  const base::DType act = in.recipe.storage;
  const StreamComm comm(in, s.width);
  for_each([&](int64_t n) {
    const int64_t N = n * parts;
    norm_and_up(work, n);
    if (s.activation == Activation::swiglu) {
      work.ops.push_back(
          streaming(OpKind::swiglu_forward, row(N, s.ffn), {row(N, s.up_width()), row(N, s.ffn)}));
    }
    const TensorSpec bias = s.linear_bias ? TensorSpec{{s.width}, act} : TensorSpec{};
    work.ops.push_back(gemm_cost({N, s.width, s.ffn, GemmLayout::nt, act, act},
                                 {bias, ranks == 1 ? row(n, s.width) : TensorSpec{}}));
    // The residual of the first rank's part of the rows, which a small tile may not have.
    const TensorSpec part = row(N / ranks, s.width);
    if (ranks > 1 && N >= ranks) {
      work.ops.push_back(streaming(OpKind::accumulate, part, {part, part, part}));
    }
    comm.sum(work.comm, N);
  });
}

void TileFacts::backward(Work& work) const {
  const base::DType act = in.recipe.storage;
  const StreamComm comm(in, s.width);
  const TensorSpec none{}, weight{{s.width}, act}, dweight{{s.width}, in.recipe.grad};
  const TensorSpec dbias = s.norm == NormKind::layer ? dweight : none;
  const TensorSpec dy_sum = norms_sum_biases ? dweight : none;
  const int64_t U = s.up_width();
  const auto weight_gradient = [&](int64_t N, int64_t out, int64_t width, BlockParam bias) {
    const bool sums = s.linear_bias && !is_bias_made_in_b(s, in.shape, bias);
    const TensorSpec sum = sums ? TensorSpec{{out}, in.recipe.grad} : none;
    work.ops.push_back(
        gemm_cost({out, width, N, GemmLayout::tn, act, in.recipe.grad, true}, {sum, sum}));
  };
  for_each([&](int64_t n) {
    const int64_t N = n * parts;
    const TensorSpec x = row(n, s.width), up = row(N, U), inner = row(N, s.ffn);
    comm.whole(work.comm, N);  // dy
    norm_and_up(work, n);
    const GemmShape dact{N, s.ffn, s.width, GemmLayout::nn, act, act};
    if (s.activation == Activation::swiglu) {
      work.ops.push_back(gemm_cost(dact, {}));
      work.ops.push_back(streaming(OpKind::swiglu_backward, inner, {up, inner, up, inner}));
    } else {
      const bool sums = is_bias_made_in_b(s, in.shape, BlockParam::up_bias);
      const TensorSpec sum = sums ? TensorSpec{{U}, in.recipe.grad} : none;
      work.ops.push_back(gemm_cost(dact, {inner, sum, sum}));
    }
    weight_gradient(N, s.width, s.ffn, BlockParam::down_bias);
    weight_gradient(N, U, s.width, BlockParam::up_bias);
    work.ops.push_back(gemm_cost({N, s.width, U, GemmLayout::nn, act, act}, {}));
    comm.sum(work.comm, N);
    work.ops.push_back(
        streaming(OpKind::norm_backward, x,
                  {x, x, stats(n), weight, x, x, dweight, dweight, dbias, dbias, dy_sum, dy_sum}));
  });
}

double TileFacts::recomputed_flops() const {
  return 2.0 * static_cast<double>(in.shape.rows() * parts) * static_cast<double>(s.up_width()) *
         static_cast<double>(s.width);
}

std::vector<ScratchSet> TileFacts::scratch() const {
  const int64_t n = max_rows, N = n * parts;
  const TensorSpec none{}, x = row(n, s.width), whole = parts > 1 ? row(N, s.width) : none;
  const TensorSpec up = row(N, s.up_width()), inner = row(N, s.ffn);
  const TensorSpec partials = norm_backward_partials(s.norm, n, s.width, norms_sum_biases);
  std::vector<ScratchSet> sets = {
      // With the partial sums of y.
      {"mlp.tile", {x, stats(n), whole, up, inner, whole}, true},
      // With dy of all ranks and the partial sums of dh2, then with those of the norm.
      {"mlp.tile.dh2", {whole, x, stats(n), whole, up, inner, x, whole}},
      {"mlp.tile.norm", {whole, x, stats(n), whole, up, inner, x, partials}}};
  if (s.activation == Activation::swiglu) {
    sets.push_back({"mlp.tile.dact", {whole, x, stats(n), whole, up, inner, inner}});
  }
  return sets;
}

}  // namespace trireme::spec::internal
