// SPDX-License-Identifier: Apache-2.0
#include "plan/price/op_time.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>

#include "plan/samples_test.h"

namespace trireme::plan {
namespace {

using Row = std::map<std::string, std::string>;

// Returns the tables [[name]] of a file written by `trireme bench gpu`, one "key = value" per line.
std::vector<Row> rows_of(const std::string& name) {
  std::ifstream file(source_root() / "machines" / "measured" / "h200.toml");
  std::vector<Row> rows;
  bool is_inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("[")) {
      is_inside = line == "[[" + name + "]]";
      if (is_inside) rows.emplace_back();
    }
    const size_t equals = line.find(" = ");
    if (!is_inside || equals == std::string::npos) continue;
    std::string value = line.substr(equals + 3);
    if (value.starts_with('"')) value = value.substr(1, value.size() - 2);
    rows.back()[line.substr(0, equals)] = value;
  }
  return rows;
}

double number(const Row& row, const std::string& key) { return std::stod(row.at(key)); }
int64_t whole(const Row& row, const std::string& key) { return std::stoll(row.at(key)); }

Product product(int64_t m, int64_t n, int64_t k) {
  return {m, n, k, 1, 2.0 * static_cast<double>(m * k + n * k + m * n), false};
}

double bf16(const spec::Processor& p, const Product& product) {
  return gemm_seconds(p, product, Precision::bf16);
}

// The rates of h200.toml were fitted to these measurements, and its residuals are those of the fit:
// these tests guard against changes of the formulas, and are no evidence for other shapes.
TEST(OpTime, regression_gemm_times_keep_the_residual_of_their_fit) {
  const spec::Machine h200 = shipped_machine("h200");
  double sum = 0;
  int count = 0;
  for (const Row& row : rows_of("gemm")) {
    // The fit leaves out odd vocabularies, which Trireme pads.
    if (row.at("what").find("gpt2-124m head") != std::string::npos) continue;
    Product p = product(whole(row, "m"), whole(row, "n"), whole(row, "k"));
    p.accumulates = row.at("accumulate") == "true";
    const double out = row.at("out") == "f32" ? 4 : 2;
    p.bytes += static_cast<double>(p.m * p.n) * (out * (p.accumulates ? 2 : 1) - 2);
    sum += std::abs(bf16(h200.processor, p) / (1e-6 * number(row, "microseconds")) - 1);
    ++count;
  }
  EXPECT_EQ(count, 88);
  ASSERT_GT(h200.residuals.gemm, 0);
  EXPECT_LT(sum / count, 1.3 * h200.residuals.gemm);
}

TEST(OpTime, regression_attention_times_keep_the_residual_of_their_fit) {
  const spec::Machine h200 = shipped_machine("h200");
  double sum = 0;
  int count = 0;
  for (const Row& row : rows_of("attention")) {
    if (row.at("deterministic") == "true") continue;
    const Attention a{{base::DType::bf16, whole(row, "sequences"), whole(row, "seq_len"),
                       whole(row, "heads"), whole(row, "kv_heads"), whole(row, "head_dim")},
                      row.at("pass") == "backward"};
    const double seconds = attention_seconds(h200.processor, trireme_stack(), a);
    sum += std::abs(seconds / (1e-6 * number(row, "microseconds")) - 1);
    ++count;
  }
  EXPECT_EQ(count, 16);
  ASSERT_GT(h200.residuals.attention, 0);
  EXPECT_LT(sum / count, 1.3 * h200.residuals.attention);
}

TEST(OpTime, regression_fixed_order_attention_times_keep_the_residual_of_their_fit) {
  const spec::Machine h200 = shipped_machine("h200");
  double sum = 0;
  int count = 0;
  for (const Row& row : rows_of("attention")) {
    if (row.at("deterministic") != "true") continue;
    Attention a{{base::DType::bf16, whole(row, "sequences"), whole(row, "seq_len"),
                 whole(row, "heads"), whole(row, "kv_heads"), whole(row, "head_dim")},
                true};
    const double fast = attention_seconds(h200.processor, trireme_stack(), a);
    a.fixed_order = true;
    const double seconds = attention_seconds(h200.processor, trireme_stack(), a);
    if (spec::is_flash_fastest(a.shape.head_dim, a.shape.seq_len)) {
      EXPECT_EQ(seconds, fast);
    } else {
      EXPECT_GT(seconds, fast);
    }
    sum += std::abs(seconds / (1e-6 * number(row, "microseconds")) - 1);
    ++count;
  }
  EXPECT_EQ(count, 8);
  EXPECT_LT(sum / count, 0.04);  // 0.029
}

