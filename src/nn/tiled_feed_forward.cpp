// SPDX-License-Identifier: Apache-2.0
#include "nn/tiled_feed_forward.h"

#include <algorithm>

#include "kernels/ops.h"
#include "nn/linear.h"

namespace trireme::nn {
namespace {

namespace ops = kernels::ops;
using kernels::AddTerms;
using spec::BlockParam;
using spec::BlockSlot;

// Calls body(begin, rows) for every tile, in order.
template <typename Body>
void for_each_tile(const spec::LocalShape& shape, Body body) {
  const int64_t all = shape.rows(), rows = shape.tile_rows();
  for (int64_t begin = 0; begin < all; begin += rows) body(begin, std::min(rows, all - begin));
}

}  // namespace

TiledFeedForward::Tile TiledFeedForward::make_tile(Pass& pass, Tensor x2) const {
  const int64_t rows = x2.rows();
  Tile tile;
  tile.h2 = pass.scratch.take({{rows, spec_.width}, x2.dtype});
  tile.stats = pass.scratch.take({{rows, spec::norm_stats(spec_.norm)}, base::DType::f32});
  ops::norm_forward(pass.stream, {.kind = spec_.norm,
                                  .eps = spec_.norm_eps,
                                  .x = x2,
                                  .weight = at(pass.params, BlockParam::norm2_weight),
                                  .bias = at(pass.params, BlockParam::norm2_bias),
                                  .y = tile.h2,
                                  .stats = tile.stats});
  tile.whole = tp_.gather_rows(pass, tile.h2);
  tile.up = pass.scratch.take({{tile.whole.rows(), spec_.up_width()}, x2.dtype});
  tile.act = pass.scratch.take({{tile.whole.rows(), spec_.ffn}, x2.dtype});
  return tile;
}

void TiledFeedForward::forward(Pass& pass) const {
  if (pass.recomputing) return;  // the backward does it
  const device::Range range(pass.stream, "mlp");
  const Tensor all = pass.stash[BlockSlot::x2];
  const Tensor bias = at(pass.params, BlockParam::up_bias);
  for_each_tile(shape_, [&](int64_t begin, int64_t rows) {
    const device::Arena::Mark mark(pass.scratch);
    const Tensor x2 = all.slice_rows(begin, rows);
    const Tile tile = make_tile(pass, x2);
    LinearForward up{.x = tile.whole, .weight = at(pass.params, BlockParam::up_weight)};
    if (spec_.activation == spec::Activation::gelu) {
      up.epilogue = kernels::GeluForward{.bias = bias, .input = tile.up};
      up.y = tile.act;
    } else {
      up.epilogue = AddTerms{.bias = bias};
      up.y = tile.up;
      up.swiglu = tile.act;
    }
    linear_forward(pass, up);
    tp_.linear_forward(
        pass, {.x = tile.act,
               .weight = at(pass.params, BlockParam::down_weight),
               .epilogue = AddTerms{.bias = at(pass.params, BlockParam::down_bias), .residual = x2},
               .y = pass.y.slice_rows(begin, rows)});
  });
}

void TiledFeedForward::backward(Pass& pass) const {
  const device::Range range(pass.stream, "mlp backward");
  for_each_tile(shape_, [&](int64_t begin, int64_t rows) { backward_tile(pass, begin, rows); });
}

void TiledFeedForward::backward_activation(Pass& pass, const Tile& tile, Tensor dy) const {
  const Tensor bias = at(pass.params, BlockParam::up_bias);
  const Tensor up_weight = at(pass.params, BlockParam::up_weight);
  const Tensor down_weight = at(pass.params, BlockParam::down_weight);
  if (spec_.activation == spec::Activation::gelu) {
    linear_forward(pass, {.x = tile.whole,
                          .weight = up_weight,
                          .epilogue = kernels::GeluForwardSlope{.bias = bias, .slope = tile.up},
                          .y = tile.act});
    const Tensor bias_sum = bias_grad(pass, Half::input, BlockParam::up_bias);
    linear_backward_input(pass,
                          {.dy = dy,
                           .weight = down_weight,
                           .dx = tile.up,
                           .epilogue = kernels::ScaleBy{.factor = tile.up, .d_sum = bias_sum}});
    return;
  }
  linear_forward(
      pass,
      {.x = tile.whole, .weight = up_weight, .epilogue = AddTerms{.bias = bias}, .y = tile.up});
  const device::Arena::Mark mark(pass.scratch);
  const Tensor dact = pass.scratch.take({tile.act.shape, tile.act.dtype});
  linear_backward_input(
      pass, {.dy = dy,
             .weight = down_weight,
             .dx = dact,
             .swiglu = {.gate_up = tile.up, .dy = dact, .dgate_up = tile.up, .y = tile.act}});
}

void TiledFeedForward::backward_tile(Pass& pass, int64_t begin, int64_t rows) const {
  const device::Arena::Mark mark(pass.scratch);
  const Tensor own_dy = pass.dy.slice_rows(begin, rows);
  const Tensor x2 = pass.stash[BlockSlot::x2].slice_rows(begin, rows);
  const Tensor dy = tp_.gather_rows(pass, own_dy);
  const Tile tile = make_tile(pass, x2);
  backward_activation(pass, tile, dy);
  const Tensor dup = tile.up;

  const auto weight_gradient = [&](Tensor d, Tensor x, BlockParam weight, BlockParam bias) {
    linear_backward_weight(pass, {.dy = d,
                                  .x = x,
                                  .weight_grad = at(pass.grads, weight),
                                  .writes = pass.writes_in_b && begin == 0,
                                  .bias_grad = bias_grad(pass, Half::weight, bias)});
  };
  weight_gradient(dy, tile.act, BlockParam::down_weight, BlockParam::down_bias);
  weight_gradient(dup, tile.whole, BlockParam::up_weight, BlockParam::up_bias);

  const Tensor dh2 = pass.scratch.take({{rows, spec_.width}, own_dy.dtype});
  tp_.linear_backward_input(
      pass, {.dy = dup, .weight = at(pass.params, BlockParam::up_weight), .dx = dh2});
  const Tensor down_bias = bias_grad(pass, Half::input, BlockParam::down_bias);
  ops::norm_backward(pass.stream, {.kind = spec_.norm,
                                   .dy = dh2,
                                   .x = x2,
                                   .stats = tile.stats,
                                   .weight = at(pass.params, BlockParam::norm2_weight),
                                   .dresidual = own_dy,
                                   .dx = pass.stash[BlockSlot::dx2].slice_rows(begin, rows),
                                   .dweight = at(pass.grads, BlockParam::norm2_weight),
                                   .dbias = at(pass.grads, BlockParam::norm2_bias),
                                   .dresidual_sum = down_bias,
                                   .partials = pass.scratch.take(norm_partials(rows, down_bias))});
}

}  // namespace trireme::nn
