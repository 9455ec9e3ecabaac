// SPDX-License-Identifier: Apache-2.0
// The backward of a block of queries, one block of keys after the other. With p = exp(scale q k -
// lse), dp = dout v, delta = sum over K of dout * o (Dao et al., 2022):
//   ds = scale p (dp - delta);  dv += p^T dout;  dk += ds^T q;  dq = ds k.
//
// Mask is Visible or VisibleRanges: which pairs are computed, and which of these are hidden. Sums
// are taken in the order of calls and, within one, in the order of queries.
#pragma once

#include <limits>
#include <utility>

#include "kernels/cpu/attention/attention_blocks.h"
#include "kernels/cpu/vector_math.h"

namespace trireme::kernels::cpu {

struct BackwardMemory;  // tag of thread_floats()

// fp32 sums [N, G, K] of dk or dv.
struct KeySums {
  float* data = nullptr;
  int64_t row_stride = 0;

  float* at(int64_t row, int64_t head, int64_t K) const {
    return data + row * row_stride + head * K;
  }
};

// dk and dv are summed in place if fp32, otherwise in the workspace, which is checked.
struct KeyGradients {
  KeySums dk, dv;

  KeyGradients(const Tensor& dk_result, const Tensor& dv_result, const Tensor& workspace) {
    if (dk_result.dtype == base::DType::f32) {
      dk = {floats_at(dk_result, 0), dk_result.row_stride};
      dv = {floats_at(dv_result, 0), dv_result.row_stride};
      return;
    }
    TRIREME_CHECK(workspace && workspace.dtype == base::DType::f32 &&
                      workspace.elements() >= 2 * dk_result.elements() && workspace.is_contiguous(),
                  "workspace {} for {}", workspace.shape.to_string(), dk_result.shape.to_string());
    float* sums = reinterpret_cast<float*>(workspace.data);
    dk = {sums, dk_result.cols()};
    dv = {sums + dk_result.elements(), dk_result.cols()};
  }
};

// Rows of queries with what the backward needs of them.
struct QueryOperands {
  const ConstTensor &q, &o, &dout;
  const float* lse;  // of the first row of the block; the next rows follow
  float scale = 1;
};

// Memory of one block of queries.
struct BackwardBlock {
  explicit BackwardBlock(int64_t padded_K) : width(padded_K) {
    static_assert(query_block == key_block);
    constexpr int64_t side = query_block;
    float* next = thread_floats<BackwardMemory>(2 * side * side + 8 * side * width);
    const auto take = [&next](int64_t count) { return std::exchange(next, next + count); };
    p = {take(side * side), side};
    ds = {take(side * side), side};
    qt = {take(width * side), side};
    dot = {take(width * side), side};
    dq_sums = {take(side * width), width};
    q = {take(side * width), width};
    dout = {take(side * width), width};
    k = take(side * width);
    v = take(side * width);
    partial = {take(side * width), width};
  }

  void load_queries(const QueryOperands& x, const HeadRows& rows);

  // Adds the pairs of one block of keys: to dq at once, to dk and dv after wait_for_sums().
  template <typename Mask, typename Wait>
  void add_keys(const ConstTensor& keys, const ConstTensor& values, const HeadRows& rows,
                const Mask& visible, const KeyGradients& sums, Wait&& wait_for_sums);

  // dq of query i of the block, K values.
  const float* dq(int64_t i) const { return dq_sums.at(i, 0); }

 private:
  template <typename Mask>
  void differentiate(const Mask& visible);
  template <typename Mask>
  void add_to(const KeySums& sums, const HeadRows& rows, const Mask& visible,
              const ConstBlock& pairs, const ConstBlock& queries);

