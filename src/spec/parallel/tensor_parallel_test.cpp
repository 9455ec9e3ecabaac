// SPDX-License-Identifier: Apache-2.0
#include "spec/parallel/tensor_parallel.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace trireme::spec {
namespace {

constexpr int64_t D = 64, V = 300, S = 32, layer_count = 3;

ModelSpec model_of(Family family, bool qk_norm = false) {
  return make_model({.family = family,
                     .layers = static_cast<int>(layer_count),
                     .hidden = D,
                     .heads = 8,
                     .kv_heads = family == Family::gpt2 ? 8 : 4,
                     .ffn = 128,
                     .vocab = V,
                     .max_seq = S,
                     .tied_head = family == Family::gpt2,
                     .qk_norm = qk_norm});
}

struct Shape {
  int tp = 2;
  bool sequence_parallel = false;
  int microbatches = 3;
  Recompute recompute = Recompute::none;
};

Plan plan_of(const ModelSpec& model, const Shape& shape) {
  return solve_or_throw(model, {.seq_len = S},
                        {.tp = shape.tp,
                         .sequence_parallel = shape.sequence_parallel,
                         .micro_batch = 2,
                         .accumulation = shape.microbatches,
                         .recompute = shape.recompute,
                         .head_chunk_rows = 1000},
                        {});
}

TEST(TensorParallelTest, sent_bytes_are_those_of_ring_algorithms) {
  EXPECT_EQ(sent_bytes({CommKind::all_gather, Axis::tp, 4096, base::DType::bf16}, 4), 3 * 2048);
  EXPECT_EQ(sent_bytes({CommKind::reduce_scatter, Axis::tp, 4096, base::DType::bf16}, 4), 3 * 2048);
  EXPECT_EQ(sent_bytes({CommKind::all_reduce, Axis::tp, 8192, base::DType::f32}, 2), 8192 * 4);
  // The remainder that does not divide, and small tensors, go to every rank.
  EXPECT_EQ(sent_bytes({CommKind::all_reduce, Axis::tp, 8193, base::DType::f32}, 2), 8193 * 4);
  EXPECT_EQ(sent_bytes({CommKind::all_reduce, Axis::tp, 100, base::DType::f32}, 4), 3 * 400);
}

// Tensor parallel: an all-reduce of the stream after each of the two row-cut products of a block,
// one each in backward; one after the embedding; the statistics of the softmax and dh in the
// head. T = 64 tokens, m micro-batches.
TEST(TensorParallelTest, traffic_of_tensor_parallel) {
  const int64_t T = 2 * S;
  for (const int tp : {2, 4}) {
    for (const int64_t m : {1, 3}) {
      const ModelSpec model = model_of(Family::gpt2);
      const TensorTraffic sent =
          predict_tensor_traffic(model, plan_of(model, {.tp = tp, .microbatches = int(m)}), 0);
      const int64_t all_reduce = 2 * (tp - 1) * (T * D / tp) * 2;
      const int64_t stats = (tp - 1) * T * 3 * 4;
      EXPECT_EQ(sent.forward, m * ((2 * layer_count + 1 + 1) * all_reduce + stats));
      EXPECT_EQ(sent.backward, m * 2 * layer_count * all_reduce);
      EXPECT_EQ(sent.grads, 0);  // norms see all rows
    }
  }
}

// Sequence parallel: a gather and a reduce-scatter instead of each all-reduce, and in backward
// another gather of the inputs of the column-cut products, for W. Norm gradients are summed.
TEST(TensorParallelTest, traffic_of_sequence_parallel) {
  const int64_t T = 2 * S, tp = 4, m = 3;
  const ModelSpec model = model_of(Family::gpt2);
  const TensorTraffic sent =
      predict_tensor_traffic(model, plan_of(model, {.tp = 4, .sequence_parallel = true}), 0);
  const int64_t half = (tp - 1) * (T * D / tp) * 2;  // of what an all-reduce sends
  const int64_t stats = (tp - 1) * T * 3 * 4;
  EXPECT_EQ(sent.forward, m * ((4 * layer_count + 1 + 2) * half + stats));
  EXPECT_EQ(sent.backward, m * ((4 + 2) * layer_count + 1) * half);
  // Two norms of a block with weight and bias, each in its own grain of 128 elements; one of the
  // head.
  EXPECT_EQ(sent.grads, (tp - 1) * (4 * layer_count + 2) * 128 * 4);
}

TEST(TensorParallelTest, full_recompute_sends_the_forward_again_and_selective_does_not) {
  const ModelSpec model = model_of(Family::llama);
  const auto backward = [&](Recompute recompute) {
    return predict_tensor_traffic(
               model, plan_of(model, {.sequence_parallel = true, .recompute = recompute}), 0)
        .backward;
  };
  const int64_t half = (2 * S * D / 2) * 2, m = 3;
  EXPECT_EQ(backward(Recompute::selective), backward(Recompute::none));
  // h1 and h2 are gathered, x2 is summed; y is not computed.
  EXPECT_EQ(backward(Recompute::full), backward(Recompute::none) + m * layer_count * 3 * half);
}

TEST(TensorParallelTest, norms_of_heads_are_partial_sums_also_without_sequence_parallelism) {
  const ModelSpec model = model_of(Family::llama, true);
  const TensorTraffic sent = predict_tensor_traffic(model, plan_of(model, {}), 0);
  EXPECT_EQ(sent.grads, layer_count * 2 * 128 * 4);
}

// The ranks along tp together count every element of the gradient once: each rank counts its parts,
// the first rank the replicated elements.
TEST(TensorParallelTest, the_norm_counts_copies_once) {
  const ModelSpec model = model_of(Family::llama, true);
  const Plan plan = plan_of(model, {.tp = 4});
  for (int layer = 0; layer < static_cast<int>(model.layers.size()); ++layer) {
    const BucketLayout bucket = bucket_layout(params_of(model, layer), plan.mesh);
    int64_t copies = bucket.elements;
    for (const Range& cut : bucket.cut) copies -= cut.end - cut.begin;
    int64_t counted = 0;
    for (int rank = 0; rank < 4; ++rank) {
      Coord coord;
      coord[Axis::tp] = rank;
      // In two pieces, as on two data ranks.
      for (const Range& held :
           {Range{0, bucket.elements / 2}, Range{bucket.elements / 2, bucket.elements}}) {
        for (const Range& range : counted_along_tp(bucket, held, coord)) {
          counted += range.end - range.begin;
        }
      }
    }
    EXPECT_EQ(counted, 4 * (bucket.elements - copies) + copies);
  }
}

TEST(TensorParallelTest, memory_of_the_stream_shrinks_with_sequence_parallelism) {
  const ModelSpec model = model_of(Family::llama);
  const auto kept = [&](bool sequence_parallel) {
    const MemoryTable m =
        plan_of(model, {.tp = 4, .sequence_parallel = sequence_parallel}).predicted.memory.front();
    return m.stash_f_to_b + m.stash_f_to_w;
  };
  EXPECT_LT(kept(true), kept(false));
}

std::string refusal(const ModelSpec& model, const Shape& shape) {
  try {
    plan_of(model, shape);
  } catch (const base::ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(TensorParallelTest, sizes_that_do_not_divide_are_refused_together_with_the_nearest) {
  const ModelSpec model = model_of(Family::llama);
  const std::string text = refusal(model, {.tp = 3, .sequence_parallel = true});
  for (const char* part :
       {"heads = 8, kv_heads = 4 and ffn = 128 do not divide by it; nearest: 2 or 4",
        "with sequence_parallel the 64 tokens of a micro-batch must divide by tp = 3; nearest: 30 "
        "or 33"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  }
  EXPECT_FALSE(plan_of(model, {.tp = 1, .sequence_parallel = true}).layout.sequence_parallel);
  EXPECT_NE(refusal(model, {.tp = 0}).find("tp = 0: from 1 to"), std::string::npos);
}

}  // namespace
}  // namespace trireme::spec
