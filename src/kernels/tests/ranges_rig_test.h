// SPDX-License-Identifier: Apache-2.0
// Attention of ranges as ranks of context parallelism use it: a batch with documents, its attention
// by naive fp64 loops over an explicit mask, and the same computed by any table from slices of
// rows, with all keys gathered or with the keys of one rank at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/tests/op_test.h"

namespace trireme::kernels {

struct HeadCounts {
  int64_t query, key, size;
};

struct RowRange {
  int32_t begin = 0, end = 0;
};
std::vector<int32_t> begins_of(const std::vector<RowRange>& ranges);
std::vector<int32_t> ends_of(const std::vector<RowRange>& ranges);
double pairs_of(const std::vector<RowRange>& ranges);

// Scratch of attention_ranges_backward on the device of `stream`, on a GPU enough for either of its
// modes. Makes one operand on every table, so that tables can be compared.
struct RangesCall {
  DType dtype = DType::f32, grad_dtype = DType::f32;
  int64_t rows = 0, keys = 0;
  HeadCounts heads = {};
};
Tensor ranges_workspace(const RangesCall& call, Operands& operands, const Stream& stream);

// Values of q, k, v and dout of a batch, rounded to `dtype`. Token t sees [begin of its document,
// t]; documents are `lengths` tokens long.
struct Batch {
  Batch(const std::vector<int64_t>& lengths, const HeadCounts& head_counts, DType type,
        uint64_t seed);

  int64_t tokens() const { return static_cast<int64_t>(document_begin.size()); }
  float scale() const;

  HeadCounts heads;
  DType dtype;
  std::vector<int64_t> document_begin;  // of each token
  std::vector<double> q, k, v, dout;    // [tokens, heads, size]
};

struct AttentionResults {
  std::vector<double> o, dq, dk, dv;  // [tokens, heads, size]
};
AttentionResults naive_attention(const Batch&);

// Rows of each rank, ascending. Lengths need not divide by anything.
using Slices = std::vector<std::vector<int64_t>>;
Slices zigzag_slices(int64_t tokens, int64_t ranks);      // chunks r and 2 P - 1 - r
Slices contiguous_slices(int64_t tokens, int64_t ranks);  // chunk r
Slices striped_slices(int64_t tokens, int64_t ranks);     // position i on rank i mod P

// Every rank attends to all keys; dk and dv of the ranks are added in fp64.
AttentionResults gathered_attention(const Batch&, const Slices&, Machine&);
// Every rank attends to the keys of one rank after the other; parts are merged in fp32, and
// gradients accumulated in fp32; all are rounded to the type of the batch at the end.
AttentionResults ring_attention(const Batch&, const Slices&, Machine&);

// ||x - expected|| / ||expected||.
double relative_error(const std::vector<double>& x, const std::vector<double>& expected);

}  // namespace trireme::kernels
