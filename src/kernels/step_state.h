// SPDX-License-Identifier: Apache-2.0
// State that the end of a training step keeps on the device, so that neither clipping nor skipping
// waits for the host.
#pragma once

#include <cstddef>
#include <cstdint>

#include "spec/facts/op_shapes.h"

namespace trireme::kernels {

// A sum of squares in fixed point: value = sum over i of limb[i] * 2^(32 i - 128), limbs in
// carry-save form. Integer addition has no order, so any split of the gradients over threads or
// ranks gives the same bits. A block sum that is not finite, or at least 2^127, is counted in
// `not_finite` instead; bits below 2^-128 are dropped.
struct WideSum {
  static constexpr int limbs = 8;
  static constexpr int lowest_exponent = -128;
  // Elements of one block, summed in fp64 from left to right before it is added here. Shards are
  // cut at its multiples.
  static constexpr int64_t block_elements = spec::shard_grain_elements;

  int64_t limb[limbs];
  int64_t not_finite;
};

// Sums of one step. Ops add to it; step_control reads it and sets it to zero.
struct StepSums {
  // A rank that was aborted before it has sent its sums adds this to `unlike`.
  static constexpr int32_t aborted = 1 << 30;

  double loss;       // sum over valid tokens, in nats
  int64_t tokens;    // with a label that counts
  WideSum squares;   // of the gradient of the summed loss
  int64_t unlike;    // ranks whose samples differ from those of the ranks that should share them
  int64_t overflow;  // pairs of tokens and experts that exceeded a row budget (router_overflow)
  uint64_t samples;  // sum, modulo 2^64, of hashes of the ids of the samples processed
};

// What else a rank counts in a step. In its record they follow StepSums, so that one copy writes
// `samples` and both tokens (engine/step/input.h).
struct StepCounts {
  int64_t masked, padding;  // tokens without a label: in a document, and in none
  double update_squares;    // of the change of the weights since the step before was closed
};

// Loss and tokens of one data rank.
struct DataLoss {
  double loss;
  int64_t tokens;
};

// Why parameters and moments stay as they are (StepState::skip).
struct StepSkip {
  static constexpr int32_t none = 0;
  static constexpr int32_t step = 1;    // the step is skipped: see StepControlArgs
  static constexpr int32_t closed = 2;  // the ranks were aborted before the step was closed
  static constexpr int32_t torn = 3;    // they were aborted between two updates of the step
};

struct StepState {
  // Written by the host before each step.
  float learning_rate;
  // Results of step_control for this step.
  float grad_scale;  // multiplies every gradient: 1 / tokens, times the clip factor
  int32_t skip;      // StepSkip
  float grad_norm;   // of the mean loss, before clipping; infinity if not finite
  float clip_limit;  // that applied
  float step_scale;  // the loss scale of this step; 0: the recipe has none
  double mean_loss;
  int64_t tokens;
  uint64_t samples;
  int64_t unlike;
  // Above 0: a step had overflow. This step and all later ones are skipped and count as not run,
  // until the host rebuilds the engine and repeats them.
  int64_t overflow;
  // Carried from step to step, and part of a checkpoint.
  int64_t applied;  // optimizer steps applied: Adam's t
  int64_t skipped;  // steps skipped in total
  int64_t skipped_in_a_row;
  double norm_mean;  // running (exponential) mean and variance of grad_norm over applied steps
  double norm_variance;
  // The last series of consecutive skipped steps: its first step (applied + skipped then), the norm
  // of that step, and the running mean that it was compared with.
  int64_t row_first;
  double row_norm, row_mean;
  // The factor of this step's gradients: 1 without a loss scale (a result of step_control).
  float step_factor;
  // Carried, with a loss scale only (loss_scale.h): the scale of the next step, the factor of its
  // gradients, and how many more steps may be not finite before the scale falls.
  float loss_scale, loss_factor;
  int32_t hysteresis_left;
  int64_t good_steps;  // since the scale changed, or a gradient was not finite
  int64_t not_finite;  // steps with tokens whose gradient was not finite, in total
};

static_assert(sizeof(WideSum) == spec::wide_sum_bytes);
static_assert(sizeof(StepSums) == spec::step_sums_bytes);
static_assert(offsetof(StepSums, samples) + sizeof(uint64_t) == sizeof(StepSums));
static_assert(sizeof(StepCounts) == spec::step_counts_bytes);
static_assert(spec::batch_counts_bytes ==
              sizeof(StepSums::samples) + offsetof(StepCounts, update_squares));
static_assert(sizeof(DataLoss) == spec::data_loss_bytes);
static_assert(sizeof(StepState) == spec::step_state_bytes);

}  // namespace trireme::kernels
