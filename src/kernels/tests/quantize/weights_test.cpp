// SPDX-License-Identifier: Apache-2.0
// Codes and scales of weights: the reference's bits on every table, whole or in shards.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/ops.h"
#include "kernels/tests/op_test.h"

namespace trireme::kernels::weights_test {
namespace {

// Some of the elements of `count` matrices.
struct Weights {
  int64_t count, rows, cols;
  int64_t first, elements;
  ScaleShape shape;
  DType format;

  int64_t scales() const { return count * spec::scale_spec(shape, rows, cols).shape.elements(); }
};

// Weights with zeros, and with blocks of 128 columns of different magnitudes.
double weight_at(const Weights& w, int64_t element) {
  const int64_t col = element % w.cols;
  const double size = std::ldexp(1.0, static_cast<int>(col / 128 % 5) * 4 - 9);
  return element % 17 == 0 ? 0 : size * std::sin(static_cast<double>(element) * 0.7);
}

WeightAmaxArgs amax_args(const Weights& w, const Tensor& weights, const Tensor& amax) {
  return {.weights = weights,
          .first = w.first,
          .count = w.count,
          .rows = w.rows,
          .cols = w.cols,
          .shape = w.shape,
          .amax = amax};
}

void run_amax(const Weights& w, Operands& o, Stream& s) {
  const Tensor weights =
      o.input({w.elements}, {}, [&](int64_t i, int64_t) { return weight_at(w, w.first + i); });
  const Tensor amax = o.updated({w.scales()}, {.exact = true},
                                [](int64_t i, int64_t) { return i % 3 == 0 ? 0.002 : 0; });
  ops::weight_amax(s, amax_args(w, weights, amax));
}

void run_quantize(const Weights& w, Operands& o, Stream& s) {
  const Tensor weights =
      o.input({w.elements}, {}, [&](int64_t i, int64_t) { return weight_at(w, w.first + i); });
  const Tensor amax = o.input({w.scales()}, {}, [](int64_t, int64_t) { return 0; });
  // Elements of other ranks: the largest magnitude may be there.
  const Tensor all =
      o.input({w.count * w.rows * w.cols}, {}, [&](int64_t i, int64_t) { return weight_at(w, i); });
  Weights whole = w;
  whole.first = 0;
  o.prepare([&](Stream& reference) { ops::weight_amax(reference, amax_args(whole, all, amax)); });
  ops::weight_quantize(s, {.weights = weights,
                           .first = w.first,
                           .count = w.count,
                           .rows = w.rows,
                           .cols = w.cols,
                           .shape = w.shape,
                           .amax = amax,
                           .codes = o.result({w.elements}, {.dtype = w.format, .exact = true}),
                           .scale = o.result({w.scales()}, {.exact = true}),
                           .counts = o.counts(),
                           .measures = w.first % 2 == 0});
}

std::vector<Case> cases() {
  std::vector<Case> list;
  const auto add = [&](const Weights& w) {
    const std::string name =
        fmt::format("{} x {} x {}, {} + {}, shape {} {}", w.count, w.rows, w.cols, w.first,
                    w.elements, static_cast<int>(w.shape), base::name_of(w.format));
    list.push_back({name + " amax", [w](Operands& o, Stream& s) { run_amax(w, o, s); }});
    list.push_back({name + " codes", [w](Operands& o, Stream& s) { run_quantize(w, o, s); }});
  };
  for (const ScaleShape shape : {ScaleShape::tensor, ScaleShape::block_128}) {
    for (const DType format : {DType::f8e4m3, DType::f8e5m2}) {
      add({1, 16, 16, 0, 256, shape, format});
      add({3, 130, 200, 0, 3 * 130 * 200, shape, format});
      add({3, 130, 200, 777, 40001, shape, format});  // from the first to the second matrix
      add({2, 128, 640, 128 * 640, 128 * 640, shape, format});
      add({1, 300, 129, 300 * 129 - 1, 1, shape, format});
      add({1, 1, 5, 1, 3, shape, format});
    }
  }
  return list;
}

TEST(WeightQuantizeTest, cpu_has_the_bits_of_the_reference) { expect_cpu_agrees(cases()); }
TEST(WeightQuantizeTest, cuda_has_the_bits_of_the_reference) { expect_cuda_agrees(cases()); }
TEST(WeightQuantizeTest, bits_do_not_depend_on_threads) {
  expect_bits_do_not_depend_on_threads(cases());
}

// Quantises in shards that end at `ends`; maxima are taken over all before. Returns the codes and
// the scales.
struct Result {
  std::vector<std::byte> codes;
  std::vector<double> scales;
  bool operator==(const Result&) const = default;
};
Result in_shards(Machine& machine, Weights w, const std::vector<int64_t>& ends) {
  Operands operands(1, machine);
  const Tensor amax = operands.updated({w.scales()}, {}, [](int64_t, int64_t) { return 0; });
  const Tensor scale = operands.result({w.scales()});
  const int64_t all = w.count * w.rows * w.cols;
  const Tensor weights =
      operands.input({all}, {}, [&](int64_t i, int64_t) { return weight_at(w, i); });
  const Tensor codes = operands.result({all}, {.dtype = w.format});
  for (const bool is_amax : {true, false}) {
    w.first = 0;
    for (const int64_t end : ends) {
      const Tensor shard = weights.slice_rows(w.first, end - w.first);
      if (is_amax) {
        ops::weight_amax(*machine.stream, amax_args(w, shard, amax));
      } else {
        ops::weight_quantize(*machine.stream, {.weights = shard,
                                               .first = w.first,
                                               .count = w.count,
                                               .rows = w.rows,
                                               .cols = w.cols,
                                               .shape = w.shape,
                                               .amax = amax,
                                               .codes = codes.slice_rows(w.first, end - w.first),
                                               .scale = scale});
      }
      w.first = end;
    }
  }
  machine.stream->synchronize();
  operands.expect_intact();
  return {{codes.data, codes.data + all}, values_of(scale)};
}

TEST(WeightQuantizeTest, shards_have_the_bits_of_the_whole) {
  for_each_machine([](Machine& machine) {
    for (const ScaleShape shape : {ScaleShape::tensor, ScaleShape::block_128}) {
      for (const DType format : {DType::f8e4m3, DType::f8e5m2}) {
        const Weights w = {3, 144, 272, 0, 0, shape, format};
        const int64_t one = w.rows * w.cols;
        const Result whole = in_shards(machine, w, {3 * one});
        EXPECT_EQ(in_shards(machine, w, {one, 2 * one, 3 * one}), whole);
        EXPECT_EQ(in_shards(machine, w, {1, 1000, 1001, one - 64, 2 * one + 5, 3 * one}), whole);
      }
    }
  });
}

// Transposing codes and scales of 128 x 128 blocks is quantising the transposed weights.
TEST(WeightQuantizeTest, blocks_transpose_exactly) {
  for_each_machine([](Machine& machine) {
    const int64_t rows = 256, cols = 640;
    const Weights w = {1, rows, cols, 0, rows * cols, ScaleShape::block_128, DType::f8e4m3};
    const Weights t = {1, cols, rows, 0, rows * cols, ScaleShape::block_128, DType::f8e4m3};
    const auto quantize = [&](Operands& o, const Weights& which, bool transposes) {
      const Tensor weights = o.input({which.elements}, {}, [&](int64_t i, int64_t) {
        return weight_at(w, transposes ? i % rows * cols + i / rows : i);
      });
      const Tensor amax = o.updated({which.scales()}, {}, [](int64_t, int64_t) { return 0; });
      const Tensor codes = o.result({which.rows, which.cols}, {.dtype = which.format});
      const Tensor scale = o.result(spec::scale_spec(which.shape, which.rows, which.cols).shape);
      Tensor flat_codes = codes, flat_scale = scale;
      flat_codes.shape = {which.elements};
      flat_scale.shape = {which.scales()};
      flat_codes.row_stride = flat_scale.row_stride = 1;
      ops::weight_amax(*machine.stream, amax_args(which, weights, amax));
      ops::weight_quantize(*machine.stream, {.weights = weights,
                                             .count = 1,
                                             .rows = which.rows,
                                             .cols = which.cols,
                                             .shape = which.shape,
                                             .amax = amax,
                                             .codes = flat_codes,
                                             .scale = flat_scale});
      return std::pair{codes, scale};
    };
    Operands operands(1, machine);
    const auto [codes, scale] = quantize(operands, w, false);
    const auto [codes_t, scale_t] = quantize(operands, t, true);
    const Tensor d = operands.result({cols, rows}, {.dtype = DType::f8e4m3});
    ops::transpose(*machine.stream, {.x = codes, .d = d});
    machine.stream->synchronize();
    EXPECT_EQ(std::memcmp(d.data, codes_t.data, static_cast<size_t>(rows * cols)), 0);
    const std::vector<double> s = values_of(scale), s_t = values_of(scale_t);
    for (int64_t r = 0; r < rows / 128; ++r) {
      for (int64_t c = 0; c < cols / 128; ++c) {
        EXPECT_EQ(s[static_cast<size_t>(r * scale.cols() + c)],
                  s_t[static_cast<size_t>(c * scale_t.cols() + r)]);
      }
    }
  });
}

}  // namespace
}  // namespace trireme::kernels::weights_test
