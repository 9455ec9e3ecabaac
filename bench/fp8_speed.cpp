// SPDX-License-Identifier: Apache-2.0
// Measures the ops of 8-bit recipes on a GPU: quantising beside a copy of the same bytes; producers
// with and without the largest magnitude of what they write; products of a linear map beside bf16;
// and the errors of products beside fp64 of the same codes.
//
//   fp8_speed --tokens 16384 --in 3072 --out 8192
//   fp8_speed --part products --json
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/float8.h"
#include "bench/gpu_timer.h"

namespace {

using namespace trireme;
using base::DType;
using bench::GpuTimer;
using device::ConstTensor;
using device::Tensor;
using kernels::GemmArgs;
using spec::ScaleShape;
namespace ops = kernels::ops;

struct Options {
  int64_t tokens = 16384, in = 3072, out = 8192;
  int rounds = 10;
  std::string part = "all";
  bool is_json = false;
};

// A matrix in 8 bits.
struct Codes {
  Tensor values, scale;
};
Codes codes_in(GpuTimer& bench, DType format, ScaleShape shape, int64_t rows, int64_t cols) {
  return {bench.tensor({rows, cols}, format), bench.tensor(spec::scale_spec(shape, rows, cols))};
}

class Report {
 public:
  explicit Report(bool is_json) : is_json_(is_json) {}
  void add(const std::string& name, double seconds, const std::string& unit, double rate,
           double ratio) {
    if (is_json_) {
      rows_.push_back(
          {{"op", name}, {"seconds", seconds}, {"unit", unit}, {"rate", rate}, {"ratio", ratio}});
    } else {
      fmt::print("{:44} {:9.1f} us {:8.1f} {:8} {:.3f}\n", name, seconds * 1e6, rate, unit, ratio);
      std::fflush(stdout);
    }
  }
  void add_error(const std::string& name, double error) {
    if (is_json_) {
      rows_.push_back({{"product", name}, {"error", error}});
    } else {
      fmt::print("{:60} error {:.2e}\n", name, error);
      std::fflush(stdout);
    }
  }
  void print() const {
    if (is_json_) fmt::print("{}\n", rows_.dump(1));
  }

