// SPDX-License-Identifier: Apache-2.0
// The arguments of every op of the kernel table, one struct each. These comments are the contract
// that each back end implements and that kernels/reference implements as plain loops.
//
// Letters: T tokens (rows), D width, H query heads, G key/value heads, K head size, F feed-forward
// width, V vocabulary, S sequences. "Activation type" is f32, bf16 or f16, "gradient type" f32 or
// bf16. Arithmetic is in fp32 or wider; a 16-bit result is rounded once. Any matrix may have
// row_stride > cols. An argument marked optional may be absent (empty shape).
//
// Gradients of embeddings, norm weights and biases are accumulated (+=). The gradient of a weight
// matrix is the d of a gemm: beta = 0 overwrites it (first micro-batch), beta = 1 accumulates.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/rng.h"
#include "device/tensor.h"
#include "kernels/epilogue.h"
#include "kernels/expert_args.h"
#include "kernels/loss_scale.h"
#include "kernels/quantize_args.h"
#include "spec/facts/op_shapes.h"

namespace trireme::kernels {

// value = alpha op(a) op(b) + beta d;  d = epilogue(value), which is value itself by default.
//
// 8-bit operands come as codes and scales (quantize_args.h): op(a) is not transposed and op(b) is,
// so that both run along k. Shapes of scales: tensor and tensor, or row_128 for a and row_128 or
// block_128 for b. Their product sums 128 codes at a time in what the hardware has, and these sums,
// multiplied by both scales, in fp32; with `fast_sums` all codes may be summed in what the hardware
// has. BiasGradient sums the values of a.
struct GemmArgs {
  ConstTensor a, b;  // op(a) [m, k], op(b) [k, n]
  Tensor d;          // [m, n]; must not overlap a or b
  bool trans_a = false, trans_b = false;
  float alpha = 1;
  float beta = 0;  // with 0, d is not read (it may hold NaN)
  // Present exactly if a and b are 8-bit floats; d is bf16 or f32 then.
  ConstTensor scale_a = {}, scale_b = {};
  ScaleShape shape_a = ScaleShape::tensor, shape_b = ScaleShape::tensor;
  bool fast_sums = false;
  Epilogue epilogue = {};
};

// y[t] = table[tokens[t] - first_row] + position_table[positions[t]]. A token whose row is not in
// the table (it belongs to another rank) contributes zero.
struct EmbeddingForwardArgs {
  ConstTensor tokens;               // [T] i32
  ConstTensor positions = {};       // [T] i32; used with position_table only
  ConstTensor table;                // [V, D]
  ConstTensor position_table = {};  // optional [P, D]
  Tensor y;                         // [T, D]
  int64_t first_row = 0;
};

// dtable[tokens[t] - first_row] += dy[t]; dposition_table[positions[t]] += dy[t]. The order of
// additions depends on the tokens only; on the cpu back end it is the order of t.
struct EmbeddingBackwardArgs {
  ConstTensor tokens, positions = {};
  ConstTensor dy;               // [T, D]
  Tensor dtable;                // [V, D], gradient type
  Tensor dposition_table = {};  // optional [P, D], gradient type
  int64_t first_row = 0;
  Tensor workspace = {};  // scratch of spec::embedding_workspace(); absent if that is empty
};

using spec::norm_backward_partials;
using spec::norm_partials;
using spec::norm_stats;
using spec::NormKind;

// s = x + residual;  rms: y = s * r * weight, r = (mean(s^2) + eps)^-1/2;  layer: y = (s - mean) *
// r * weight + bias, r = (mean((s - mean)^2) + eps)^-1/2. When the result has 16 bits the
// statistics still come from the fp32 sum s, after it was rounded to the type of `sum` if `sum` is
// present.
struct NormForwardArgs {
  NormKind kind = NormKind::rms;
  float eps = 1e-5F;
  ConstTensor x;              // [T, D]
  ConstTensor residual = {};  // optional [T, D]
  Tensor sum = {};        // [T, D] = s; present exactly if residual is. May be the same tensor as x
                          // or residual
  ConstTensor weight;     // [D]
  ConstTensor bias = {};  // optional [D], layer only
  Tensor y;               // [T, D]
  Tensor stats;           // [T, norm_stats(kind)] f32
  Tensor amax = {};       // optional [1] f32: raised by the magnitudes of y as stored
};

// dx = d(norm)/dx applied to dy, + dresidual.  dweight += sum over t of dy * xhat;  dbias += sum
// over t of dy;  dresidual_sum += sum over t of dresidual.  y, if present, is the forward's result
// recomputed from x and stats, with the bits of norm_forward.
struct NormBackwardArgs {
  NormKind kind = NormKind::rms;
  ConstTensor dy, x, stats, weight;
  ConstTensor dresidual = {};  // optional [T, D]; dx may be the same tensor
  Tensor dx;                   // [T, D]; may be the same tensor as dy
  Tensor dweight;              // [D], gradient type
  Tensor dbias = {};           // optional [D], gradient type
  Tensor dresidual_sum = {};   // optional [D], gradient type; with dresidual only
  ConstTensor bias = {};       // optional [D], layer only; for y
  Tensor y = {};               // optional [T, D], type of x; overlaps no other tensor
  Tensor partials;             // scratch of spec::norm_backward_partials()
  Tensor amax = {};            // optional [1] f32: raised by the magnitudes of dx as stored
};

// Rotary position embedding in half-split form, over q and k heads at once, after an optional RMS
// norm of each head:
//   u = q_weight or k_weight * x * r, r = (mean over K of x^2 + eps)^-1/2 (with weights), u = x
//   (without); y[i] = u[i] cos_i - u[i + K/2] sin_i;  y[i + K/2] = u[i + K/2] cos_i + u[i] sin_i,
//   i < K/2.
// table[p] = cos_0 .. cos_{K/2-1} sin_0 .. sin_{K/2-1} of position p.
struct RopeForwardArgs {
  ConstTensor x;                             // [T, H + G, K]: q heads, then k heads
  Tensor y;                                  // [T, H + G, K]; may be the same tensor as x
  ConstTensor positions;                     // [T] i32
  ConstTensor table;                         // [P, K] f32
  int64_t q_heads = 0;                       // H
  ConstTensor q_weight = {}, k_weight = {};  // optional [K], both or none
  float eps = 1e-6F;
  Tensor rstd = {};  // [T, H + G] f32, present exactly if the weights are
};

// dx from dy by the transposed rotation and, with weights, the backward of the norm; dq_weight and
// dk_weight are accumulated.
struct RopeBackwardArgs {
  ConstTensor dy;  // [T, H + G, K]
  Tensor dx;       // [T, H + G, K]; may be the same tensor as dy
  ConstTensor positions, table;
  int64_t q_heads = 0;
  ConstTensor x = {}, rstd = {}, q_weight = {},
              k_weight = {};              // with weights only; x as in the forward
  Tensor dq_weight = {}, dk_weight = {};  // [K], gradient type
  Tensor partials = {};                   // scratch f32 [norm_partials(T), 2 K], with weights only
};

// Softmax attention within each sequence of seq_offsets: o = softmax(scale q k^T + mask) v, query
// head h reads key head h / (H / G). Blocked with online softmax: no [T, T] tensor.
struct AttentionForwardArgs {
  ConstTensor q;              // [T, H, K]
  ConstTensor k, v;           // [T, G, K]
  ConstTensor seq_offsets;    // [S + 1] i32, non-decreasing, first 0, last T; equal neighbours are
                              // empty sequences
  int64_t sequences = 1;      // nominal sequences of max_seq tokens
  int64_t max_seq = 0;        // no sequence is longer
  bool has_documents = true;  // false: there are exactly `sequences`, all of max_seq tokens
  float scale = 1;
  bool causal = true;  // query t sees keys <= t of its sequence; otherwise all of its sequence
  Tensor o;            // [T, H, K]
  // [H, T] f32, contiguous: log of the sum of exp(scale q k), natural. Sequence by sequence: head h
  // of token t of a sequence of n tokens that starts at token b is element b H + h n + t.
  Tensor lse;
};

struct AttentionBackwardArgs {
  ConstTensor q, k, v, o, dout, lse, seq_offsets;
  int64_t sequences = 1;
  int64_t max_seq = 0;
  bool has_documents = true;
  float scale = 1;
  bool causal = true;
  Tensor dq;              // [T, H, K]
  Tensor dk, dv;          // [T, G, K]
  Tensor workspace = {};  // scratch of spec::attention_workspace(); absent if that is empty
};

// ---- attention to keys that several ranks hold (context parallelism)

// Query rows whose keys are known on the host: row i of [first_row, first_row + rows) sees the keys
// [first_key, end_key - (rows - 1 - i)) if causal (a diagonal that ends bottom right), otherwise
// [first_key, end_key). A chunk without keys has end_key <= first_key.
struct QueryChunk {
  int64_t first_row = 0, rows = 0;
  int64_t first_key = 0, end_key = 0;
  bool causal = false;

