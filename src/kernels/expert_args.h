// SPDX-License-Identifier: Apache-2.0
// The arguments of the ops of mixture-of-experts layers. Conventions are those of args.h.
//
// Letters: T tokens, E experts of the layer, K experts that a token chooses, G experts of this
// rank, N and D the sizes of an expert's matrix, F an expert's feed-forward width, R rows. A "pair"
// is (token t, choice k), numbered t K + k. A "row" is a pair's copy of the token's activations.
// Rows of one expert are adjacent and form a group. Counts stay on the device: shapes are budgets,
// and the rows that are really there are described by tensors of i32.
#pragma once

#include <cstdint>

#include "device/tensor.h"
#include "spec/experts/router.h"
#include "spec/recipe.h"

namespace trireme::kernels {

using device::ConstTensor;
using device::Tensor;

// ---- the router

// Scores, choices and weights of spec::RouterSpec, in fp32. `stats`, if present, is added to
// (counts, probs, lse2 and tokens of spec::RouterStats); `load`, if present, is overwritten with
// the number of pairs of every expert by sequence: local row t belongs to sequence (first_row + t)
// / sequence_rows.
struct RouterForwardArgs {
  spec::RouterSpec rule;
  ConstTensor logits;      // [T, E] f32
  ConstTensor bias = {};   // [E] f32, present exactly if rule.has_bias
  Tensor choice;           // [T, K] i32, best first; only read if `is_chosen`
  bool is_chosen = false;  // compute the weights of given choices
  Tensor weights;          // [T, K] f32
  Tensor stats = {};       // optional [RouterStats::size()] f32
  Tensor load = {};        // optional [S, E] f32
  int64_t first_row = 0, sequence_rows = 0;
};

// dlogits = the gradient of the weights, given those of the rows, plus
//   aux: dp[t, e] += aux_scale * load[s, e] / (sum over e of load[s, e]), s the sequence of row t,
//        through p as in RouterStats::probs;
//   z:   dz[t, e] += z_scale * lse(z[t]) * softmax(z[t])[e].
// Rows whose label is negative have neither term. Choices have no gradient. All in fp32, rounded
// once.
struct RouterBackwardArgs {
  spec::RouterSpec rule;
  ConstTensor logits;     // [T, E] f32
  ConstTensor choice;     // [T, K] i32
  ConstTensor place;      // [T, K] i32: the pair's row in row_grads; negative: its gradient is zero
  ConstTensor row_grads;  // [R] f32: gradients of the rows' weights
  ConstTensor load = {};  // [S, E] f32, present exactly if aux_scale is not 0
  ConstTensor labels = {};  // [T] i32, present exactly if aux_scale or z_scale is not 0
  int64_t first_row = 0, sequence_rows = 0;
  float aux_scale = 0, z_scale = 0;
  ConstTensor scale = {};  // optional [1] f32: both terms are multiplied by it
  Tensor dlogits;          // [T, E], activation type
};

// bias[e] += rate * sign(mean of counts - counts[e]), counts of spec::RouterStats. Nothing changes
// if state.skip is set.
struct RouterBiasArgs {
  ConstTensor stats;  // [RouterStats::size()] f32
  ConstTensor state;  // one StepState
  Tensor bias;        // [E] f32
  float rate = 0.001F;
};

// sums.overflow += overflow of spec::RouterStats.
struct RouterOverflowArgs {
  ConstTensor stats;  // [RouterStats::size()] f32
  int64_t experts = 0;
  Tensor sums;  // one StepSums
};

// fill = max(fill, the most rows of one of `blocks` blocks of neighbouring experts).
struct RouterFillArgs {
  ConstTensor counts;  // [E] i32, as in RouteRowsArgs
  int64_t blocks = 1;
  Tensor fill;  // [1] f32
};

// ---- rows

// Gives every pair a row. Experts are divided into `blocks` blocks of E / blocks neighbours (the
// ranks that have them); block b has rows [b C, (b + 1) C). Inside a block the groups follow one
// another in order of the expert, each beginning at a multiple of `tile` rows from the block's
// start, and the rows of a group are in order of the pair. A pair has no row if its expert already
// has `capacity` rows (0: no limit), or if the row would be at or beyond the block's end.
struct RouteRowsArgs {
  ConstTensor choice;  // [T, K] i32 in [0, E)
  int64_t experts = 0, blocks = 1;
  int64_t tile = 1;
  int64_t capacity = 0;
  Tensor place;       // [T, K] i32: row of the pair, or -1
  Tensor pair;        // [blocks * C] i32: pair of the row, or -1
  Tensor counts;      // [E] i32: rows of each expert
  Tensor starts;      // [E + 1] i32: the first row of each group; then the end of the last group,
                      // rounded up to `tile`
  Tensor stats = {};  // optional: dropped, lost and overflow of spec::RouterStats are added to
};

// Groups rows that came from several ranks. Rank b's rows are [b C, (b + 1) C); its groups of
// counts[b, g] rows follow one another from b C on. Grouped rows are in order of expert g, then of
// rank b; every group begins at a multiple of `tile`. R must suffice for all: it is at least
// blocks * C + G (tile - 1).
struct ArrangeRowsArgs {
  ConstTensor counts;  // [blocks, G] i32
  int64_t tile = 1;
  Tensor place;   // [blocks * C] i32: grouped row of the row, or -1 if there is none
  Tensor source;  // [R] i32: the row of the grouped row, or -1
  Tensor starts;  // [G + 1] i32, as in RouteRowsArgs
};

// d[r] = source[r] < 0 ? 0 : x[source[r] / divisor], for rows below `end`. Rows from `end` on are
// not written.
struct GatherPairsArgs {
  ConstTensor x;       // [N, D]
  ConstTensor source;  // [R] i32
  int64_t divisor = 1;
  ConstTensor end = {};  // optional, one i32
  // Optional [N, divisor] i32, the inverse of source: the rows that are copies of each row of x, or
  // -1. A back end may read x once with it.
  ConstTensor place = {};
  Tensor d;  // [R, D], type of x; overlaps nothing
};

// y[t] = residual[t] + other[t] + rows[place[t, 0]] + rows[place[t, 1]] + ... in this order, in
// fp32; a negative place contributes nothing.
struct SumPairsArgs {
  ConstTensor rows;           // [R, D]
  ConstTensor place;          // [T, K] i32
  ConstTensor residual = {};  // optional [T, D]
  ConstTensor other = {};     // optional [T, D]
  Tensor y;                   // [T, D]; may be the same tensor as residual or other
};

// ---- products of groups of rows, each with the matrix of its expert
//
// Group g has rows [starts[g], starts[g + 1]). Rows that no pair has are zero in the operands.
// Rows from starts[G] on are neither read nor written. The result of a row depends on that row and
// the matrix only: it has the same bits in every group of any size. Weight gradients are summed in
// the order of rows, in blocks that depend on the sizes only. `rows` is the expected number of
// rows, for the cost. On CUDA every start is a multiple of spec::Backend::expert_tile.

// The scales of operands in 8 bits, which come as codes (quantize_args.h). Both operands run along
// the inner index then, which changes the shapes of some: see each op. The weights of an expert are
// a matrix with its own scales, one after the other: [G * scales of one matrix], contiguous.
// Shapes and sums are those of GemmArgs: tensor and tensor, or row_128 for a and row_128
// (gradients of weights) or block_128 (weights) for b. Starts of groups are multiples of 128 where
// the scales of b are row_128, so that no group shares a scale with another. Results are bf16 or
// f32.
struct GroupedScales {
  ConstTensor a = {}, b = {};  // of the rows (of dy, in weight gradients), and of the other operand
  spec::ScaleShape shape_a = spec::ScaleShape::tensor, shape_b = spec::ScaleShape::tensor;
  bool fast_sums = false;
};

// y[r] = x[r] weight[g]^T.
struct GroupedForwardArgs {
  ConstTensor x;       // [R, D]
  ConstTensor weight;  // [G, N, D], type of x
  ConstTensor starts;  // [G + 1] i32
  Tensor y;            // [R, N], type of x
  int64_t rows = 0;
  GroupedScales scales = {};  // present exactly if x is 8-bit
};

// gate | up = x[r] weight[g]^T;  act[r] = row_weight[r] * silu(gate) * up.
struct GroupedSwigluForwardArgs {
  ConstTensor x;           // [R, D]
  ConstTensor weight;      // [G, 2 F, D]: gate's rows, then up's
  ConstTensor starts;      // [G + 1] i32
  ConstTensor row_weight;  // [R] f32
  Tensor gate_up;          // [R, 2 F]
  Tensor act;              // [R, F]
  int64_t rows = 0;
  GroupedScales scales = {};
  Tensor amax = {};  // optional [1] f32: raised by the magnitudes of act as stored
};

// act[r] = row_weight[r] * silu(gate) * up alone, of rows below `end`: recompute.
struct GroupedSwigluArgs {
  ConstTensor gate_up;     // [R, 2 F]
  ConstTensor row_weight;  // [R] f32
  ConstTensor end;         // one i32
  Tensor act;              // [R, F]
  int64_t rows = 0;
  Tensor amax = {};  // optional [1] f32: raised by the magnitudes of act as stored
};

// dx[r] = dy[r] weight[g].
struct GroupedBackwardInputArgs {
  ConstTensor dy;      // [R, N]
  ConstTensor weight;  // [G, N, D], type of dy; in 8 bits [G, D, N], transposed
  ConstTensor starts;  // [G + 1] i32
  Tensor dx;           // [R, D], type of dy
  int64_t rows = 0;
  GroupedScales scales = {};
};

// With v = dy[r] weight[g], the gradient of act[r], and s = silu(gate) * up:
//   dgate | dup = row_weight[r] v up silu'(gate) | row_weight[r] v silu(gate);
//   dweight[r] = sum over F of v s, in fp32;  act[r] = row_weight[r] s, as in the forward.
// v may be rounded to the type of dy before it is used.
struct GroupedSwigluBackwardArgs {
  ConstTensor dy;          // [R, D]
  ConstTensor weight;      // [G, D, F], type of dy; in 8 bits [G, F, D], transposed
  ConstTensor starts;      // [G + 1] i32
  ConstTensor gate_up;     // [R, 2 F]
  ConstTensor row_weight;  // [R] f32
  Tensor dgate_up;         // [R, 2 F]; may be the same tensor as gate_up
  Tensor dweight;          // [R] f32
  Tensor act = {};         // optional [R, F]; overlaps no other tensor
  int64_t rows = 0;
  GroupedScales scales = {};
  Tensor dact = {};  // scratch [R, F], type of gate_up: present exactly in 8 bits
  Tensor amax = {};  // optional [1] f32: raised by the magnitudes of dgate_up as stored
};

// dweight[g] = dy[g]^T x[g] (+ dweight[g] if `adds`). A group without rows gives zeros.
struct GroupedBackwardWeightArgs {
  ConstTensor dy;      // [R, N]; in 8 bits [N, R], transposed
  ConstTensor x;       // [R, D], type of dy; in 8 bits [D, R], transposed
  ConstTensor starts;  // [G + 1] i32
  Tensor dweight;      // [G, N, D], gradient type
  bool adds = false;
  int64_t rows = 0;
  GroupedScales scales = {};
};

}  // namespace trireme::kernels
