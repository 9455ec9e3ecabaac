// SPDX-License-Identifier: Apache-2.0
#include "bench/grouped_speed.h"
#include "spec/recipe.h"

namespace trireme::bench {
namespace {

struct Codes {
  Tensor codes, scale;
};
struct CodesOfRows {
  Codes rows, columns;
};

// Makes operands in 8 bits from random values, as a recipe does.
class Coder {
 public:
  Coder(GpuTimer& bench, const std::string& precision)
      : bench_(bench), recipe_(spec::recipe_from_name(precision)), fp8_(*recipe_.fp8) {}

  const spec::Float8Recipe& fp8() const { return fp8_; }
  DType format(spec::Quantized role) const { return recipe_.format(role); }

  // Returns a call that quantises x by rows and columns.
  std::function<void()> quantizer(const Tensor& x, const CodesOfRows& to, const Tensor& amax) {
    return [this, x, to, amax] {
      ops::quantize(bench_.stream(),
                    {.x = x,
                     .rows = to.rows.codes,
                     .columns = to.columns.codes,
                     .rows_scale = to.rows.scale,
                     .columns_scale = to.columns.scale,
                     .shape = fp8_.rows,
                     .amax = fp8_.rows == spec::ScaleShape::tensor ? amax : Tensor{}});
    };
  }
  CodesOfRows codes_of(const Tensor& x, DType dtype) {
    const int64_t rows = x.rows(), cols = x.cols();
    const CodesOfRows to = {{bench_.tensor({rows, cols}, dtype), scales(fp8_.rows, rows, cols)},
                            {bench_.tensor({cols, rows}, dtype), scales(fp8_.rows, cols, rows)}};
    const Tensor amax = bench_.normal({1}, DType::f32, 0);
    ops::amax(bench_.stream(), {.x = x, .amax = amax});
    quantizer(x, to, amax)();
    return to;
  }
  // Matrices [count, rows, cols], and the same transposed.
  CodesOfRows weights(int64_t count, int64_t rows, int64_t cols) {
    const int64_t n = count * rows * cols;
    const Shape one = spec::scale_spec(fp8_.weights, rows, cols).shape;
    const Shape other = spec::scale_spec(fp8_.weights, cols, rows).shape;
    const Tensor values = bench_.normal({n}, DType::f32, 0.02F);
    const Tensor amax = bench_.normal({count * one.elements()}, DType::f32, 0);
    const DType e4m3 = DType::f8e4m3;
    const CodesOfRows to = {
        {bench_.tensor({count, rows, cols}, e4m3), bench_.tensor(amax.shape, DType::f32)},
        {bench_.tensor({count, cols, rows}, e4m3),
         bench_.tensor({count * other.elements()}, DType::f32)}};
    ops::weight_amax(bench_.stream(), {.weights = values,
                                       .count = count,
                                       .rows = rows,
                                       .cols = cols,
                                       .shape = fp8_.weights,
                                       .amax = amax});
    ops::weight_quantize(bench_.stream(), {.weights = values,
                                           .count = count,
                                           .rows = rows,
                                           .cols = cols,
                                           .shape = fp8_.weights,
                                           .amax = amax,
                                           .codes = to.rows.codes.reshape({n}),
                                           .scale = to.rows.scale});
    transposer(to)();
    // Speeds do not depend on the scales of transposed codes.
    ops::fill(bench_.stream(), {.d = to.columns.scale, .value = 1e-4F});
    return to;
  }
  std::function<void()> transposer(const CodesOfRows& w) {
    return [this, w] {
      const Shape& shape = w.rows.codes.shape;
      ops::transpose(bench_.stream(),
                     {.x = w.rows.codes.reshape({shape[0] * shape[1], shape[2]}),
                      .d = w.columns.codes.reshape({shape[0] * shape[2], shape[1]}),
                      .count = shape[0]});
    };
  }
  kernels::GroupedScales scales_of(const Codes& a, const Codes& weight, bool is_forward) const {
    return {a.scale, weight.scale, fp8_.rows, fp8_.weights, is_forward && fp8_.fast_forward};
  }

 private:
  Tensor scales(spec::ScaleShape shape, int64_t rows, int64_t cols) {
    return bench_.tensor(spec::scale_spec(shape, rows, cols).shape, DType::f32);
  }

