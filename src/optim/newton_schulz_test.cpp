// SPDX-License-Identifier: Apache-2.0
#include "optim/newton_schulz.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/rng.h"
#include "device/cpu/cpu_device.h"
#include "device/memory.h"
#include "kernels/step_state.h"
#include "kernels/table.h"
#include "spec/state/muon.h"

namespace trireme::optim {
namespace {

using Values = std::vector<double>;

Values product(const Values& a, const Values& b, int64_t m, int64_t k, int64_t n) {
  Values d(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t t = 0; t < k; ++t) {
      for (int64_t j = 0; j < n; ++j) {
        d[static_cast<size_t>(i * n + j)] +=
            a[static_cast<size_t>(i * k + t)] * b[static_cast<size_t>(t * n + j)];
      }
    }
  }
  return d;
}

Values transposed(const Values& x, int64_t rows, int64_t cols) {
  Values y(x.size());
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      y[static_cast<size_t>(j * rows + i)] = x[static_cast<size_t>(i * cols + j)];
    }
  }
  return y;
}

// The published loop in double precision: a tall matrix is transposed first.
Values published(Values x, int64_t rows, int64_t cols, int steps) {
  if (rows > cols) {
    return transposed(published(transposed(x, rows, cols), cols, rows, steps), cols, rows);
  }
  double squares = 0;
  for (const double value : x) squares += value * value;
  for (double& value : x) value /= std::max(std::sqrt(squares), 1e-7);
  for (int step = 0; step < steps; ++step) {
    const Values a = product(x, transposed(x, rows, cols), rows, cols, rows);
    Values b = product(a, a, rows, rows, rows);
    for (size_t i = 0; i < b.size(); ++i) b[i] = -4.7750 * a[i] + 2.0315 * b[i];
    const Values bx = product(b, x, rows, rows, cols);
    for (size_t i = 0; i < x.size(); ++i) x[i] = 3.4445 * x[i] + bx[i];
  }
  return x;
}

class NewtonSchulzTest : public testing::Test {
 protected:
  Values direction_of(const Values& matrix, int64_t rows, int64_t cols, int steps) {
    const int64_t side = std::min(rows, cols);
    device::Arena arena(device::Buffer(device_, device::Mem::scratch, 1 << 22, "test"));
    const auto take = [&](int64_t count) { return arena.take({{count}, base::DType::f32}); };
    const NewtonSchulzMemory memory{take(rows * cols), take(rows * cols), take(side * side),
                                    take(side * side),
                                    arena.take({{spec::wide_sum_bytes}, base::DType::u8})};
    auto* x = reinterpret_cast<float*>(memory.x.data);
    std::copy(matrix.begin(), matrix.end(), x);
    const auto stream = device_.make_stream("test");
    const device::Tensor result = newton_schulz(*stream, memory, rows, cols, steps);
    stream->synchronize();
    const auto* values = reinterpret_cast<const float*>(result.data);
    return {values, values + rows * cols};
  }

  device::CpuDevice device_{kernels::cpu_kernels(), {}};
};

Values random_matrix(int64_t elements, double size) {
  Values all;
  for (int64_t i = 0; i < elements; ++i) {
    all.push_back(static_cast<float>(
        size * base::rng_normal(base::rng_key(3, "matrix"), static_cast<uint64_t>(i), 1)));
  }
  return all;
}

TEST_F(NewtonSchulzTest, wide_tall_and_square_matrices_follow_the_published_loop) {
  for (const auto& [rows, cols] :
       {std::pair<int64_t, int64_t>{7, 40}, {40, 7}, {24, 24}, {1, 9}, {9, 1}, {64, 65}}) {
    for (const double size : {1e-4, 1.0, 1e4}) {
      const Values matrix = random_matrix(rows * cols, size);
      for (const int steps : {1, 5, 6}) {
        const Values expected = published(matrix, rows, cols, steps);
        const Values found = direction_of(matrix, rows, cols, steps);
        for (size_t i = 0; i < found.size(); ++i) {
          // Elements are below 1.2; an iteration amplifies a rounding (6e-8) of small singular
          // values by up to 3.5.
          ASSERT_NEAR(found[i], expected[i], 2e-5)
              << rows << " x " << cols << ", element " << i << ", " << steps << " steps";
        }
      }
    }
  }
}

// Five iterations bring singular values to 0.7 .. 1.2; the trace of X X^T is their sum of squares.
TEST_F(NewtonSchulzTest, singular_values_come_near_one) {
  constexpr int64_t rows = 16, cols = 48;
  const Values x = direction_of(random_matrix(rows * cols, 0.01), rows, cols, 5);
  const Values square = product(x, transposed(x, rows, cols), rows, cols, rows);
  double trace = 0;
  for (int64_t i = 0; i < rows; ++i) trace += square[static_cast<size_t>(i * rows + i)];
  EXPECT_GT(trace, 0.45 * rows);
  EXPECT_LT(trace, 1.45 * rows);
}

TEST_F(NewtonSchulzTest, zero_stays_zero) {
  for (const double value : direction_of(Values(60), 6, 10, 5)) EXPECT_EQ(value, 0);
}

TEST(MuonFactorTest, is_that_of_moonlight) {
  EXPECT_FLOAT_EQ(muon_factor(64, 100), 2);
  EXPECT_FLOAT_EQ(muon_factor(400, 100), 4);
}

TEST(MuonOwnersTest, balance_flops_and_are_the_same_on_all_ranks) {
  std::vector<spec::MuonMatrix> matrices;
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{8, 8}, {2, 8}, {2, 8}, {8, 24}}) {
    matrices.push_back({.rows = rows, .cols = cols, .local_rows = rows, .local_cols = cols});
  }
  EXPECT_EQ(spec::muon_owners(matrices, 1), (std::vector<int>{0, 0, 0, 0}));
  EXPECT_EQ(spec::muon_owners(matrices, 2), (std::vector<int>{1, 1, 1, 0}));
  EXPECT_EQ(spec::muon_owners(matrices, 9), (std::vector<int>{1, 2, 3, 0}));
}

}  // namespace
}  // namespace trireme::optim
