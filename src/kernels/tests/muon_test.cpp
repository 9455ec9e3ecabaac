// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "kernels/ops.h"
#include "kernels/tests/op_test.h"
#include "kernels/wide_sum.h"

namespace trireme::kernels::muon_test {
namespace {

StepState muon_state(int skip = 0) {
  StepState state = {};
  state.learning_rate = 0.01F;
  state.grad_scale = 0.125F;
  state.skip = skip;
  return state;
}

std::vector<Case> momentum_cases() {
  std::vector<Case> list;
  for (const int64_t elements : {1, 65, 20001}) {
    for (const DType grad : {DType::f32, DType::bf16}) {
      for (const bool nesterov : {true, false}) {
        for (const int skip : {0, 1}) {
          list.push_back(
              {fmt::format("{} elements, nesterov {}, skip {}", elements, nesterov, skip),
               [=](Operands& operands, Stream& stream) {
                 ops::momentum(stream, {.m = operands.updated({elements}),
                                        .u = operands.result({elements}),
                                        .grad = operands.input({elements}, {.dtype = grad}),
                                        .state = operands.state(muon_state(skip)),
                                        .momentum = 0.9F,
                                        .nesterov = nesterov});
               }});
        }
      }
    }
  }
  return list;
}

// Norms far apart, below eps, and not finite.
std::vector<Case> normalize_cases() {
  std::vector<Case> list;
  for (const int64_t elements : {1, 65, 20001}) {
    for (const double squares : {4.0, 1e-30, 1e20, std::numeric_limits<double>::infinity()}) {
      list.push_back({fmt::format("{} elements, sum of squares {}", elements, squares),
                      [=](Operands& operands, Stream& stream) {
                        WideSum sum = {};
                        add_block_sum(sum, squares);
                        ops::normalize(stream, {.d = operands.updated({elements}),
                                                .squares = operands.squares(sum)});
                      }});
    }
  }
  return list;
}

std::vector<Case> muon_cases() {
  std::vector<Case> list;
  for (const int64_t elements : {1, 65, 20001}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (const int skip : {0, 1}) {
        list.push_back(
            {fmt::format("{} elements, {}, skip {}", elements, base::name_of(dtype), skip),
             [=](Operands& operands, Stream& stream) {
               MuonArgs args;
               args.param = operands.updated({elements}, {.dtype = dtype});
               if (dtype != DType::f32) args.master = operands.updated({elements});
               args.direction = operands.input({elements});
               args.state = operands.state(muon_state(skip));
               args.factor = 3;
               // A change is the difference of fp32 weights, as in the tests of adamw.
               args.changes = {operands.squares({}, 1e-4), elements / 3, elements - elements / 4};
               ops::muon(stream, args);
             }});
      }
    }
  }
  return list;
}

std::vector<Case> all_muon_cases() {
  std::vector<Case> all = momentum_cases();
  for (const auto& more : {normalize_cases(), muon_cases()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

TEST(MuonOpsTest, cpu_agrees_with_the_reference) { expect_cpu_agrees(all_muon_cases()); }
TEST(MuonOpsTest, cuda_agrees_with_the_reference) { expect_cuda_agrees(all_muon_cases()); }
TEST(MuonOpsTest, bits_do_not_depend_on_threads) {
  expect_bits_do_not_depend_on_threads(all_muon_cases());
}

// Split floats and an fp32 master have the same bits; the parameters differ only halfway between
// two bf16 (base/split_float.h).
TEST(MuonOpsTest, a_split_master_has_the_bits_of_an_fp32_master) {
  constexpr int64_t n = 3000;
  for_each_machine([](Machine& machine) {
    Operands operands(3, machine);
    const Tensor start = operands.input({n});
    const Tensor master = operands.updated({n}),
                 param = operands.updated({n}, {.dtype = DType::bf16});
    const Tensor high = operands.updated({n}, {.dtype = DType::bf16});
    const Tensor low = operands.scratch({n}, DType::u16);
    Stream& stream = *machine.stream;
    ops::copy(stream, {.x = start, .d = master});
    ops::copy(stream, {.x = start, .d = high, .low = low});
    const Tensor direction = operands.input({n}), state = operands.state(muon_state());
    ops::muon(stream, {.param = param, .master = master, .direction = direction, .state = state});
    ops::muon(stream, {.param = high, .master = low, .direction = direction, .state = state});
    stream.synchronize();
    const auto masters = values_of(master), params = values_of(param), highs = values_of(high);
    for (size_t i = 0; i < masters.size(); ++i) {
      const auto bits = std::bit_cast<uint32_t>(static_cast<float>(masters[i]));
      const bool is_halfway = (bits & 0xFFFFU) == 0x8000U;
      EXPECT_TRUE(is_halfway || params[i] == highs[i]) << i << ": " << params[i];
    }
  });
}

}  // namespace
}  // namespace trireme::kernels::muon_test