  bool operator==(const QueryChunk&) const = default;
};

// o[t] = softmax(scale q[t] k^T) v over the keys [key_begin[t], key_end[t]); query head h reads key
// head h / (H / G). A row without keys has o = 0 and lse = -infinity. Rows that follow one another
// and have the same key_begin are computed together; other ranges are correct, but slower.
struct AttentionRangesForwardArgs {
  ConstTensor q;                   // [T, H, K]
  ConstTensor k, v;                // [N, G, K], type of q
  ConstTensor key_begin, key_end;  // [T] i32; 0 <= key_begin, key_end <= N; begin >= end: no keys
  // Optional: the same ranges on the host, chunks that cover all rows in ascending order. They are
  // read before the call returns; without them only the tensors tell.
  std::span<const QueryChunk> chunks = {};
  double pairs = 0;  // (query, key) pairs of one head, for the cost
  float scale = 1;
  Tensor o;    // [T, H, K], f32 or type of q
  Tensor lse;  // [H, T] f32, contiguous: log of the sum of exp(scale q k), natural
};

// Gradients of the pairs of these ranges. o, lse and dout are the final ones, over the keys of all
// calls together, so that results of several calls over disjoint keys are plain summands.
struct AttentionRangesBackwardArgs {
  ConstTensor q, k, v;
  ConstTensor o, dout;  // [T, H, K], f32 or type of q each
  ConstTensor lse;      // [H, T] f32, contiguous; -infinity only where a row has no keys
  ConstTensor key_begin, key_end;
  std::span<const QueryChunk> chunks = {};
  double pairs = 0;
  float scale = 1;
  Tensor dq;                 // [T, H, K], f32 or type of q
  Tensor dk, dv;             // [N, G, K], f32 or type of q, the same for both
  bool accumulates = false;  // adds to dq, dk and dv, which are f32 then
  Tensor workspace = {};     // scratch of spec::attention_ranges_workspace(); absent if that is
                             // empty
};

// (o, lse) = the attention over the keys of both (o, lse) and (part, part_lse), in fp32:
//   l = max + log1p(exp(min - max)) of the two lse;  o = exp(lse - l) o + exp(part_lse - l) part.
// An lse of -infinity marks a side without keys, whose values are not read.
struct AttentionMergeArgs {
  ConstTensor part;      // [T, H, K], activation type
  ConstTensor part_lse;  // [H, T] f32, contiguous
  Tensor o;              // [T, H, K] f32, read and written
  Tensor lse;            // [H, T] f32, contiguous, read and written
};

// d[t] = x[rows[t]], the inverse of scatter_rows.
struct GatherRowsArgs {
  ConstTensor x;     // [N, C]
  ConstTensor rows;  // [T] i32, each in [0, N)
  Tensor d;          // [T, C], type of x; overlaps no row of x
};

// ---- decoding: one token of each of T sequences, whose earlier tokens are in a cache
//
// The bits of a row of the results of these three ops depend on that row of the operands only, not
// on T or on the other rows: a sequence gets the same tokens in every batch.

// y = x weight^T + bias + residual.
struct RowProductArgs {
  ConstTensor x;              // [T, D]
  ConstTensor weight;         // [N, D], type of x
  ConstTensor bias = {};      // optional [N], type of x
  ConstTensor residual = {};  // optional [T, N], type of y
  Tensor y;                   // [T, N], f32 or type of x; may be the same tensor as residual
};

// d[rows[t]] = x[t]. A negative row is skipped; the others differ.
struct ScatterRowsArgs {
  ConstTensor x;     // [T, C]
  ConstTensor rows;  // [T] i32
  Tensor d;          // [N, C], type of x
};

// o[t] = softmax(scale q[t] k^T) v over the cached tokens [first_rows[t], first_rows[t] +
// lengths[t]); query head h reads key head h / (H / G). With length 0, o[t] is zero.
struct AttentionCachedArgs {
  ConstTensor q;           // [T, H, K]
  ConstTensor cache;       // [N, 2 G, K], type of q: the keys of a token, then its values
  ConstTensor first_rows;  // [T] i32
  ConstTensor lengths;     // [T] i32
  int64_t max_length = 0;  // no length is greater
  float scale = 1;
  Tensor o;               // [T, H, K], type of q
  Tensor workspace = {};  // scratch of spec::attention_cached_workspace(); absent if that is empty
};

// y = silu(gate) * up, with gate | up side by side.
struct SwigluForwardArgs {
  ConstTensor gate_up;  // [T, 2 F]
  Tensor y;             // [T, F]
  Tensor amax = {};     // optional [1] f32: raised by the magnitudes of y as stored
};
struct SwigluBackwardArgs {
  ConstTensor gate_up;  // [T, 2 F]
  ConstTensor dy;       // [T, F]
  Tensor dgate_up;      // [T, 2 F]; may be the same tensor as gate_up
  // Optional [T, F]: silu(gate) * up recomputed, with the bits of swiglu_forward. Overlaps no other
  // tensor.
  Tensor y = {};
  Tensor amax = {};  // optional [1] f32: raised by the magnitudes of dgate_up as stored
};

// y = gelu(x) = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), the form GPT-2 was trained with.
struct GeluForwardArgs {
  ConstTensor x;     // [T, F]
  Tensor y;          // [T, F]
  Tensor amax = {};  // optional [1] f32: raised by the magnitudes of y as stored
};

// y = x limited to [-limit, limit]; or with dy its gradient, y = dy where |x| <= limit and 0
// elsewhere.
struct ClampArgs {
  ConstTensor x;        // [T, C]
  ConstTensor dy = {};  // optional [T, C], type of x
  float limit = 0;      // above 0
  Tensor y;             // [T, C], type of x; may be the same tensor as x or dy
};

// A label is valid if it is >= 0; negative ones (padding, masked) have no loss and zero gradient.
// stats[t] = {max over columns, sum of exp(logit - max), logit of the label or 0 if this rank does
// not have its column}. Column c is vocabulary entry first_column + c.
struct CrossEntropyStatsArgs {
  ConstTensor logits;  // [T, V]
  ConstTensor labels;  // [T] i32
  Tensor stats;        // [T, 3] f32
  int64_t first_column = 0;
};

// Merges the stats of several ranges of columns into those of whole rows: the largest max, the sums
// scaled to it and added in order, and the sum of the targets.
struct CrossEntropyMergeArgs {
  ConstTensor parts;  // [n * T, 3] f32, contiguous: T rows of the first range, then of the next
  Tensor stats;       // [T, 3] f32; overlaps no part
};

// loss = log(sum) + max - target, summed over valid rows in fp64 in the order of rows. Unless
// `loss_only`, logits are overwritten by the gradient of the summed loss: softmax - onehot, zero in
// rows that are not valid.
struct CrossEntropyGradArgs {
  Tensor logits;             // [T, V], read and overwritten
  ConstTensor stats;         // [T, 3] f32, over the whole vocabulary
  ConstTensor labels;        // [T] i32
  Tensor sums;               // one StepSums (u8 [sizeof]): loss and tokens are accumulated
  Tensor token_losses = {};  // optional [T] f32, zero in rows that are not valid
  int64_t first_column = 0;
  bool loss_only = false;
  ConstTensor scale =
      {};  // optional [1] f32: the gradient is multiplied by it before it is rounded
};

// cross_entropy_stats and then cross_entropy_grad for a rank that has the whole vocabulary: the
// logits are read once and written once.
struct CrossEntropyArgs {
  Tensor logits;             // [T, V], read and, unless `loss_only`, overwritten by the gradient
  ConstTensor labels;        // [T] i32
  Tensor stats;              // [T, 3] f32, written
  Tensor sums;               // one StepSums: loss and tokens are accumulated
  Tensor token_losses = {};  // optional [T] f32, zero in rows that are not valid
  bool loss_only = false;
  ConstTensor scale = {};  // as in CrossEntropyGradArgs
};

struct FillArgs {
  Tensor d;
  float value = 0;  // for f32, bf16 and f16; other types can only be filled with zero
};

// d = x, converted between f32, bf16 and f16 if the types differ. Same shape.
struct CopyArgs {
  ConstTensor x;
  Tensor d;
  Tensor low = {};  // optional; x in f32, d in bf16, all flat: d and low (u16) become the high and
                    // low part of x (base/split_float.h)
};

// d += x; or d = the larger one, x if it is NaN. Same shape; sums: f32, bf16 or f16 each; maxima:
// f32.
struct AccumulateArgs {
  ConstTensor x;
  Tensor d;
  bool is_max = false;
};

// d[r, c] = base::rng_normal(key, first + r * global_row_stride + c, std_dev), rounded to the type
// of d.
struct InitNormalArgs {
  Tensor d;  // [rows, cols]
  base::RngKey key = 0;
  uint64_t first = 0;
  uint64_t global_row_stride = 0;
  float std_dev = 0;
};

// squares += sum of x^2: fp64 within blocks of WideSum::block_elements, fixed point across blocks.
struct SumSquaresArgs {
  ConstTensor x;   // one dimension, gradient type
  Tensor squares;  // one WideSum
};

// Completes the record of this rank (spec::step_record_bytes): adds the squares of all layers to
// its StepSums, without rounding; writes them as f64, and those of the updates; sets them to zero.
struct AddLayersArgs {
  Tensor squares;  // [layers + 1, sizeof(WideSum)] u8; the last one is of the updates
  Tensor record;
};

// sums = parts[0] + parts[1] + ..., in this order: merges the sums of several ranks.
//
// Consecutive groups of `copies` parts come from ranks that work on the same tokens. Loss and
// tokens of a group are counted once, from the first rank that has tokens (ranks without the head
// have none). `slices` such groups have different tokens of the same samples: samples are counted
// from the first rank of them, and `unlike` counts the ranks whose samples differ from the first's.
struct MergeSumsArgs {
  ConstTensor parts;  // [n, bytes] u8, each begins with a StepSums; n divides by copies * slices
  Tensor sums;        // one StepSums, overwritten; may not be one of the parts
  int64_t copies = 1;
  int64_t slices = 1;
};

// Merges the records of several ranks, in the order and with the groups of merge_sums, to totals
// (spec::step_totals_bytes): tokens of the first rank of each data rank; all squares of updates;
// loss and tokens of each data rank, which are `slices` groups; all squares of each layer.
struct MergeRecordsArgs {
  ConstTensor parts;  // [n, spec::step_record_bytes(layers)] u8
  Tensor totals;      // overwritten
  int64_t copies = 1;
  int64_t slices = 1;
};

enum class ClipKind : uint8_t { none, fixed, adaptive };

// Closes the sums of a step. With n = sqrt(squares) / tokens: skip if n is not finite, or if at
// least `guard_warmup` steps were applied and n > guard_multiple * norm_mean. After `skip_row`
// consecutive skipped steps, a finite n is no longer skipped: a bad batch lasts one step, a bad
// state many, and skipping would preserve it. Such a step is clipped at guard_multiple * norm_mean
// at most. Limit =
// clip_norm (fixed) or max(clip_norm, norm_mean + 4 * deviation) (adaptive; clip_norm alone until
// guard_warmup steps were applied), grad_scale = min(1, limit / n) / tokens; then n enters the
// running mean and variance, applied += 1. A step without valid tokens is skipped. A step with
// overflow, and every one after it, is skipped and changes nothing that is carried. Zeroes the
// sums.
//
// With a loss scale, squares are those of gradients times state.loss_factor: n and grad_scale are
// divided by it. Then a step with tokens updates the scale, by whether n is finite.
struct StepControlArgs {
  Tensor sums;   // one StepSums
  Tensor state;  // one StepState
  ClipKind clip = ClipKind::fixed;
  float clip_norm = 1;
  float guard_multiple = 20;  // 0: only a norm that is not finite is skipped
  int64_t skip_row = 3;       // 0: no limit
  int64_t guard_warmup = 20;
  float norm_decay =
      0.98F;  // of the running mean and variance (which start at the first applied norm)
  LossScaleRule loss_scale = {};
  // Optional [1] i32, in host memory that the device can read. If it is not 0 when the op runs, or
  // the sums are those of ranks of which one was aborted (StepSums::aborted), the step is not
  // closed: skip = StepSkip::closed, unless it is torn, and nothing else changes.
  ConstTensor abort_flag = {};
};

// If flag >= threshold when the op runs: cell = max(cell, value). It reads the flag once, so that
// the ops behind it, which read the cell, all see the same. Both may be in host memory that the
// device can access; another thread may write the flag meanwhile.
struct GateArgs {
  ConstTensor flag;  // [1] i32
  int32_t threshold = 1;
  Tensor cell;  // [1] i32
  int32_t value = 1;
};

// Where an op that updates weights adds the squares of their changes: of the elements [begin, end),
// so that each weight is counted by one of the ranks that update it. A change is the difference of
// the fp32 weights. The order of the sum within an op is not specified, but fixed.
struct ChangeSquares {
  Tensor sum = {};             // one WideSum; absent: none is added
  int64_t begin = 0, end = 0;  // adamw: multiples of WideSum::block_elements, or the last element
};

// One pass of AdamW with decoupled decay. With t = state.applied, g = grad * state.grad_scale:
//   m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;
//   p -= lr * (m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + weight_decay * p).
// p is `param`, or `master` (then param = p rounded), or the split float with high part `param` and
// low part `master` (base/split_float.h). Nothing changes if state.skip is set.
struct AdamwArgs {
  Tensor param;        // one dimension, activation type
  Tensor master = {};  // f32, or u16: the low parts; absent exactly if param is f32
  Tensor m, v;         // f32
  ConstTensor grad;
  ConstTensor state;  // one StepState
  float beta1 = 0.9F, beta2 = 0.95F, eps = 1e-8F, weight_decay = 0.1F;
  ChangeSquares changes = {};
};

// ---- Muon: momentum, then Newton-Schulz on whole matrices (optim/newton_schulz.h), then the
// update.

// With g = grad * state.grad_scale:  m = momentum m + g;  u = g + momentum m (nesterov) or m.
// If state.skip is set, m does not change and u is zero.
struct MomentumArgs {
  Tensor m, u;  // one dimension, f32
  ConstTensor grad;
  ConstTensor state;  // one StepState
  float momentum = 0.95F;
  bool nesterov = true;
};

// d /= max(n, eps), where n is the root of `squares`. If that sum is not finite, d becomes zero.
struct NormalizeArgs {
  Tensor d;             // one dimension, f32
  ConstTensor squares;  // one WideSum
  float eps = 1e-7F;
};

// p -= lr * (factor * direction + weight_decay * p), where p is as in AdamwArgs. Nothing changes if
// state.skip is set.
struct MuonArgs {
  Tensor param;           // one dimension, activation type
  Tensor master = {};     // as in AdamwArgs
  ConstTensor direction;  // f32
  ConstTensor state;      // one StepState
  float factor = 1, weight_decay = 0.1F;
  ChangeSquares changes = {};
};

// ---- copies of the state

// A part of a content: the bytes of a tensor, and where they lie in it.
struct ContentRange {
  ConstTensor bytes;   // any type, contiguous, at an address that is a multiple of 16
  int64_t offset = 0;  // of the content, a multiple of 16
};

// sum += the sum of the blocks of these ranges (base/hash/content_sum.h). The last block of a range
// is filled with zeros, which the content must have there.
struct ContentSumArgs {
  std::vector<ContentRange> ranges;
  Tensor sum;  // one base::ContentSum
};

}  // namespace trireme::kernels