  GpuTimer& bench_;
  spec::Recipe recipe_;
  spec::Float8Recipe fp8_;
};

}  // namespace

std::vector<Row> products_of_codes(GpuTimer& bench, const Options& o) {
  const std::vector<int32_t> starts = starts_of(o);
  const int64_t R = starts.back(), D = o.width, F = o.hidden, E = o.experts;
  const DType bf16 = DType::bf16, grads = o.has_bf16_grads ? bf16 : DType::f32;
  device::Stream& s = bench.stream();
  Coder coder(bench, o.precision);
  using spec::Quantized;
  const Tensor x = bench.normal({R, D}, bf16, 1), dy = bench.normal({R, D}, bf16, 1);
  const Tensor gate_up = bench.normal({R, 2 * F}, bf16, 1), act = bench.normal({R, F}, bf16, 1);
  const Tensor dgate_up = bench.normal({R, 2 * F}, bf16, 1), dact = bench.tensor({R, F}, bf16);
  const CodesOfRows x8 = coder.codes_of(x, coder.format(Quantized::h2));
  const CodesOfRows act8 = coder.codes_of(act, coder.format(Quantized::act));
  const CodesOfRows dup8 = coder.codes_of(dgate_up, coder.format(Quantized::dup));
  const CodesOfRows dy8 = coder.codes_of(dy, coder.format(Quantized::dy));
  const CodesOfRows up = coder.weights(E, 2 * F, D), down = coder.weights(E, D, F);
  const Tensor weight = bench.normal({2 * F, D}, bf16, 0.02F);  // of the library's products
  const Tensor up_grad = bench.normal({E, 2 * F, D}, grads, 0);
  const Tensor down_grad = bench.normal({E, D, F}, grads, 0);
  const Tensor row_weight = bench.normal({R}, DType::f32, 1),
               dweight = bench.tensor({R}, DType::f32);
  const Tensor amax = bench.normal({1}, DType::f32, 1);
  const Tensor at = bench.integers(starts);
  const double up_flops = 2.0 * static_cast<double>(R * 2 * F * D), down_flops = up_flops / 2;
  using Call = std::function<void()>;
  const Call up_dense = [&] { ops::gemm(s, {.a = x, .b = weight, .d = gate_up, .trans_b = true}); };
  const Call down_dense = [&] { ops::gemm(s, {.a = act, .b = weight.slice_rows(0, F), .d = dy}); };
  const Call up_grad_dense = [&] {
    ops::gemm(s, {.a = dgate_up,
                  .b = x,
                  .d = up_grad.slice_rows(0, 1).reshape({2 * F, D}),
                  .trans_a = true,
                  .beta = 1});
  };
  std::vector<Row> rows;
  const auto add = [&](const std::string& name, double flops, const Call& dense, double dense_flops,
                       const Call& op) {
    const std::vector<double> times = bench.times({dense, op});
    rows.push_back({.name = o.precision + " " + name,
                    .seconds = times[1],
                    .flops = flops,
                    .dense_seconds = times[0] * flops / dense_flops});
  };
  add("grouped_swiglu_forward", up_flops, up_dense, up_flops, [&] {
    ops::grouped_swiglu_forward(s, {.x = x8.rows.codes,
                                    .weight = up.rows.codes,
                                    .starts = at,
                                    .row_weight = row_weight,
                                    .gate_up = gate_up,
                                    .act = act,
                                    .scales = coder.scales_of(x8.rows, up.rows, true),
                                    .amax = amax});
  });
  add("grouped_forward, up", up_flops, up_dense, up_flops, [&] {
    ops::grouped_forward(s, {.x = x8.rows.codes,
                             .weight = up.rows.codes,
                             .starts = at,
                             .y = gate_up,
                             .scales = coder.scales_of(x8.rows, up.rows, true)});
  });
  add("grouped_forward, down", down_flops, down_dense, down_flops, [&] {
    ops::grouped_forward(s, {.x = act8.rows.codes,
                             .weight = down.rows.codes,
                             .starts = at,
                             .y = dy,
                             .scales = coder.scales_of(act8.rows, down.rows, true)});
  });
  add("grouped_swiglu_backward", down_flops, down_dense, down_flops, [&] {
    ops::grouped_swiglu_backward(s, {.dy = dy8.rows.codes,
                                     .weight = down.columns.codes,
                                     .starts = at,
                                     .gate_up = gate_up,
                                     .row_weight = row_weight,
                                     .dgate_up = dgate_up,
                                     .dweight = dweight,
                                     .scales = coder.scales_of(dy8.rows, down.columns, false),
                                     .dact = dact,
                                     .amax = amax});
  });
  add("grouped_backward_input, up", up_flops, up_dense, up_flops, [&] {
    ops::grouped_backward_input(s, {.dy = dup8.rows.codes,
                                    .weight = up.columns.codes,
                                    .starts = at,
                                    .dx = x,
                                    .scales = coder.scales_of(dup8.rows, up.columns, false)});
  });
  for (const bool adds : {true, false}) {
    const std::string suffix = adds ? ", adds" : "";
    const auto gradient = [&, adds](const Codes& of_dy, const Codes& of_x, const Tensor& to) {
      ops::grouped_backward_weight(
          s, {.dy = of_dy.codes,
              .x = of_x.codes,
              .starts = at,
              .dweight = to,
              .adds = adds,
              .scales = {of_dy.scale, of_x.scale, coder.fp8().rows, coder.fp8().rows, false}});
    };
    add("grouped_backward_weight, up" + suffix, up_flops, up_grad_dense, up_flops,
        [&] { gradient(dup8.columns, x8.columns, up_grad); });
    add("grouped_backward_weight, down" + suffix, down_flops, up_grad_dense, up_flops,
        [&] { gradient(dy8.columns, act8.columns, down_grad); });
  }
  constexpr int64_t copied = int64_t{1} << 30;
  const Tensor from = bench.normal({copied / 4}, DType::f32, 1);
  const Tensor to = bench.tensor({copied / 4}, DType::f32);
  const double bandwidth =
      2.0 * static_cast<double>(copied) / bench.times({[&] { s.copy_bytes(to, from); }})[0];
  const auto move = [&](const std::string& name, double bytes, const Call& op) {
    rows.push_back({.name = o.precision + " " + name,
                    .seconds = bench.times({op})[0],
                    .bytes = bytes,
                    .copy_seconds = bytes / bandwidth});
  };
  move("quantize, x rows and columns", 4.0 * static_cast<double>(R * D),
       coder.quantizer(x, x8, amax));
  move("transpose, up weights", 2.0 * static_cast<double>(E * 2 * F * D), coder.transposer(up));
  return rows;
}

}  // namespace trireme::bench
