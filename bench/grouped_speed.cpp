// SPDX-License-Identifier: Apache-2.0
// Measures the ops of a mixture-of-experts layer on a GPU. Products of groups of rows stand beside
// one product of the same FLOPs by the library in the same run; ops that move rows beside the time
// in which a copy moves their bytes, each tensor once.
//
//   grouped_speed --rows 4096 --width 2048 --hidden 1024 --experts 64
//   grouped_speed --part products --precision fp8-block
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "device/accelerator.h"
#include "device/memory.h"
#include "kernels/ops.h"
#include "kernels/table.h"
#include "spec/facts/backend.h"
#include "spec/recipe.h"

namespace {

using namespace trireme;
using base::DType;
using base::Shape;
using device::Tensor;
namespace ops = kernels::ops;

struct Options {
  int64_t rows = 4096;  // of an expert, on average
  int64_t width = 2048, hidden = 1024, experts = 64, chosen = 8;
  double skew = 1;  // rows of the fullest expert over those of the emptiest
  int rounds = 10;
  bool has_bf16_grads = false;
  bool is_json = false;
  std::string precision = "bf16";
};

// Memory, streams and clocks of one GPU.
class Bench {
 public:
  explicit Bench(int rounds)
      : rounds_(rounds),
        device_(device::make_gpu(kernels::cuda_kernels(), {})),
        stream_(device_->make_stream("bench")) {
    const int64_t bytes = spec::cuda_backend(true).stream_workspace_bytes;
    stream_->set_workspace(tensor({bytes}, DType::u8));
  }

  device::Stream& stream() { return *stream_; }
  Tensor tensor(const Shape& shape, DType dtype) {
    const base::TensorSpec spec = {shape, dtype};
    buffers_.push_back(std::make_unique<device::Buffer>(*device_, device::Mem::scratch,
                                                        base::bytes_of(spec), "bench"));
    return device::view_of(buffers_.back()->data(), spec);
  }
  Tensor normal(const Shape& shape, DType dtype, float std_dev) {
    const Tensor t = tensor(shape, dtype);
    ops::init_normal(*stream_, {.d = t.as_matrix(),
                                .key = base::rng_key(buffers_.size(), "bench"),
                                .global_row_stride = static_cast<uint64_t>(t.cols()),
                                .std_dev = std_dev});
    return t;
  }
  Tensor integers(const std::vector<int32_t>& values) {
    const Tensor t = tensor({std::ssize(values)}, DType::i32);
    stream_->upload(t, std::as_bytes(std::span(values)));
    stream_->synchronize();
    return t;
  }
  // The median times of calls, in seconds. They run in turn, so that all see the same clocks.
  std::vector<double> times(const std::vector<std::function<void()>>& calls) {
    std::vector<device::Event> events;
    for (int round = -2; round < rounds_; ++round) {  // the first two are not measured
      if (round == 0) events.push_back(stream_->record_timed());
      for (const auto& call : calls) {
        call();
        if (round >= 0) events.push_back(stream_->record_timed());
      }
    }
    stream_->synchronize();
    std::vector<double> medians;
    for (size_t c = 0; c < calls.size(); ++c) {
      std::vector<double> all;
      for (size_t i = c; i + 1 < events.size(); i += calls.size()) {
        all.push_back(stream_->seconds_between(events[i], events[i + 1]));
      }
      std::ranges::sort(all);
      medians.push_back(all[all.size() / 2]);
    }
    return medians;
  }