  int64_t width;  // K in whole cells
  float scale = 1;
  MutableBlock p;        // [key, query]
  MutableBlock ds;       // [key, query]: dp, then ds
  MutableBlock qt, dot;  // [K, query]: scale q^T, dout^T
  MutableBlock dq_sums;  // [query, K]
  MutableBlock q, dout;  // [query, K]
  float *k, *v;
  MutableBlock partial;  // [key, K]
  float lse[query_block];
  float delta[query_block];
};

inline void BackwardBlock::load_queries(const QueryOperands& x, const HeadRows& rows) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const int64_t K = rows.K;
  scale = x.scale;
  transpose(block_of(x.q, rows, q.data), rows.padded_count(), width, scale, qt);
  transpose(block_of(x.dout, rows, dout.data), rows.padded_count(), width, 1, dot);
  // Queries that only fill the last cell: exp(score - infinity) = 0 removes them.
  std::fill_n(lse, query_block, infinity);
  std::fill_n(delta, query_block, 0.0F);
  for (int64_t i = 0; i < rows.count; ++i) {
    lse[i] = x.lse[i] == -infinity ? infinity : x.lse[i];  // without keys: removed likewise
    // dq is not in use yet: its first row serves as a buffer.
    const float* o = values_of(x.o, {rows.first + i, rows.head * K, K}, dq_sums.data);
    const float* grad = dout.at(i, 0);
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < K; ++c) sum += o[c] * grad[c];
    delta[i] = sum;
  }
  std::fill_n(dq_sums.data, query_block * width, 0.0F);
}

// p and ds of the pairs of one block, in cells that any query sees.
template <typename Mask>
void BackwardBlock::differentiate(const Mask& visible) {
  for (int64_t j = 0; j < visible.padded_keys; ++j) {
    const InnerRange queries = visible.queries_of(j / cell * cell);
    float* p_row = p.at(j, 0);
    float* ds_row = ds.at(j, 0);
#pragma omp simd
    for (int64_t i = queries.begin; i < queries.end; ++i) {
      p_row[i] = exp_of(p_row[i] - lse[i]);
      ds_row[i] = p_row[i] * (ds_row[i] - delta[i]) * scale;
    }
    visible.hide(j, queries, 0, p_row);
    visible.hide(j, queries, 0, ds_row);
  }
}

// sums += pairs x queries for the keys of the block: dv from p and dout, dk from ds and q.
template <typename Mask>
void BackwardBlock::add_to(const KeySums& sums, const HeadRows& rows, const Mask& visible,
                           const ConstBlock& pairs, const ConstBlock& queries) {
  const bool in_place = rows.fills_cells();
  for (int64_t j = 0; j < visible.padded_keys; j += cell) {
    const InnerRange inner = visible.queries_of(j);
    if (in_place) {
      const MutableBlock d = {sums.at(rows.first, rows.head, rows.K), sums.row_stride};
      multiply_rows<Into::add>(pairs, queries, d, j, {0, width}, inner);
    } else {
      multiply_rows<Into::set>(pairs, queries, partial, j, {0, width}, inner);
    }
  }
  for (int64_t j = 0; !in_place && j < rows.count; ++j) {
    float* d = sums.at(rows.first + j, rows.head, rows.K);
    const float* from = partial.at(j, 0);
#pragma omp simd
    for (int64_t c = 0; c < rows.K; ++c) d[c] += from[c];
  }
}

template <typename Mask, typename Wait>
void BackwardBlock::add_keys(const ConstTensor& keys, const ConstTensor& values,
                             const HeadRows& rows, const Mask& visible, const KeyGradients& sums,
                             Wait&& wait_for_sums) {
  const ConstBlock key_block_rows = block_of(keys, rows, k);
  const ConstBlock value_block_rows = block_of(values, rows, v);
  for (int64_t j = 0; j < visible.padded_keys; j += cell) {
    const InnerRange queries = visible.queries_of(j);
    multiply_rows<Into::set>(key_block_rows, qt, p, j, queries, {0, width});
    multiply_rows<Into::set>(value_block_rows, dot, ds, j, queries, {0, width});
  }
  differentiate(visible);
  for (int64_t i = 0; i < visible.padded_queries; i += cell) {
    add_transposed_rows(ds, key_block_rows, dq_sums, i, {0, width}, visible.keys_of(i));
  }
  wait_for_sums();
  add_to(sums.dv, rows, visible, p, dout);
  add_to(sums.dk, rows, visible, ds, q);
}

}  // namespace trireme::kernels::cpu