 private:
  bool is_json_;
  nlohmann::json rows_ = nlohmann::json::array();
};

// Ratios are to the bandwidth of a copy.
void measure_moves(const Options& o, Report& report) {
  GpuTimer bench(o.rounds);
  device::Stream& s = bench.stream();
  const int64_t T = o.tokens, D = o.in, F = o.out;
  constexpr int64_t copied = int64_t{1} << 30;
  const Tensor from = bench.normal({copied / 4}, DType::f32), to = bench.like(from);
  const double bandwidth =
      2.0 * static_cast<double>(copied) / bench.times({[&] { s.copy_bytes(to, from); }})[0];
  report.add("copy", 2.0 * static_cast<double>(copied) / bandwidth, "GB/s", bandwidth / 1e9, 1);
  const auto add = [&](const std::string& name, int64_t bytes, const std::function<void()>& op) {
    const double seconds = bench.times({op})[0];
    const double rate = static_cast<double>(bytes) / seconds;
    report.add(name, seconds, "GB/s", rate / 1e9, rate / bandwidth);
  };
  const Tensor x = bench.normal({T, F}, DType::bf16), amax = bench.zero({1}, DType::f32);
  const int64_t n = T * F;
  add("amax", 2 * n, [&] { ops::amax(s, {.x = x, .amax = amax}); });
  for (const ScaleShape shape : {ScaleShape::tensor, ScaleShape::row_128}) {
    const Codes rows = codes_in(bench, DType::f8e4m3, shape, T, F);
    const Codes columns = codes_in(bench, DType::f8e4m3, shape, F, T);
    const std::string name = shape == ScaleShape::tensor ? "quantize tensor" : "quantize row_128";
    const int64_t scales = shape == ScaleShape::tensor ? 0 : rows.scale.bytes();
    const ConstTensor a = shape == ScaleShape::tensor ? ConstTensor(amax) : ConstTensor();
    const Tensor counts =
        bench.zero({static_cast<int64_t>(sizeof(kernels::QuantizeCounts))}, DType::u8);
    const auto call = [&, shape, a](bool by_rows, bool by_columns, bool measures) {
      ops::quantize(s, {.x = x,
                        .rows = by_rows ? rows.values : Tensor{},
                        .columns = by_columns ? columns.values : Tensor{},
                        .rows_scale = by_rows ? rows.scale : Tensor{},
                        .columns_scale = by_columns ? columns.scale : Tensor{},
                        .shape = shape,
                        .amax = a,
                        .counts = counts,
                        .measures = measures});
    };
    add(name + ", rows and columns", 4 * n + 2 * scales, [&] { call(true, true, false); });
    add(name + ", rows", 3 * n + scales, [&] { call(true, false, false); });
    add(name + ", columns", 3 * n + scales, [&] { call(false, true, false); });
    add(name + ", both, measured", 4 * n + 2 * scales, [&] { call(true, true, true); });
  }
  const Tensor weight = bench.normal({8192 * 8192}, DType::f32, 0.02F);
  const int64_t w = weight.elements();
  for (const ScaleShape shape : {ScaleShape::tensor, ScaleShape::block_128}) {
    const std::string name = shape == ScaleShape::tensor ? " tensor" : " block_128";
    const Codes codes = codes_in(bench, DType::f8e4m3, shape, 8192, 8192);
    const Tensor maxima = bench.zero({codes.scale.elements()}, DType::f32);
    add("weight_amax" + name, 4 * w, [&] {
      ops::weight_amax(
          s, {.weights = weight, .rows = 8192, .cols = 8192, .shape = shape, .amax = maxima});
    });
    add("weight_quantize" + name, 5 * w, [&] {
      ops::weight_quantize(s, {.weights = weight,
                               .rows = 8192,
                               .cols = 8192,
                               .shape = shape,
                               .amax = maxima,
                               .codes = codes.values.reshape({w}),
                               .scale = codes.scale.reshape({codes.scale.elements()})});
    });
  }
  const Tensor code_matrix = bench.zero({8192, 8192}, DType::f8e4m3);
  const Tensor transposed = bench.tensor({8192, 8192}, DType::f8e4m3);
  add("transpose of codes", 2 * w, [&] { ops::transpose(s, {.x = code_matrix, .d = transposed}); });

  const Tensor gate_up = bench.normal({T, 2 * F}, DType::bf16), act = bench.like(x);
  const Tensor dgate_up = bench.like(gate_up);
  const Tensor h = bench.normal({T, D}, DType::bf16), y = bench.like(h);
  const Tensor sum = bench.like(h), dh = bench.normal({T, D}, DType::bf16);
  const Tensor norm_weight = bench.normal({D}, DType::bf16);
  const Tensor stats = bench.tensor({T, 1}, DType::f32), dweight = bench.zero({D}, DType::f32);
  const Tensor partials =
      bench.tensor(spec::norm_backward_partials(spec::NormKind::rms, T, D, false));
  const int64_t d = T * D;
  for (const bool raises : {false, true}) {
    const Tensor a = raises ? amax : Tensor{};
    const std::string suffix = raises ? " with amax" : "";
    add("swiglu_forward" + suffix, 6 * n,
        [&] { ops::swiglu_forward(s, {.gate_up = gate_up, .y = act, .amax = a}); });
    add("swiglu_backward" + suffix, 10 * n, [&] {
      ops::swiglu_backward(s, {.gate_up = gate_up, .dy = x, .dgate_up = dgate_up, .amax = a});
    });
    add("gelu_forward" + suffix, 4 * n,
        [&] { ops::gelu_forward(s, {.x = x, .y = act, .amax = a}); });
    add("norm_forward" + suffix, 8 * d, [&] {
      ops::norm_forward(s, {.x = h,
                            .residual = dh,
                            .sum = sum,
                            .weight = norm_weight,
                            .y = y,
                            .stats = stats,
                            .amax = a});
    });
    add("norm_backward" + suffix, 8 * d, [&] {
      ops::norm_backward(s, {.dy = dh,
                             .x = h,
                             .stats = stats,
                             .weight = norm_weight,
                             .dresidual = sum,
                             .dx = y,
                             .dweight = dweight,
                             .partials = partials,
                             .amax = a});
    });
  }
}

// A pair of ops beside the two in turn, of fp8-block: ratios are to the two.
void measure_pairs(const Options& o, Report& report) {
  GpuTimer bench(o.rounds);
  device::Stream& s = bench.stream();
  const int64_t T = o.tokens, F = o.out;
  const Tensor gate_up = bench.normal({T, 2 * F}, DType::bf16);
  const Tensor dy = bench.normal({T, F}, DType::bf16), act = bench.like(dy);
  const Tensor dgate_up = bench.like(gate_up);
  const auto quantize = [&](const Tensor& x) {
    const Codes rows = codes_in(bench, DType::f8e4m3, ScaleShape::row_128, x.rows(), x.cols());
    const Codes columns = codes_in(bench, DType::f8e4m3, ScaleShape::row_128, x.cols(), x.rows());
    return kernels::QuantizeArgs{.x = x,
                                 .rows = rows.values,
                                 .columns = columns.values,
                                 .rows_scale = rows.scale,
                                 .columns_scale = columns.scale,
                                 .shape = ScaleShape::row_128};
  };
  const kernels::QuantizeArgs of_act = quantize(act), of_gradient = quantize(dgate_up);
  const kernels::SwigluForwardArgs forward = {.gate_up = gate_up, .y = act};
  const kernels::SwigluBackwardArgs backward = {.gate_up = gate_up, .dy = dy, .dgate_up = dgate_up};
  const auto add = [&](const std::string& name, int64_t bytes, const std::function<void()>& two,
                       const std::function<void()>& pair) {
    const std::vector<double> times = bench.times({two, pair});
    const double rate = static_cast<double>(bytes) / times[1];
    report.add(name, times[1], "GB/s", rate / 1e9, times[0] / times[1]);
  };
  add(
      "swiglu_forward_quantize", 6 * T * F,
      [&] {
        ops::swiglu_forward(s, forward);
        ops::quantize(s, of_act);
      },
      [&] { ops::swiglu_forward_quantize(s, forward, of_act); });
  add(
      "swiglu_backward_quantize", 10 * T * F,
      [&] {
        ops::swiglu_backward(s, backward);
        ops::quantize(s, of_gradient);
      },
      [&] { ops::swiglu_backward_quantize(s, backward, of_gradient); });
}

// Quantises normal values by rows.
Codes coded(GpuTimer& bench, DType format, ScaleShape shape, int64_t rows, int64_t cols) {
  const Codes codes = codes_in(bench, format, shape, rows, cols);
  const Tensor x =
      bench.normal({rows, cols}, shape == ScaleShape::block_128 ? DType::f32 : DType::bf16);
  if (shape == ScaleShape::block_128) {
    const int64_t scales = codes.scale.elements();
    const Tensor maxima = bench.zero({scales}, DType::f32);
    const Tensor flat = x.reshape({rows * cols});
    ops::weight_amax(bench.stream(),
                     {.weights = flat, .rows = rows, .cols = cols, .shape = shape, .amax = maxima});
    ops::weight_quantize(bench.stream(), {.weights = flat,
                                          .rows = rows,
                                          .cols = cols,
                                          .shape = shape,
                                          .amax = maxima,
                                          .codes = codes.values.reshape({rows * cols}),
                                          .scale = codes.scale.reshape({scales})});
    return codes;
  }
  kernels::QuantizeArgs args = {
      .x = x, .rows = codes.values, .rows_scale = codes.scale, .shape = shape};
  if (shape == ScaleShape::tensor) {
    const Tensor amax = bench.zero({1}, DType::f32);
    ops::amax(bench.stream(), {.x = x, .amax = amax});
    args.amax = amax;
  }
  ops::quantize(bench.stream(), args);
  return codes;
}

struct Scaling {
  const char* name;
  ScaleShape a, b;
  DType format_of_a;
  bool fast_sums;
};

GemmArgs product(const Codes& a, const Codes& b, const Scaling& scaling, const Tensor& d,
                 float beta) {
  return {.a = a.values,
          .b = b.values,
          .d = d,
          .trans_b = true,
          .beta = beta,
          .scale_a = a.scale,
          .scale_b = b.scale,
          .shape_a = scaling.a,
          .shape_b = scaling.b,
          .fast_sums = scaling.fast_sums};
}

// Ratios are to the same product in bf16.
void measure_products(const Options& o, Report& report) {
  const DType e4m3 = DType::f8e4m3, e5m2 = DType::f8e5m2;
  const ScaleShape tensor = ScaleShape::tensor, row = ScaleShape::row_128;
  struct Product {
    const char* name;
    int64_t m, n, k;
    DType d;
    float beta;
    std::vector<Scaling> scalings;
  };
  const std::vector<Scaling> backward = {{"tensor split", tensor, tensor, e5m2, false},
                                         {"row x block", row, ScaleShape::block_128, e4m3, false}};
  const std::vector<Scaling> weights = {{"tensor split", tensor, tensor, e5m2, false},
                                        {"row x row", row, row, e4m3, false}};
  const int64_t T = o.tokens;
  const std::vector<Product> products = {
      {"fprop",
       T,
       o.out,
       o.in,
       DType::bf16,
       0,
       {{"tensor fast", tensor, tensor, e4m3, true},
        {"row x block", row, ScaleShape::block_128, e4m3, false}}},
      {"dgrad", T, o.in, o.out, DType::bf16, 0, backward},
      {"wgrad f32", o.out, o.in, T, DType::f32, 0, weights},
      {"wgrad += f32", o.out, o.in, T, DType::f32, 1, weights},
      {"wgrad += bf16", o.out, o.in, T, DType::bf16, 1, weights}};
  for (const Product& p : products) {
    GpuTimer bench(o.rounds);
    device::Stream& s = bench.stream();
    const Tensor a = bench.normal({p.m, p.k}, DType::bf16),
                 b = bench.normal({p.n, p.k}, DType::bf16);
    const Tensor d = bench.zero({p.m, p.n}, p.d);
    std::vector<std::function<void()>> calls = {
        [&] { ops::gemm(s, {.a = a, .b = b, .d = d, .trans_b = true, .beta = p.beta}); }};
    for (const Scaling& scaling : p.scalings) {
      const Codes x = coded(bench, scaling.format_of_a, scaling.a, p.m, p.k);
      const Codes y = coded(bench, e4m3, scaling.b, p.n, p.k);
      calls.push_back([=, &s] { ops::gemm(s, product(x, y, scaling, d, p.beta)); });
    }
    const std::vector<double> times = bench.times(calls);
    const double flops =
        2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
    for (size_t i = 0; i < times.size(); ++i) {
      const std::string name = fmt::format("{} {} x {} x {} {}", p.name, p.m, p.n, p.k,
                                           i == 0 ? "bf16" : p.scalings[i - 1].name);
      report.add(name, times[i], "TFLOP/s", flops / times[i] / 1e12, times[0] / times[i]);
    }
  }
}

double value_of(uint8_t code, DType format) {
  return format == DType::f8e4m3 ? static_cast<float>(std::bit_cast<base::E4m3>(code))
                                 : static_cast<float>(std::bit_cast<base::E5m2>(code));
}

double scale_at(const std::vector<float>& scales, const Tensor& t, ScaleShape shape, int64_t row,
                int64_t k) {
  const int64_t at = shape == ScaleShape::tensor    ? 0
                     : shape == ScaleShape::row_128 ? k / 128 * t.row_stride + row
                                                    : row / 128 * t.row_stride + k / 128;
  return static_cast<double>(scales[static_cast<size_t>(at)]);
}

// The relative L2 error of some elements of an f32 product, beside fp64 of the same codes.
void measure_errors(Report& report) {
  const DType e4m3 = DType::f8e4m3, e5m2 = DType::f8e5m2;
  const ScaleShape tensor = ScaleShape::tensor, row = ScaleShape::row_128;
  const std::vector<Scaling> scalings = {{"tensor fast", tensor, tensor, e4m3, true},
                                         {"tensor split e4m3", tensor, tensor, e4m3, false},
                                         {"tensor split e5m2", tensor, tensor, e5m2, false},
                                         {"row x block", row, ScaleShape::block_128, e4m3, false},
                                         {"row x row", row, row, e4m3, false}};
  for (const int64_t k : {512, 768, 4096, 16384}) {
    for (const Scaling& scaling : scalings) {
      GpuTimer bench(1);
      const int64_t m = 1024, n = 768;  // 6 blocks of 128: rows of scales are padded
      const Codes a = coded(bench, scaling.format_of_a, scaling.a, m, k);
      const Codes b = coded(bench, e4m3, scaling.b, n, k);
      const Tensor d = bench.tensor({m, n}, DType::f32);
      ops::gemm(bench.stream(), product(a, b, scaling, d, 0));
      const auto found = bench.read<float>(d);
      const auto a_codes = bench.read<uint8_t>(a.values), b_codes = bench.read<uint8_t>(b.values);
      const auto a_scales = bench.read<float>(a.scale), b_scales = bench.read<float>(b.scale);
      double squares = 0, error_squares = 0;
      for (int64_t i = 0; i < m; i += 37) {
        for (int64_t j = 0; j < n; j += 11) {
          double sum = 0;
          for (int64_t at = 0; at < k; ++at) {
            sum += value_of(a_codes[static_cast<size_t>(i * k + at)], scaling.format_of_a) *
                   scale_at(a_scales, a.scale, scaling.a, i, at) *
                   value_of(b_codes[static_cast<size_t>(j * k + at)], e4m3) *
                   scale_at(b_scales, b.scale, scaling.b, j, at);
          }
          const double error = static_cast<double>(found[static_cast<size_t>(i * n + j)]) - sum;
          squares += sum * sum;
          error_squares += error * error;
        }
      }
      report.add_error(fmt::format("{} x {} x {} {}", m, n, k, scaling.name),
                       std::sqrt(error_squares / squares));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("Speed and errors of the ops of 8-bit recipes on a GPU");
  app.add_option("--tokens", o.tokens, "rows of activations")->capture_default_str();
  app.add_option("--in", o.in, "inputs of the linear map")->capture_default_str();
  app.add_option("--out", o.out, "its outputs")->capture_default_str();
  app.add_option("--rounds", o.rounds)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--part", o.part)->check(CLI::IsMember({"all", "moves", "products", "errors"}));
  app.add_flag("--json", o.is_json);
  CLI11_PARSE(app, argc, argv);
  Report report(o.is_json);
  if (o.part == "all" || o.part == "moves") {
    measure_moves(o, report);
    measure_pairs(o, report);
  }
  if (o.part == "all" || o.part == "products") measure_products(o, report);
  if (o.part == "all" || o.part == "errors") measure_errors(report);
  report.print();
  return 0;
}