 private:
  int rounds_;
  std::unique_ptr<device::Device> device_;
  std::vector<std::unique_ptr<device::Buffer>> buffers_;
  std::unique_ptr<device::Stream> stream_;
};

// Starts of groups whose sizes fall linearly from `skew` times the last one, in multiples of 128,
// in an order that mixes large and small ones.
std::vector<int32_t> starts_of(const Options& o) {
  std::vector<int32_t> starts = {0};
  for (int64_t e = 0; e < o.experts; ++e) {
    const double at = o.experts == 1 ? 0.5
                                     : static_cast<double>(e * 37 % o.experts) /
                                           static_cast<double>(o.experts - 1);
    const double share = 2 / (1 + o.skew) * (1 + (o.skew - 1) * at);
    const auto rows = static_cast<int32_t>(static_cast<double>(o.rows) * share / 128 + 0.5) * 128;
    starts.push_back(starts.back() + rows);
  }
  return starts;
}

struct Row {
  std::string name;
  double seconds = 0, flops = 0, dense_seconds = 0, bytes = 0, copy_seconds = 0;
};

// The products of a layer, each beside the library's.
std::vector<Row> products(Bench& bench, const Options& o) {
  const std::vector<int32_t> starts = starts_of(o);
  const int64_t R = starts.back(), D = o.width, F = o.hidden, E = o.experts;
  const DType bf16 = DType::bf16, grads = o.has_bf16_grads ? bf16 : DType::f32;
  device::Stream& s = bench.stream();
  const Tensor x = bench.normal({R, D}, bf16, 1), y = bench.normal({R, D}, bf16, 1);
  const Tensor gate_up = bench.normal({R, 2 * F}, bf16, 1), act = bench.normal({R, F}, bf16, 1);
  const Tensor dgate_up = bench.normal({R, 2 * F}, bf16, 1);
  const Tensor up_weight = bench.normal({E, 2 * F, D}, bf16, 0.02F);
  const Tensor down_weight = bench.normal({E, D, F}, bf16, 0.02F);
  const Tensor up_grad = bench.normal({E, 2 * F, D}, grads, 0);
  const Tensor down_grad = bench.normal({E, D, F}, grads, 0);
  const Tensor row_weight = bench.normal({R}, DType::f32, 1);
  const Tensor dweight = bench.normal({R}, DType::f32, 1);
  const Tensor at = bench.integers(starts);
  const auto first = [](const Tensor& t) {
    return t.slice_rows(0, 1).reshape({t.shape[1], t.shape[2]});
  };
  const double up_flops = 2.0 * static_cast<double>(R * 2 * F * D), down_flops = up_flops / 2;
  using Call = std::function<void()>;
  const auto product = [&](const Tensor& a, const Tensor& b, const Tensor& d,
                           bool trans_b) -> Call {
    return [=, &s] { ops::gemm(s, {.a = a, .b = b, .d = d, .trans_b = trans_b}); };
  };
  const auto sum = [&](const Tensor& dy, const Tensor& in, const Tensor& d) -> Call {
    return [=, &s] { ops::gemm(s, {.a = dy, .b = in, .d = d, .trans_a = true, .beta = 1}); };
  };
  const Call up_dense = product(x, first(up_weight), gate_up, true);
  const Call down_dense = product(act, first(down_weight), y, true);
  const Call dx_dense = product(dgate_up, first(up_weight), x, false);
  const Call dact_dense = product(y, first(down_weight), act, false);
  const Call up_grad_dense = sum(dgate_up, x, first(up_grad));
  const Call down_grad_dense = sum(y, act, first(down_grad));
  std::vector<Row> rows;
  const auto add = [&](const std::string& name, double flops, const Call& dense, const Call& op) {
    const std::vector<double> times = bench.times({dense, op});
    rows.push_back({.name = name, .seconds = times[1], .flops = flops, .dense_seconds = times[0]});
  };
  add("grouped_swiglu_forward", up_flops, up_dense, [&] {
    ops::grouped_swiglu_forward(s, {.x = x,
                                    .weight = up_weight,
                                    .starts = at,
                                    .row_weight = row_weight,
                                    .gate_up = gate_up,
                                    .act = act});
  });
  add("grouped_forward, up", up_flops, up_dense,
      [&] { ops::grouped_forward(s, {.x = x, .weight = up_weight, .starts = at, .y = gate_up}); });
  add("grouped_forward, down", down_flops, down_dense,
      [&] { ops::grouped_forward(s, {.x = act, .weight = down_weight, .starts = at, .y = y}); });
  add("grouped_swiglu_backward", down_flops, dact_dense, [&] {
    ops::grouped_swiglu_backward(s, {.dy = y,
                                     .weight = down_weight,
                                     .starts = at,
                                     .gate_up = gate_up,
                                     .row_weight = row_weight,
                                     .dgate_up = dgate_up,
                                     .dweight = dweight,
                                     .act = act});
  });
  add("grouped_backward_input, down", down_flops, dact_dense, [&] {
    ops::grouped_backward_input(s, {.dy = y, .weight = down_weight, .starts = at, .dx = act});
  });
  add("grouped_backward_input, up", up_flops, dx_dense, [&] {
    ops::grouped_backward_input(s, {.dy = dgate_up, .weight = up_weight, .starts = at, .dx = x});
  });
  for (const bool adds : {true, false}) {
    const std::string suffix = adds ? ", adds" : "";
    add("grouped_backward_weight, up" + suffix, up_flops, up_grad_dense, [&, adds] {
      ops::grouped_backward_weight(
          s, {.dy = dgate_up, .x = x, .starts = at, .dweight = up_grad, .adds = adds});
    });
    add("grouped_backward_weight, down" + suffix, down_flops, down_grad_dense, [&, adds] {
      ops::grouped_backward_weight(
          s, {.dy = y, .x = act, .starts = at, .dweight = down_grad, .adds = adds});
    });
  }
  return rows;
}

struct Codes {
  Tensor codes, scale;
};
struct CodesOfRows {
  Codes rows, columns;
};

// Makes operands in 8 bits from random values, as a recipe does.
class Coder {
 public:
  Coder(Bench& bench, const std::string& precision)
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

