// SPDX-License-Identifier: Apache-2.0
// The history of largest magnitudes: what is entered, what is left out, and the maximum.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/ops.h"
#include "kernels/tests/op_test.h"

namespace trireme::kernels::amax_history_test {
namespace {

constexpr float amax_infinity = std::numeric_limits<float>::infinity();
constexpr float amax_nan = std::numeric_limits<float>::quiet_NaN();

TEST(AmaxHistoryTest, collects_what_cells_have_counted) {
  for_each_machine([](Machine& machine) {
    const std::vector<float> counted = {3, 1, 0, 0, amax_infinity, amax_nan, 5};
    const std::vector<float> before = {2, 2, 7, 0, 1, 1, amax_infinity};
    const auto n = static_cast<int64_t>(counted.size());
    Operands o(1, machine);
    const Tensor cells =
        o.result({n, static_cast<int64_t>(sizeof(QuantizeCounts))}, {.dtype = DType::u8});
    for (size_t i = 0; i < counted.size(); ++i) {
      QuantizeCounts cell = {};
      cell.amax_bits = std::bit_cast<uint32_t>(counted[i]);
      std::memcpy(cells.data + i * sizeof(cell), &cell, sizeof(cell));
    }
    const Tensor amax = o.updated({n}, {}, [&](int64_t i, int64_t) {
      return static_cast<double>(before[static_cast<size_t>(i)]);
    });
    ops::collect_amax(*machine.stream, {.counts = cells, .amax = amax});
    machine.stream->synchronize();
    const double inf = amax_infinity;
    EXPECT_EQ(values_of(amax), (std::vector<double>{3, 2, 7, 0, inf, inf, inf}));
  });
}

struct RotatedAmax {
  std::vector<double> amax, history, largest;
};

// Rotates with the magnitudes `amax` on a history of three steps for each.
RotatedAmax rotated_amax(Machine& machine, const std::vector<float>& amax, bool has_state,
                         int skip) {
  const auto n = static_cast<int64_t>(amax.size());
  Operands o(1, machine);
  const Tensor newest = o.updated({n}, {}, [&](int64_t i, int64_t) {
    return static_cast<double>(amax[static_cast<size_t>(i)]);
  });
  const Tensor history = o.updated(
      {n, 3}, {}, [](int64_t r, int64_t c) { return static_cast<double>(10 * (r + 1) + c); });
  const Tensor largest = o.result({n});
  StepState state = {};
  state.skip = skip;
  ops::rotate_amax(*machine.stream, {.amax = newest,
                                     .history = history,
                                     .largest = largest,
                                     .state = has_state ? o.state(state) : Tensor{}});
  machine.stream->synchronize();
  o.expect_intact();
  return {values_of(newest), values_of(history), values_of(largest)};
}

using Magnitudes = std::vector<double>;

TEST(AmaxHistoryTest, enters_finite_magnitudes_of_steps_that_are_not_skipped) {
  for_each_machine([](Machine& machine) {
    for (const bool has_state : {false, true}) {
      const RotatedAmax r =
          rotated_amax(machine, {50, 1, 0, amax_infinity, amax_nan}, has_state, 0);
      EXPECT_EQ(r.history, (Magnitudes{50, 10, 11, 1, 20, 21, 30, 31, 32, 40, 41, 42, 50, 51, 52}));
      EXPECT_EQ(r.largest, (Magnitudes{50, 21, 32, 42, 52}));
      EXPECT_EQ(r.amax, Magnitudes(5, 0));
    }
    const RotatedAmax r = rotated_amax(machine, {50, 1}, true, 1);
    EXPECT_EQ(r.history, (Magnitudes{10, 11, 12, 20, 21, 22}));
    EXPECT_EQ(r.largest, (Magnitudes{12, 22}));
    EXPECT_EQ(r.amax, Magnitudes(2, 0));
  });
}

}  // namespace
}  // namespace trireme::kernels::amax_history_test
