// SPDX-License-Identifier: Apache-2.0
#include "plan/price/op_time.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace trireme::plan {
namespace {

// Tiles that libraries choose from, with the rate of each relative to the best.
struct Tile {
  int64_t m, n;
  double reach;
};
constexpr std::array<Tile, 5> tiles = {
    {{256, 128, 1}, {128, 256, 1}, {128, 128, 0.9}, {128, 64, 0.75}, {64, 128, 0.75}}};

// Libraries use half of the idle units of the last wave, by split sums and smaller tiles.
constexpr double full_waves = 0.5;

constexpr double default_head = 128;

double parts(int64_t size, int64_t part) { return static_cast<double>((size + part - 1) / part); }

double float8_factor(const spec::Processor& p, Float8Product product) {
  switch (product) {
    case Float8Product::fast:
      return p.fp8_fast;
    case Float8Product::split:
      return p.fp8_split;
    case Float8Product::block:
      return p.fp8_block;
    case Float8Product::rows:
      return p.fp8_rows;
    default:
      return 1;
  }
}

double rate_of(const spec::Processor& p, Precision precision, Float8Product product) {
  switch (precision) {
    case Precision::fp8:
    case Precision::fp8_block:
    case Precision::fp8_delayed:
      return p.fp8_flops * p.fp8_reach * float8_factor(p, product);
    case Precision::fp4:
      return p.fp4_flops * p.fp4_reach;
    case Precision::fp32:
      return p.fp32_flops * p.gemm_reach;
    default:
      return p.bf16_flops * p.gemm_reach;
  }
}

}  // namespace

double gemm_seconds(const spec::Processor& p, const Product& product, Precision precision) {
  const auto units = static_cast<double>(p.units);
  double work = std::numeric_limits<double>::infinity();  // multiply-adds of one unit, without k
  for (const Tile& tile : tiles) {
    const double waves = parts(product.m, tile.m) * parts(product.n, tile.n) *
                         static_cast<double>(product.count) / units;
    const double counted = full_waves * std::ceil(waves) + (1 - full_waves) * std::max(waves, 1.0);
    work = std::min(work, counted * static_cast<double>(tile.m * tile.n) / tile.reach);
  }
  const double flops = 2 * work * (static_cast<double>(product.k) + p.gemm_ramp) * units;
  const double computing = flops / rate_of(p, precision, product.float8) *
                           (product.accumulates ? p.accumulate_factor : 1);
  const double moving = product.bytes / (p.bytes_per_second * p.memory_reach);
  return std::max(computing, moving) + p.launch_seconds;
}

double streaming_seconds(const spec::Processor& p, double bytes) {
  return bytes / (p.bytes_per_second * p.memory_reach) + p.launch_seconds;
}

bool is_order_priced(const spec::Processor& p, const Attention& a) {
  const bool is_same_kernel =
      p.hopper_attention && spec::is_flash_fastest(a.shape.head_dim, a.shape.seq_len);
  return a.backward && a.fixed_order && !is_same_kernel;
}

double attention_seconds(const spec::Processor& p, const Stack& stack, const Attention& a) {
  const spec::AttentionShape& shape = a.shape;
  const auto length = static_cast<double>(shape.seq_len);
  const auto head = static_cast<double>(shape.head_dim);
  const auto rows = static_cast<double>(shape.sequences * shape.heads);  // score matrices
  if (stack.flash) {
    const double flops =
        (a.backward ? 10 : 4) * a.pairs_factor * rows * head * spec::causal_pairs(1, shape.seq_len);
    const double reach = (a.backward ? p.attention_backward : p.attention_forward) *
                         (length / (length + p.attention_ramp)) *
                         std::min(1.0, std::pow(head / default_head, p.attention_head));
    const double slower = stack.attention * (stack.flash2 ? p.flash2_factor : 1);
    double ordering = 0;
    if (is_order_priced(p, a)) {
      const double scores = 2 * rows * length * length * a.pairs_factor;  // bytes
      ordering = p.attention_fixed_order * length / (length + p.attention_ramp) * scores /
                 (p.bytes_per_second * p.memory_reach);
    }
    return flops * slower / (p.bf16_flops * reach) + ordering + p.launch_seconds;
  }
  // Without flash attention: two products forward and four backward over all pairs, masked ones
  // included, plus the traffic of the scores in memory.
  const double scores = rows * length * length * a.pairs_factor;
  const int64_t count = shape.sequences * shape.heads;
  const double operands = 2 * (scores + 2 * rows * length * head);
  const Product inner{shape.seq_len, shape.seq_len, shape.head_dim, count, operands};
  const Product outer{shape.seq_len, shape.head_dim, shape.seq_len, count, operands};
  const double products = a.pairs_factor * (gemm_seconds(p, inner, Precision::bf16) +
                                            gemm_seconds(p, outer, Precision::bf16));
  return (a.backward ? 2 : 1) * products * stack.gemm +
         streaming_seconds(
             p, scores * (a.backward ? stack.score_bytes_backward : stack.score_bytes_forward));
}

}  // namespace trireme::plan