  Bench& bench_;
  spec::Recipe recipe_;
  spec::Float8Recipe fp8_;
};

// The products of a layer in 8 bits, each beside the library's in bf16, and what makes their
// operands.
std::vector<Row> products_of_codes(Bench& bench, const Options& o) {
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

// The router and the ops that move rows. Logits are random, so that loads are even but for noise.
std::vector<Row> moves(Bench& bench, const Options& o) {
  const int64_t K = o.chosen, E = o.experts, D = o.width, T = o.rows * E / K;
  const int64_t R = (T * K + E * 127) / 128 * 128;
  device::Stream& s = bench.stream();
  const DType f32 = DType::f32, i32 = DType::i32, bf16 = DType::bf16;
  const spec::RouterSpec rule = {.experts = E, .chosen = K, .renormalizes = true};
  const Tensor logits = bench.normal({T, E}, f32, 1), dlogits = bench.normal({T, E}, bf16, 1);
  const Tensor choice = bench.tensor({T, K}, i32), weights = bench.tensor({T, K}, f32);
  const Tensor stats = bench.normal({spec::RouterStats{E}.size()}, f32, 0);
  const Tensor place = bench.tensor({T, K}, i32), pair = bench.tensor({R}, i32);
  const Tensor counts = bench.tensor({E}, i32), starts = bench.tensor({E + 1}, i32);
  const Tensor row_grads = bench.normal({R}, f32, 1);
  const Tensor labels = bench.integers(std::vector<int32_t>(static_cast<size_t>(T), 1));
  const Tensor x = bench.normal({T, D}, bf16, 1), y = bench.normal({T, D}, bf16, 1);
  const Tensor rows_of_x = bench.tensor({R, D}, bf16);
  const Tensor end = starts.slice_rows(E, 1);
  const auto tokens = static_cast<double>(T), pairs = tokens * static_cast<double>(K);
  const auto width = static_cast<double>(D), experts = static_cast<double>(E);
  constexpr int64_t copied = int64_t{1} << 30;
  const Tensor from = bench.normal({copied / 4}, f32, 1), to = bench.tensor({copied / 4}, f32);
  const double bandwidth =
      2.0 * static_cast<double>(copied) / bench.times({[&] { s.copy_bytes(to, from); }})[0];
  std::vector<Row> rows;
  const auto add = [&](const std::string& name, double bytes, const std::function<void()>& op) {
    rows.push_back({.name = name,
                    .seconds = bench.times({op})[0],
                    .bytes = bytes,
                    .copy_seconds = bytes / bandwidth});
  };
  add("router_forward", tokens * experts * 4 + pairs * 8, [&] {
    ops::router_forward(
        s, {.rule = rule, .logits = logits, .choice = choice, .weights = weights, .stats = stats});
  });
  add("route_rows", pairs * 12, [&] {
    ops::route_rows(s, {.choice = choice,
                        .experts = E,
                        .tile = 128,
                        .place = place,
                        .pair = pair,
                        .counts = counts,
                        .starts = starts,
                        .stats = stats});
  });
  add("gather_pairs", (tokens + pairs) * width * 2, [&] {
    ops::gather_pairs(s, {.x = x, .source = pair, .divisor = K, .end = end, .d = rows_of_x});
  });
  add("gather_pairs with place", (tokens + pairs) * width * 2, [&] {
    ops::gather_pairs(
        s, {.x = x, .source = pair, .divisor = K, .end = end, .place = place, .d = rows_of_x});
  });
  add("gather_pairs of weights", pairs * 12, [&] {
    ops::gather_pairs(s,
                      {.x = weights.reshape({T * K}), .source = pair, .end = end, .d = row_grads});
  });
  add("sum_pairs", (pairs + 2 * tokens) * width * 2,
      [&] { ops::sum_pairs(s, {.rows = rows_of_x, .place = place, .residual = x, .y = y}); });
  add("router_backward", tokens * experts * 6 + pairs * 12, [&] {
    ops::router_backward(s, {.rule = rule,
                             .logits = logits,
                             .choice = choice,
                             .place = place,
                             .row_grads = row_grads,
                             .labels = labels,
                             .z_scale = 1e-3F,
                             .dlogits = dlogits});
  });
  return rows;
}

void print(const Options& o, const std::vector<Row>& rows) {
  nlohmann::json all = nlohmann::json::array();
  for (const Row& r : rows) {
    const double micros = r.seconds * 1e6;
    if (o.is_json) {
      all.push_back({{"op", r.name},
                     {"seconds", r.seconds},
                     {"flops", r.flops},
                     {"dense_seconds", r.dense_seconds},
                     {"bytes", r.bytes},
                     {"copy_seconds", r.copy_seconds}});
    } else if (r.flops > 0) {
      fmt::print("{:36} {:9.1f} us {:7.1f} TFLOP/s, one product {:7.1f}: {:.3f} of it\n", r.name,
                 micros, r.flops / r.seconds / 1e12, r.flops / r.dense_seconds / 1e12,
                 r.dense_seconds / r.seconds);
    } else {
      fmt::print("{:36} {:9.1f} us {:7.1f} GB/s, {:.2f} times a copy of its bytes\n", r.name,
                 micros, r.bytes / r.seconds / 1e9, r.seconds / r.copy_seconds);
    }
  }
  if (o.is_json) fmt::print("{}\n", all.dump(1));
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  std::string part = "all";
  CLI::App app("Speed of the ops of mixture-of-experts layers on a GPU");
  app.add_option("--rows", o.rows, "rows of an expert, on average")->capture_default_str();
  app.add_option("--width", o.width, "of the model")->capture_default_str();
  app.add_option("--hidden", o.hidden, "width of an expert's feed-forward")->capture_default_str();
  app.add_option("--experts", o.experts)->capture_default_str();
  app.add_option("--chosen", o.chosen, "experts of a token")->capture_default_str();
  app.add_option("--skew", o.skew, "rows of the fullest expert over those of the emptiest")
      ->capture_default_str();
  app.add_option("--rounds", o.rounds)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--part", part)->check(CLI::IsMember({"all", "products", "moves"}));
  app.add_option("--precision", o.precision, "of the products; the library's are in bf16")
      ->check(CLI::IsMember({"bf16", "fp8-tensor", "fp8-block"}))
      ->capture_default_str();
  app.add_flag("--bf16-grads", o.has_bf16_grads);
  app.add_flag("--json", o.is_json);
  CLI11_PARSE(app, argc, argv);
  std::vector<Row> rows;
  if (part != "moves") {
    Bench bench(o.rounds);
    rows = o.precision == "bf16" ? products(bench, o) : products_of_codes(bench, o);
  }
  if (part != "products") {
    Bench bench(o.rounds);
    const std::vector<Row> more = moves(bench, o);
    rows.insert(rows.end(), more.begin(), more.end());
  }
  if (!o.is_json) {
    fmt::print("{} rows an expert, skew {}: D {}, F {}, E {}, K {}\n", o.rows, o.skew, o.width,
               o.hidden, o.experts, o.chosen);
  }
  print(o, rows);
  return 0;
}
