// SPDX-License-Identifier: Apache-2.0
// Largest magnitudes: of the op amax, and of the ops that raise one while they produce a tensor.
// The magnitude must be exactly that of what was stored.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "kernels/ops.h"
#include "kernels/tests/op_test.h"

namespace trireme::kernels::amax_test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

uint32_t bits_of(const Tensor& amax) {
  return std::bit_cast<uint32_t>(*reinterpret_cast<const float*>(amax.data));
}

// Returns the bits of the largest magnitude of a tensor; those of NaN if there is one.
uint32_t largest_bits(const ConstTensor& stored) {
  uint32_t largest = 0;
  for (const double value : values_of(stored)) {
    const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value)) & 0x7fffffffU;
    largest = std::max(largest, bits);
  }
  return largest;
}

Tensor amax_from(Operands& operands, double initial) {
  return operands.updated({1}, {.exact = true}, [=](int64_t, int64_t) { return initial; });
}

std::vector<Case> cases() {
  std::vector<Case> list;
  const std::pair<int64_t, int64_t> sizes[] = {{1, 1}, {3, 7}, {65, 130}, {700, 48}, {2, 40000}};
  for (const auto& [rows, cols] : sizes) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (const double initial : {0.0, 3.0, 1e9, infinity, nan}) {
        for (const int64_t gap : {0, 5}) {
          list.push_back({fmt::format("{} x {} {} initial {} gap {}", rows, cols,
                                      base::name_of(dtype), initial, gap),
                          [=](Operands& o, Stream& s) {
                            const Tensor x = o.input({rows, cols}, {.dtype = dtype, .gap = gap});
                            ops::amax(s, {.x = x, .amax = amax_from(o, initial)});
                          }});
        }
      }
      for (const double last : {infinity, -infinity, nan, -nan, -0.0, 1e-45}) {
        list.push_back({fmt::format("{} x {} {} with {}", rows, cols, base::name_of(dtype), last),
                        [=](Operands& o, Stream& s) {
                          const Tensor x =
                              o.input({rows, cols}, {.dtype = dtype}, [=](int64_t r, int64_t c) {
                                return r == rows - 1 && c == cols - 1 ? last : 0.0;
                              });
                          ops::amax(s, {.x = x, .amax = amax_from(o, 0)});
                        }});
      }
    }
    for (const int64_t end : {int64_t{0}, rows / 2, rows}) {
      list.push_back({fmt::format("{} x {} end {}", rows, cols, end), [=](Operands& o, Stream& s) {
                        const Tensor x = o.input({rows, cols}, {.dtype = DType::bf16});
                        const Tensor ends = o.integers({static_cast<int32_t>(end)});
                        ops::amax(s, {.x = x, .amax = amax_from(o, 0), .end = ends});
                      }});
    }
  }
  return list;
}

TEST(AmaxTest, cpu_has_the_bits_of_the_reference) { expect_cpu_agrees(cases()); }
TEST(AmaxTest, cuda_has_the_bits_of_the_reference) { expect_cuda_agrees(cases()); }
TEST(AmaxTest, bits_do_not_depend_on_threads) { expect_bits_do_not_depend_on_threads(cases()); }

// ---- producers. An op runs without and with amax: all other results keep their bits, and the
// magnitude is that of the tensor it stored.

// Queues the op with this amax (absent: without) and returns the tensor whose magnitude it raises.
using Producer = std::function<Tensor(Operands&, Stream&, const Tensor& amax)>;

void expect_amax(const std::string& name, double initial, const Producer& produce) {
  for_each_machine([&](Machine& machine) {
    SCOPED_TRACE(fmt::format("{}, initial {}", name, initial));
    Operands plain(1, machine), raised(1, machine);
    const Tensor unused = amax_from(plain, initial), amax = amax_from(raised, initial);
    produce(plain, *machine.stream, {});
    const Tensor stored = produce(raised, *machine.stream, amax);
    machine.stream->synchronize();
    raised.expect_intact();
    EXPECT_EQ(bits_of(unused), std::bit_cast<uint32_t>(static_cast<float>(initial)));
    EXPECT_EQ(bits_of(amax), std::max(bits_of(unused), largest_bits(stored)));
    // Then the tensors alone.
    *reinterpret_cast<float*>(unused.data) = *reinterpret_cast<const float*>(amax.data);
    raised.expect_same_bits(plain);
  });
}

struct Size {
  int64_t rows, cols;
  double initial;
};
// 1030: longer than what a task has of a row at once; 17: no multiple of a vector.
constexpr Size sizes[] = {{1, 8, 0}, {5, 17, 1e6}, {70, 64, 1e-3}, {37, 1030, 0}};

