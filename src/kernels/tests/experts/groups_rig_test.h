// SPDX-License-Identifier: Apache-2.0
// Operands of the tests of experts: groups of rows with padding between them, and tensors whose
// contents show what an op read or wrote. Rows that no pair has are zero; rows after the last group
// are NaN in operands and `untouched` in results.
#pragma once

#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "base/float16.h"
#include "base/rng.h"
#include "base/shape.h"
#include "kernels/tests/op_test.h"
#include "spec/facts/backend.h"

namespace trireme::kernels {

constexpr double untouched = 7;

// The rows to which groups are aligned on this table.
inline int64_t tile_of(const Kernels& kernels) {
  const bool is_cuda = &kernels == &cuda_kernels();
  return (is_cuda ? spec::cuda_backend(true) : spec::cpu_backend()).expert_tile;
}

// Groups of these sizes, each beginning at a multiple of `tile`, and `spare` rows after them.
struct Groups {
  std::vector<int64_t> sizes;
  int64_t tile = 1, spare = 0;

  int64_t count() const { return static_cast<int64_t>(sizes.size()); }
  std::vector<int32_t> starts() const {
    std::vector<int32_t> list = {0};
    for (const int64_t size : sizes) {
      list.push_back(list.back() + static_cast<int32_t>(base::round_up(size, tile)));
    }
    return list;
  }
  int64_t end() const { return starts().back(); }
  int64_t rows() const { return end() + spare; }
  int64_t pairs() const { return std::accumulate(sizes.begin(), sizes.end(), int64_t{0}); }
  bool has_pair(int64_t row) const {
    const std::vector<int32_t> list = starts();
    for (size_t g = 0; g < sizes.size(); ++g) {
      if (row >= list[g] && row < list[g] + sizes[g]) return true;
    }
    return false;
  }
  std::string name() const {
    std::string text = "groups of";
    for (const int64_t size : sizes) text += " " + std::to_string(size);
    return text + " rows in tiles of " + std::to_string(tile);
  }
};

// Random rows of the groups.
inline Tensor rows_input(Operands& operands, const Groups& groups, const Shape& shape,
                         const Make& make, uint64_t seed) {
  const base::RngKey key = base::rng_key(seed, "rows");
  std::vector<int> has_pair;
  for (int64_t r = 0; r < shape[0]; ++r) has_pair.push_back(groups.has_pair(r) ? 1 : 0);
  return operands.input(shape, make, [&](int64_t r, int64_t c) {
    if (r >= groups.end()) return std::numeric_limits<double>::quiet_NaN();
    if (has_pair[static_cast<size_t>(r)] == 0) return 0.0;
    const auto index = static_cast<uint64_t>(r * shape.row_elements() + c);
    return static_cast<double>(base::rng_normal(key, index, make.size));
  });
}

// A result whose elements are `untouched` when the op starts.
inline Tensor rows_result(Operands& operands, const Shape& shape, const Make& make) {
  const Tensor t = operands.result(shape, make);
  for (int64_t r = 0; r < t.rows(); ++r) {
    for (int64_t c = 0; c < t.cols(); ++c) {
      const int64_t at = r * t.row_stride + c;
      if (t.dtype == DType::f32) {
        reinterpret_cast<float*>(t.data)[at] = static_cast<float>(untouched);
      } else if (t.dtype == DType::f16) {
        reinterpret_cast<base::F16*>(t.data)[at] = base::F16(static_cast<float>(untouched));
      } else {
        reinterpret_cast<base::Bf16*>(t.data)[at] = base::Bf16(static_cast<float>(untouched));
      }
    }
  }
  return t;
}

// A result of indices, which are not -1 when the op starts.
inline Tensor index_result(Operands& operands, const Shape& shape) {
  const Tensor t = operands.result(shape, {.dtype = DType::i32, .exact = true});
  std::memset(t.data, 0x55, static_cast<size_t>(t.bytes()));
  return t;
}

inline std::vector<int32_t> integers_of(const ConstTensor& t) {
  const auto* from = reinterpret_cast<const int32_t*>(t.data);
  return {from, from + t.elements()};
}

}  // namespace trireme::kernels
