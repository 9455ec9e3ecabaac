// SPDX-License-Identifier: Apache-2.0
// Measures the ops of a mixture-of-experts layer on a GPU. Products of groups of rows stand beside
// one product of the same FLOPs by the library in the same run; ops that move rows beside the time
// in which a copy moves their bytes, each tensor once.
//
//   grouped_speed --rows 4096 --width 2048 --hidden 1024 --experts 64
//   grouped_speed --part products --precision fp8-block
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/grouped_speed.h"

namespace {

using namespace trireme;
using namespace trireme::bench;

// The products of a layer, each beside the library's.
std::vector<Row> products(GpuTimer& bench, const Options& o) {
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

// The router and the ops that move rows. Logits are random, so that loads are even but for noise.
std::vector<Row> moves(GpuTimer& bench, const Options& o) {
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
    GpuTimer bench(o.rounds);
    rows = o.precision == "bf16" ? products(bench, o) : products_of_codes(bench, o);
  }
  if (part != "products") {
    GpuTimer bench(o.rounds);
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
