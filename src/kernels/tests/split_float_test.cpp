// SPDX-License-Identifier: Apache-2.0
// Ops on split floats: fp32 values stored as a high and a low part (base/split_float.h).
#include <gtest/gtest.h>

#include "base/split_float.h"
#include "kernels/ops.h"
#include "kernels/tests/op_test.h"

namespace trireme::kernels::split_float_test {
namespace {

// Flat fp32 values, in memory of the operands.
struct SplitFloats {
  Tensor high, low;

  uint32_t at(int64_t i) const {
    return uint32_t{reinterpret_cast<const uint16_t*>(high.data)[i]} << 16U |
           reinterpret_cast<const uint16_t*>(low.data)[i];
  }
};

SplitFloats split_of(const Tensor& x, Operands& operands) {
  const Shape shape = {x.elements()};
  const SplitFloats split = {operands.scratch(shape, DType::bf16),
                             operands.scratch(shape, DType::u16)};
  for (int64_t i = 0; i < x.elements(); ++i) {
    const uint32_t bits = base::split_bits(reinterpret_cast<const uint32_t*>(x.data)[i]);
    reinterpret_cast<uint16_t*>(split.high.data)[i] = static_cast<uint16_t>(bits >> 16U);
    reinterpret_cast<uint16_t*>(split.low.data)[i] = static_cast<uint16_t>(bits);
  }
  return split;
}

StepState third_step() {
  StepState state = {};
  state.learning_rate = 0.01F;
  state.applied = 3;
  state.grad_scale = 0.125F;
  return state;
}

TEST(SplitFloatTest, copy_splits_floats) {
  for_each_machine([](Machine& machine) {
    for (const int64_t first : {0, 1}) {  // elements from the second on are not aligned to vectors
      for (const int64_t elements : {1, 9, 1000, 70001}) {
        Operands operands(1, machine);
        const Shape shape = {first + elements};
        const auto part = [=](const Tensor& t) { return t.slice_rows(first, elements); };
        const Tensor x = part(operands.input(shape));
        const Tensor d = part(operands.result(shape, {.dtype = DType::bf16}));
        const Tensor low = part(operands.result(shape, {.dtype = DType::u16}));
        ops::copy(*machine.stream, {.x = x, .d = d, .low = low});
        machine.stream->synchronize();
        int64_t wrong = 0;
        for (int64_t i = 0; i < elements; ++i) {
          const uint32_t expected = base::split_bits(reinterpret_cast<const uint32_t*>(x.data)[i]);
          if (reinterpret_cast<const uint16_t*>(d.data)[i] != expected >> 16U) ++wrong;
          if (reinterpret_cast<const uint16_t*>(low.data)[i] != (expected & 0xffffU)) ++wrong;
        }
        EXPECT_EQ(wrong, 0) << "of " << elements << " elements from " << first;
        operands.expect_intact();
      }
    }
  });
}

// Two steps with masters in fp32 and with split floats. Elements from the second on are not aligned
// to vectors.
TEST(SplitFloatTest, adamw_has_the_bits_of_an_fp32_master) {
  for_each_machine([](Machine& machine) {
    for (const DType grad_dtype : {DType::f32, DType::bf16}) {
      for (const int64_t first : {0, 1}) {
        for (const int64_t elements : {1, 7, 65, 1000, 20001, 300000}) {
          Operands operands(4, machine);
          const Shape shape = {first + elements};
          const auto part = [=](const Tensor& t) { return t.slice_rows(first, elements); };
          AdamwArgs master;
          master.param = part(operands.scratch(shape, DType::bf16));
          master.master = part(operands.updated(shape));
          master.state = operands.state(third_step());
          AdamwArgs split_args = master;
          const SplitFloats split = split_of(operands.updated(shape), operands);
          split_args.param = part(split.high);
          split_args.master = part(split.low);
          for (AdamwArgs* args : {&master, &split_args}) {
            args->m = part(operands.updated(shape, {.size = 0}));
            args->v = part(operands.updated(shape, {.size = 0}));
          }
          for (int64_t i = 0; i < elements; ++i) {
            const auto bits = base::joined_bits(split.at(first + i));
            reinterpret_cast<uint32_t*>(master.master.data)[i] = bits;
          }
          for (int step = 0; step < 2; ++step) {
            master.grad = part(operands.input(shape, {.dtype = grad_dtype}));
            split_args.grad = master.grad;
            ops::adamw(*machine.stream, master);
            ops::adamw(*machine.stream, split_args);
          }
          machine.stream->synchronize();
          int64_t wrong = 0;
          for (int64_t i = 0; i < elements; ++i) {
            const auto bits = reinterpret_cast<const uint32_t*>(master.master.data)[i];
            if (split.at(first + i) != base::split_bits(bits)) ++wrong;
          }
          EXPECT_EQ(wrong, 0) << "of " << elements << " elements from " << first;
          operands.expect_intact();
        }
      }
    }
  });
}

TEST(SplitFloatTest, a_skipped_step_changes_no_bit) {
  for_each_machine([](Machine& machine) {
    Operands operands(5, machine);
    StepState state = third_step();
    state.skip = 1;
    const Tensor weights = operands.input({200});
    const SplitFloats split = split_of(weights, operands);
    ops::adamw(*machine.stream, {.param = split.high,
                                 .master = split.low,
                                 .m = operands.input({200}),
                                 .v = operands.input({200}),
                                 .grad = operands.input({200}),
                                 .state = operands.state(state)});
    machine.stream->synchronize();
    for (int64_t i = 0; i < 200; ++i) {
      EXPECT_EQ(base::joined_bits(split.at(i)), reinterpret_cast<const uint32_t*>(weights.data)[i]);
    }
    operands.expect_intact();
  });
}

}  // namespace
}  // namespace trireme::kernels::split_float_test
