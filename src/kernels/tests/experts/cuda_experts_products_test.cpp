// SPDX-License-Identifier: Apache-2.0
// Products of groups of rows on a GPU, of sizes that take several tiles: groups that share a
// cluster of tiles, empty groups, an odd last tile, widths that end inside a tile, operands for the
// tensor cores and operands that they do not support.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/ops.h"
#include "kernels/tests/op_test.h"

namespace trireme::kernels::cuda_experts_products_test {
namespace {

struct Groups {
  std::string name;
  std::vector<int32_t> sizes;  // rows, multiples of 128
  int64_t rows;                // that the tensors have
};
const std::vector<Groups> all_groups = {
    {"one", {256}, 256},
    {"odd", {128, 0, 384, 128}, 1024},
    {"skewed", {0, 640, 128, 0, 0, 256, 128, 0}, 1152},
    {"none", {0, 0, 0}, 256},
};

struct Sizes {
  int64_t n, d;
};

std::vector<int32_t> starts_of(const Groups& g) {
  std::vector<int32_t> starts = {0};
  for (const int32_t size : g.sizes) starts.push_back(starts.back() + size);
  return starts;
}

int64_t count_of(const Groups& g) { return std::ssize(g.sizes); }

// Runs `run` for groups and widths of tiles and of parts of tiles.
using Run = std::function<void(Operands&, Stream&, const Groups&, const Sizes&, const Make&)>;
std::vector<Case> cases_of(const Run& run) {
  const std::vector<Sizes> all_sizes = {{256, 64}, {264, 136}, {72, 520}};
  std::vector<Case> cases;
  for (const Groups& g : all_groups) {
    for (const Sizes& s : all_sizes) {
      const std::vector<std::pair<std::string, Make>> makes = {
          {"bf16", {.dtype = DType::bf16, .size = 0.5F}},
          {"bf16 with gaps", {.dtype = DType::bf16, .gap = 8, .size = 0.5F}},
          {"unaligned bf16", {.dtype = DType::bf16, .gap = 1, .size = 0.5F}},
          {"f32", {.dtype = DType::f32, .size = 0.5F}}};
      for (const auto& [name, make] : makes) {
        const bool is_slow = name != "bf16";
        if (is_slow && (g.name == "skewed" || s.n != 264)) continue;
        cases.push_back(
            {name + ", groups " + g.name + ", " + std::to_string(s.n) + " x " + std::to_string(s.d),
             [=](Operands& operands, Stream& stream) { run(operands, stream, g, s, make); }});
      }
    }
  }
  return cases;
}

Make packed(Make make) {
  make.gap = 0;
  return make;
}
Make summed(Make make, int64_t terms) {
  make.terms = terms;
  return make;
}

TEST(CudaExpertsProductsTest, products_of_rows_agree) {
  expect_cuda_agrees(cases_of([](Operands& operands, Stream& stream, const Groups& g,
                                 const Sizes& s, const Make& make) {
    const Tensor starts = operands.integers(starts_of(g));
    ops::grouped_forward(stream, {.x = operands.input({g.rows, s.d}, make),
                                  .weight = operands.input({count_of(g), s.n, s.d}, packed(make)),
                                  .starts = starts,
                                  .y = operands.updated({g.rows, s.n}, summed(make, s.d))});
    ops::grouped_backward_input(stream,
                                {.dy = operands.input({g.rows, s.n}, make),
                                 .weight = operands.input({count_of(g), s.n, s.d}, packed(make)),
                                 .starts = starts,
                                 .dx = operands.updated({g.rows, s.d}, summed(make, s.n))});
  }));
}

TEST(CudaExpertsProductsTest, activations_agree) {
  expect_cuda_agrees(cases_of(
      [](Operands& operands, Stream& stream, const Groups& g, const Sizes& s, const Make& make) {
        const Tensor starts = operands.integers(starts_of(g));
        const Tensor row_weight = operands.input({g.rows}, {});
        const Tensor gate_up = operands.updated({g.rows, 2 * s.n}, summed(make, s.d));
        ops::grouped_swiglu_forward(
            stream, {.x = operands.input({g.rows, s.d}, make),
                     .weight = operands.input({count_of(g), 2 * s.n, s.d}, packed(make)),
                     .starts = starts,
                     .row_weight = row_weight,
                     .gate_up = gate_up,
                     .act = operands.updated({g.rows, s.n}, summed(make, s.d))});
        // From an input, since the rows of gate_up may differ in their last bits.
        ops::grouped_swiglu(stream, {.gate_up = operands.input({g.rows, 2 * s.n}, make),
                                     .row_weight = row_weight,
                                     .end = starts.slice_rows(count_of(g), 1),
                                     .act = operands.updated({g.rows, s.n}, make)});
      }));
}

TEST(CudaExpertsProductsTest, gradients_of_activations_agree) {
  for (const bool in_place : {false, true}) {
    expect_cuda_agrees(cases_of([in_place](Operands& operands, Stream& stream, const Groups& g,
                                           const Sizes& s, const Make& make) {
      Make wide = summed(make, s.d * s.n);
      Make sums = {.terms = s.d * s.n, .from_half = make.dtype != DType::f32};
      const Tensor gate_up = in_place ? operands.updated({g.rows, 2 * s.n}, wide)
                                      : operands.input({g.rows, 2 * s.n}, make);
      ops::grouped_swiglu_backward(
          stream, {.dy = operands.input({g.rows, s.d}, make),
                   .weight = operands.input({count_of(g), s.d, s.n}, packed(make)),
                   .starts = operands.integers(starts_of(g)),
                   .gate_up = gate_up,
                   .row_weight = operands.input({g.rows}, {}),
                   .dgate_up = in_place ? gate_up : operands.updated({g.rows, 2 * s.n}, wide),
                   .dweight = operands.updated({g.rows}, sums),
                   .act = in_place ? Tensor{} : operands.updated({g.rows, s.n}, make)});
    }));
  }
}

TEST(CudaExpertsProductsTest, gradients_of_weights_agree) {
  for (const bool adds : {false, true}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      SCOPED_TRACE(fmt::format("gradients in {}{}", base::name_of(dtype), adds ? ", added" : ""));
      expect_cuda_agrees(cases_of([=](Operands& operands, Stream& stream, const Groups& g,
                                      const Sizes& s, const Make& make) {
        const Make grads = {.dtype = dtype, .terms = 640, .from_half = make.dtype != DType::f32};
        const base::Shape shape = {count_of(g), s.n, s.d};
        ops::grouped_backward_weight(stream, {.dy = operands.input({g.rows, s.n}, make),
                                              .x = operands.input({g.rows, s.d}, make),
                                              .starts = operands.integers(starts_of(g)),
                                              .dweight = adds ? operands.updated(shape, grads)
                                                              : operands.result(shape, grads),
                                              .adds = adds});
      }));
    }
  }
}

// A gradient of weights with random sizes, groups and types.
struct Random {
  Groups groups;
  Sizes sizes;
  Make operand, gradient;
  bool adds;
};

Random random_gradient(uint64_t seed) {
  const base::RngKey key = base::rng_key(seed, "gradients of weights");
  uint64_t drawn = 0;
  const auto below = [&](int64_t end) {
    return static_cast<int64_t>(base::rng_below(key, drawn++, static_cast<uint64_t>(end)));
  };
  Random r = {};
  // Groups: one, all rows in one of several, most of them empty, or any.
  const int64_t kind = below(4), count = kind == 0 ? 1 : 1 + below(12), full = below(count);
  for (int64_t g = 0; g < count; ++g) {
    const bool is_empty = kind == 1 ? g != full : kind == 2 && below(3) > 0;
    const int64_t tiles = is_empty ? 0 : below(kind == 1 ? 10 : 4);
    r.groups.sizes.push_back(static_cast<int32_t>(128 * tiles));
    r.groups.rows += 128 * tiles;
  }
  r.groups.rows += 128 * below(3);  // rows of no group
  // Sizes: multiples of 8, which the tensor cores support, or any.
  const int64_t step = below(4) == 0 ? 1 : 8;
  r.sizes = {step * (1 + below(400 / step)), step * (1 + below(400 / step))};
  const DType operands[] = {DType::bf16, DType::bf16, DType::f16, DType::f32};
  const DType gradients[] = {DType::f32, DType::bf16, DType::f16};
  r.operand = {.dtype = operands[below(4)], .gap = below(3) * 8, .size = 0.5F};
  r.gradient = {.dtype = gradients[below(3)],
                .terms = std::max<int64_t>(1, r.groups.rows),
                .from_half = r.operand.dtype != DType::f32};
  r.adds = below(2) == 0;
  return r;
}

// Against sums in fp64 of the same operands; what is outside of a tensor must not change. With
// --gtest_shuffle --gtest_repeat=4, 2,000 different shapes.
TEST(CudaExpertsProductsTest, gradients_of_weights_of_random_shapes_agree) {
  constexpr int shapes = 500;
  const int first = shapes * testing::UnitTest::GetInstance()->random_seed();
  std::vector<Case> cases;
  for (int i = 0; i < shapes; ++i) {
    const Random r = random_gradient(static_cast<uint64_t>(first + i) + 1);
    const std::string name =
        fmt::format("groups of {}, {} rows, {} x {}, {} with gaps of {} -> {}{}",
                    fmt::join(r.groups.sizes, " "), r.groups.rows, r.sizes.n, r.sizes.d,
                    base::name_of(r.operand.dtype), r.operand.gap, base::name_of(r.gradient.dtype),
                    r.adds ? ", added" : "");
    cases.push_back({name, [r](Operands& operands, Stream& stream) {
                       const base::Shape shape = {count_of(r.groups), r.sizes.n, r.sizes.d};
                       ops::grouped_backward_weight(
                           stream, {.dy = operands.input({r.groups.rows, r.sizes.n}, r.operand),
                                    .x = operands.input({r.groups.rows, r.sizes.d}, r.operand),
                                    .starts = operands.integers(starts_of(r.groups)),
                                    .dweight = r.adds ? operands.updated(shape, r.gradient)
                                                      : operands.result(shape, r.gradient),
                                    .adds = r.adds});
                     }});
  }
  expect_cuda_agrees(cases);
}

}  // namespace
}  // namespace trireme::kernels::cuda_experts_products_test