TEST(ProducerAmaxTest, norm_forward) {
  for (const auto& [T, D, initial] : sizes) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
        for (const bool has_residual : {false, true}) {
          // On a GPU, f32 with aligned rows has a faster kernel, in another order, without amax.
          if (dtype == DType::f32 && !has_residual) continue;
          expect_amax("norm", initial, [&](Operands& o, Stream& s, const Tensor& amax) {
            const Make make = {.dtype = dtype, .gap = has_residual ? 3 : 0};
            NormForwardArgs args;
            args.kind = kind;
            args.x = o.input({T, D}, make);
            if (has_residual) {
              args.residual = o.input({T, D}, make);
              args.sum = o.result({T, D}, make);
            }
            args.weight = o.input({D}, {.dtype = dtype});
            if (kind == NormKind::layer) args.bias = o.input({D}, {.dtype = dtype});
            args.y = o.result({T, D}, make);
            args.stats = o.result({T, norm_stats(kind)});
            args.amax = amax;
            ops::norm_forward(s, args);
            return args.y;
          });
        }
      }
    }
  }
}

TEST(ProducerAmaxTest, norm_backward) {
  for (const auto& [T, D, initial] : sizes) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
        for (const bool has_residual : {false, true}) {
          // On a GPU, f32 with aligned rows has a faster kernel, in another order, without amax.
          if (dtype == DType::f32 && !has_residual) continue;
          expect_amax("norm", initial, [&](Operands& o, Stream& s, const Tensor& amax) {
            const Make make = {.dtype = dtype, .gap = has_residual ? 3 : 0};
            NormBackwardArgs args;
            args.kind = kind;
            args.x = o.input({T, D}, make);
            args.dy = o.input({T, D}, make);
            args.stats = o.input({T, norm_stats(kind)}, {.size = 0.5});
            args.weight = o.input({D}, {.dtype = dtype});
            if (has_residual) args.dresidual = o.input({T, D}, make);
            args.dx = o.result({T, D}, make);
            args.dweight = o.updated({D});
            if (kind == NormKind::layer) args.dbias = o.updated({D});
            const base::TensorSpec partials = spec::norm_backward_partials(kind, T, D, false);
            args.partials = o.scratch(partials.shape, partials.dtype);
            args.amax = amax;
            ops::norm_backward(s, args);
            return args.dx;
          });
        }
      }
    }
  }
}

TEST(ProducerAmaxTest, swiglu_and_gelu) {
  for (const auto& [T, F, initial] : sizes) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Make make = {.dtype = dtype, .gap = T % 4};
      expect_amax("swiglu_forward", initial, [&](Operands& o, Stream& s, const Tensor& amax) {
        const Tensor gate_up = o.input({T, 2 * F}, make);
        const Tensor y = o.result({T, F}, make);
        ops::swiglu_forward(s, {.gate_up = gate_up, .y = y, .amax = amax});
        return y;
      });
      for (const bool in_place : {false, true}) {
        expect_amax("swiglu_backward", initial, [&](Operands& o, Stream& s, const Tensor& amax) {
          const Tensor gate_up = in_place ? o.updated({T, 2 * F}, make) : o.input({T, 2 * F}, make);
          const Tensor dy = o.input({T, F}, make);
          const Tensor d = in_place ? gate_up : o.result({T, 2 * F}, make);
          const Tensor y = o.result({T, F}, make);
          ops::swiglu_backward(s,
                               {.gate_up = gate_up, .dy = dy, .dgate_up = d, .y = y, .amax = amax});
          return d;
        });
      }
      expect_amax("gelu_forward", initial, [&](Operands& o, Stream& s, const Tensor& amax) {
        const Tensor x = o.input({T, F}, make);
        const Tensor y = o.result({T, F}, make);
        ops::gelu_forward(s, {.x = x, .y = y, .amax = amax});
        return y;
      });
    }
  }
}

// A NaN or an infinity anywhere is the result.
TEST(ProducerAmaxTest, values_that_are_not_finite_win) {
  for_each_machine([](Machine& machine) {
    for (const double bad : {nan, infinity}) {
      Operands operands(1, machine);
      const Tensor x = operands.input(
          {40, 70}, {}, [=](int64_t r, int64_t c) { return r == 11 && c == 23 ? bad : 1e30; });
      const Tensor y = operands.result({40, 70});
      const Tensor amax = amax_from(operands, 0);
      ops::gelu_forward(*machine.stream, {.x = x, .y = y, .amax = amax});
      machine.stream->synchronize();
      const float found = *reinterpret_cast<const float*>(amax.data);
      EXPECT_EQ(std::isnan(found), std::isnan(bad)) << found;
      EXPECT_FALSE(std::isfinite(found)) << found;
    }
  });
}

}  // namespace
}  // namespace trireme::kernels::amax_test
