// SPDX-License-Identifier: Apache-2.0
// Sorts tokens by their embedding rows. A key is (row << 32 | token), so no two are
// equal and the order is unique; row is `no_row` for tokens that belong to another rank.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace trireme::kernels::cuda {

constexpr uint32_t no_row = 0xffffffffU;

__host__ __device__ constexpr uint32_t row_of(uint64_t key) {
  return static_cast<uint32_t>(key >> 32);
}
__host__ __device__ constexpr uint32_t token_of(uint64_t key) { return static_cast<uint32_t>(key); }

struct SortArgs {
  const int32_t* indices = nullptr;  // one every `index_stride` elements
  int64_t index_stride = 1;
  int64_t count = 0;                           // of tokens
  int64_t first_row = 0, table_rows = 0;       // row = index - first_row, if that is in the table
  uint64_t *keys = nullptr, *spare = nullptr;  // `count` each
};

// Queues the sort and returns which of `keys` and `spare` will hold the result.
const uint64_t* sort_by_row(cudaStream_t stream, const SortArgs& args);

}  // namespace trireme::kernels::cuda