TEST(OpTime, larger_products_never_take_less) {
  const spec::Processor p = shipped_machine("h100").processor;
  Dice dice(1);
  for (int turn = 0; turn < 2000; ++turn) {
    const auto any = [&] { return static_cast<int64_t>(1 + dice.below(9000)); };
    const int64_t m = any(), n = any(), k = any(), more = any();
    const double seconds = bf16(p, product(m, n, k));
    EXPECT_LE(seconds, bf16(p, product(m + more, n, k))) << m << " " << n << " " << k;
    EXPECT_LE(seconds, bf16(p, product(m, n + more, k))) << m << " " << n << " " << k;
    EXPECT_LE(seconds, bf16(p, product(m, n, k + more))) << m << " " << n << " " << k;
  }
}

TEST(OpTime, thin_products_are_memory_bound) {
  const spec::Processor p = shipped_machine("h100").processor;
  const Product thin = product(65536, 8192, 16);
  EXPECT_DOUBLE_EQ(bf16(p, thin), streaming_seconds(p, thin.bytes));
  EXPECT_DOUBLE_EQ(streaming_seconds(p, 0), p.launch_seconds);
}

TEST(OpTime, large_products_reach_the_stated_rate_and_no_more) {
  for (const char* name : {"a100-80gb", "h100", "h200", "b200"}) {
    const spec::Processor p = shipped_machine(name).processor;
    const double rate = 2 * std::pow(32768.0, 3) / bf16(p, product(32768, 32768, 32768));
    EXPECT_LT(rate, p.gemm_reach * p.bf16_flops);
    EXPECT_GT(rate, 0.95 * p.gemm_reach * p.bf16_flops);
  }
}

TEST(OpTime, accumulating_products_take_their_factor_longer) {
  spec::Processor p = shipped_machine("h100").processor;
  p.accumulate_factor = 1.5;
  p.launch_seconds = 0;
  Product one = product(8192, 8192, 8192);
  const double plain = bf16(p, one);
  one.accumulates = true;
  EXPECT_DOUBLE_EQ(bf16(p, one), 1.5 * plain);
}

TEST(OpTime, many_equal_products_fill_the_machine) {
  const spec::Processor p = shipped_machine("h100").processor;
  Product one = product(512, 512, 512), many = one;
  many.count = 64;
  many.bytes *= 64;
  EXPECT_LT(bf16(p, many), 64 * bf16(p, one) / 2);
  EXPECT_GT(bf16(p, many), bf16(p, one));
}

Attention causal(int64_t sequences, int64_t length, bool backward) {
  return {{base::DType::bf16, sequences, length, 32, 32, 128}, backward};
}

TEST(OpTime, flash_attention_beats_scores_in_memory) {
  const spec::Processor p = shipped_machine("a100-80gb").processor;
  Stack scores;
  scores.flash = false;
  for (const int64_t length : {1024, 2048, 8192, 32768}) {
    for (const bool backward : {false, true}) {
      const double flash = attention_seconds(p, {}, causal(4, length, backward));
      const double slow = attention_seconds(p, scores, causal(4, length, backward));
      EXPECT_GT(slow, 2 * flash) << length;
    }
  }
}

TEST(OpTime, attention_grows_with_the_square_of_the_length_and_costs_more_backward) {
  spec::Processor p = shipped_machine("h100").processor;
  p.launch_seconds = 0;
  // The same number of tokens: twice the pairs, at a slightly higher rate.
  const double shorter = attention_seconds(p, {}, causal(8, 16384, false));
  const double longer = attention_seconds(p, {}, causal(4, 32768, false));
  EXPECT_GT(longer / shorter, 1.9);
  EXPECT_LT(longer / shorter, 2);
  // 10 FLOPs against 4, at a lower rate.
  EXPECT_GT(attention_seconds(p, {}, causal(8, 16384, true)), 2.5 * shorter);
  Attention half = causal(8, 16384, false);
  half.pairs_factor = 0.5;
  EXPECT_DOUBLE_EQ(attention_seconds(p, {}, half), shorter / 2);
}

}  // namespace
}  // namespace trireme::plan
