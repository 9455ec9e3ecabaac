// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/partials.h"

#include "kernels/cpu/segment.h"

namespace trireme::kernels::cpu {

void add_partials(base::ThreadPool& pool, const device::ConstTensor& partials, int64_t first,
                  const device::Tensor& d) {
  constexpr int64_t columns_per_task = 64;
  const int64_t cols = d.elements();
  pool.for_each(divide_up(cols, columns_per_task), [&](int64_t task) {
    const Segment s = {0, task * columns_per_task,
                       std::min(columns_per_task, cols - task * columns_per_task)};
    double sums[columns_per_task] = {};
    for (int64_t row = 0; row < partials.rows(); ++row) {
      const float* partial = floats_at(partials, row) + first + s.first;
#pragma omp simd
      for (int64_t i = 0; i < s.count; ++i) sums[i] += static_cast<double>(partial[i]);
    }
    float buffer[columns_per_task], totals[columns_per_task];
    const float* old = values_of(d, s, buffer);
    for (int64_t i = 0; i < s.count; ++i) {
      totals[i] = static_cast<float>(static_cast<double>(old[i]) + sums[i]);
    }
    store(d, s, totals);
  });
}

}  // namespace trireme::kernels::cpu
