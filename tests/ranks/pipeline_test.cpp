// SPDX-License-Identifier: Apache-2.0
// Pipelines against one rank: every schedule that the engine runs, with even and uneven stages,
// tied and untied heads, recompute, data parallelism, ZeRO and tensor parallelism. Without tp they
// have the bits of one rank. On every rank, memory by pool and bytes sent are as predicted
// (train_layout()).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <string_view>

#include "tests/ranks/near_rig.h"

namespace trireme::tests {
namespace {

using spec::Recompute;
using spec::ReduceWhen;

// Six blocks: with embedding and head, eight layers.
spec::ModelDims deep(spec::ModelDims dims) {
  dims.name += "-deep";
  dims.layers = 6;
  return dims;
}
// Heads and feed-forward width divide by two; the vocabulary is prime.
spec::ModelDims even(spec::ModelDims dims) {
  dims.name += "-even";
  dims.hidden = 32;
  dims.heads = dims.kv_heads = 4;
  dims.head_dim = 8;
  dims.ffn = 48;
  dims.vocab = 61;
  return dims;
}
spec::ModelDims deep_gpt2() { return deep(tiny_gpt2()); }    // tied head
spec::ModelDims deep_llama() { return deep(tiny_llama()); }  // untied

constexpr int piped_steps = 4;

// At equal tp a pipeline computes the same sums in the same order.
void expect_bits_without_pipeline(const Layout& layout) {
  static std::map<std::string, std::string> known;
  const std::string key =
      fmt::format("{} tp {}{}", bits_key(layout), layout.tp, layout.sequence_parallel ? " sp" : "");
  const auto [hash, is_new] = known.try_emplace(key);
  if (is_new) {
    Layout one = layout;
    one.pp = one.dp = one.zero = 1;
    one.stage = one.chunks = 0;
    one.cut.clear();
    one.keep_params = false;
    one.recompute = Recompute::none;
    one.streams = device::StreamMode::inline_calls;
    hash->second = train_layout(one, piped_steps);
  }
  EXPECT_EQ(train_layout(layout, piped_steps), hash->second) << to_string(layout);
}

struct Shape {
  const char* schedule;
  int pp, chunks, microbatches;
};
// All schedules that the engine runs, with numbers of micro-batches that do and do not divide by
// the ranks.
const std::vector<Shape> shapes = {
    {"gpipe", 2, 0, 3},       {"gpipe", 4, 0, 5},       {"1f1b", 2, 0, 1},
    {"1f1b", 3, 0, 5},        {"1f1b", 4, 0, 4},        {"1f1b", 8, 0, 3},
    {"interleaved", 2, 2, 4}, {"interleaved", 2, 3, 5}, {"interleaved", 2, 4, 6},
    {"interleaved", 4, 2, 4}, {"interleaved", 1, 3, 2}, {"zb-h1", 2, 0, 4},
    {"zb-h1", 4, 0, 6},       {"zb-h2", 2, 0, 5},       {"zb-h2", 4, 0, 8},
    {"zb-v", 2, 0, 5},        {"zb-v", 4, 0, 8},        {"zb-v", 3, 0, 2},
    {"dualpipev", 2, 0, 5},   {"dualpipev", 4, 0, 8},
};

Layout layout_of(const Shape& shape, const spec::ModelDims& dims) {
  Layout layout{.dims = dims, .logical_dp = 1, .microbatches = shape.microbatches};
  layout.pp = shape.pp;
  layout.schedule = shape.schedule;
  layout.chunks = shape.chunks;
  return layout;
}

TEST(PipelineTest, every_schedule_with_every_recompute) {
  for (const Shape& shape : shapes) {
    for (const spec::ModelDims& dims : {deep_gpt2(), deep_llama()}) {
      Layout layout = layout_of(shape, dims);
      for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        layout.recompute = recompute;
        expect_bits_without_pipeline(layout);
      }
    }
  }
}

// Stages of one layer, of only the embedding or only the head, and large next to small ones.
TEST(PipelineTest, uneven_cuts) {
  const std::vector<std::pair<Shape, std::vector<int>>> cuts = {
      {{"1f1b", 2, 0, 3}, {0, 7}},
      {{"1f1b", 2, 0, 3}, {0, 1}},
      {{"zb-h1", 3, 0, 4}, {0, 1, 7}},
      {{"gpipe", 3, 0, 3}, {0, 5, 6}},
      {{"interleaved", 2, 2, 4}, {0, 1, 2, 7}},
      {{"interleaved", 2, 2, 5}, {0, 4, 5, 6}},
      {{"zb-v", 2, 0, 6}, {0, 1, 6, 7}},
      {{"zb-v", 2, 0, 6}, {0, 3, 4, 5}},
      {{"dualpipev", 2, 0, 6}, {0, 2, 3, 7}},
      {{"zb-h2", 4, 0, 9}, {0, 1, 2, 7}},
  };
  for (const auto& [shape, cut] : cuts) {
    for (const spec::ModelDims& dims : {deep_gpt2(), deep_llama()}) {
      Layout layout = layout_of(shape, dims);
      layout.cut = cut;
      for (const Recompute recompute : {Recompute::none, Recompute::selective}) {
        layout.recompute = recompute;
        expect_bits_without_pipeline(layout);
      }
    }
  }
}

// Data parallelism and ZeRO-1 with every schedule; sharded gradients and parameters with schedules
// that finish a micro-batch's backward before the next one's gradients begin.
TEST(PipelineTest, with_data_axes) {
  struct Data {
    int dp, zero, stage;
  };
  for (const Shape& shape : shapes) {
    for (const Data& data : {Data{2, 1, 0}, Data{1, 2, 1}, Data{2, 2, 1}, Data{1, 3, 1}}) {
      for (const spec::ModelDims& dims : {deep_gpt2(), deep_llama()}) {
        Layout layout = layout_of(shape, dims);
        layout.dp = data.dp;
        layout.zero = data.zero;
        layout.stage = data.stage;
        layout.logical_dp = 12;
        if (shape.pp == 1 || ranks_of(layout) > 8) continue;
        // Several workers per rank need alternating forwards and backwards of the head.
        const int microbatches = 12 / (data.dp * data.zero) * shape.microbatches;
        const std::string_view name = shape.schedule;
        const bool in_turn =
            name == "1f1b" || (name == "interleaved" && microbatches % shape.pp == 0);
        if (!in_turn) layout.logical_dp = data.dp * data.zero;
        expect_bits_without_pipeline(layout);
      }
    }
  }
}

// A leaf for every micro-batch: its gradients of a shared table are in flight while others begin.
TEST(PipelineTest, with_leaves_that_overlap) {
  for (const Shape& shape :
       {Shape{"1f1b", 2, 0, 1}, Shape{"1f1b", 3, 0, 6}, Shape{"1f1b", 4, 0, 5},
        Shape{"interleaved", 2, 2, 2}, Shape{"interleaved", 2, 2, 6}, Shape{"interleaved", 2, 3, 4},
        Shape{"interleaved", 2, 4, 8}, Shape{"interleaved", 4, 2, 8}}) {
    for (const int send_buffers : {1, 2}) {
      Layout layout = layout_of(shape, deep_gpt2());
      layout.send_buffers = send_buffers;
      layout.reduce = ReduceWhen::each;
      expect_bits_without_pipeline(layout);
      layout.logical_dp = 4;
      layout.reduce = ReduceWhen::once;
      expect_bits_without_pipeline(layout);
    }
  }
}

TEST(PipelineTest, with_sharded_gradients_and_parameters) {
  const std::vector<Shape> merged = {
      {"1f1b", 2, 0, 3}, {"1f1b", 4, 0, 4}, {"interleaved", 2, 2, 4}};
  for (const Shape& shape : merged) {
    for (const int stage : {2, 3}) {
      for (const bool keep_params : {false, true}) {
        for (const spec::ModelDims& dims : {deep_gpt2(), deep_llama()}) {
          Layout layout = layout_of(shape, dims);
          layout.zero = 2;
          layout.stage = stage;
          layout.keep_params = keep_params;
          layout.reduce = ReduceWhen::each;
          if (keep_params && stage < 3) continue;
          for (const int logical_dp : {2, 4}) {
            layout.logical_dp = logical_dp;
            expect_bits_without_pipeline(layout);
          }
          layout.prefetch = 3;
          layout.prefetch_after = true;
          layout.recompute = Recompute::full;
          expect_bits_without_pipeline(layout);
        }
      }
    }
  }
}

TEST(PipelineTest, with_tensor_and_sequence_parallel) {
  for (const Shape& shape : shapes) {
    if (shape.pp == 1 || shape.pp > 4) continue;
    for (const bool sequence_parallel : {false, true}) {
      for (const spec::ModelDims& dims : {even(deep_gpt2()), even(deep_llama())}) {
        Layout layout = layout_of(shape, dims);
        layout.tp = 2;
        layout.sequence_parallel = sequence_parallel;
        layout.recompute = sequence_parallel ? Recompute::full : Recompute::selective;
        expect_bits_without_pipeline(layout);
      }
    }
  }
}

TEST(PipelineTest, everything_at_once) {
  for (const spec::ModelDims& dims : {even(deep_gpt2()), even(deep_llama())}) {
    for (const char* recipe : {"fp32", "bf16"}) {
      Layout layout = layout_of({"1f1b", 2, 0, 3}, dims);
      layout.recipe = recipe;
      layout.zero = 2;
      layout.stage = 3;
      layout.tp = 2;
      layout.sequence_parallel = true;
      layout.logical_dp = 2;
      layout.reduce = ReduceWhen::each;
      layout.recompute = Recompute::selective;
      expect_bits_without_pipeline(layout);
      layout.stage = 1;
      layout.schedule = "zb-v";
      layout.reduce = ReduceWhen::once;
      layout.reduce_dtype = base::DType::bf16;
      expect_bits_without_pipeline(layout);
      if (layout.recipe == "fp32") continue;
      layout.master = base::DType::u16;
      expect_bits_without_pipeline(layout);
    }
  }
}

// Compute on a separate thread, and as few messages in flight as possible.
TEST(PipelineTest, worker_streams_and_one_send_buffer) {
  for (const Shape& shape : shapes) {
    for (const spec::ModelDims& dims : {deep_gpt2(), deep_llama()}) {
      Layout layout = layout_of(shape, dims);
      layout.streams = device::StreamMode::worker_threads;
      layout.recompute = Recompute::selective;
      layout.send_buffers = 1;
      expect_bits_without_pipeline(layout);
      if (shape.pp > 4 || shape.pp == 1) continue;
      layout.zero = layout.logical_dp = 2;
      layout.stage = 1;
      expect_bits_without_pipeline(layout);
    }
  }
}

// Evaluates one micro-batch, with the loss of every token, on every rank; then runs a step, so that
// a shared table has to be sent again.
TEST(PipelineTest, evaluation_is_the_same_on_every_rank) {
  for (const Shape& shape : {Shape{"1f1b", 3, 0, 3}, Shape{"zb-v", 2, 0, 4}}) {
    for (const spec::ModelDims& dims : {deep_gpt2(), deep_llama()}) {
      struct Evaluated {
        double loss = 0;
        std::vector<float> tokens;
      };
      const auto evaluate = [](const Layout& layout) {
        std::vector<Evaluated> evaluated(static_cast<size_t>(2 * ranks_of(layout)));
        run_layout(layout, [&](RankRig& rig) {
          for (size_t i = 0; i < 2; ++i) {
            Evaluated& own = evaluated[2 * static_cast<size_t>(rig.mesh.world().rank()) + i];
            own.tokens.resize(static_cast<size_t>(rig.engine.plan().microbatch_tokens()));
            own.loss = rig.engine.evaluate(rig.source, own.tokens).loss_sum;
            rig.engine.step(rig.source, 1e-2);
          }
        });
        return evaluated;
      };
      Layout layout = layout_of(shape, dims);
      const std::vector<Evaluated> ranks = evaluate(layout);
      layout.pp = 1;
      const std::vector<Evaluated> one = evaluate(layout);
      EXPECT_NE(one[0].loss, one[1].loss);
      for (size_t i = 0; i < ranks.size(); ++i) {
        EXPECT_EQ(ranks[i].loss, one[i % 2].loss) << shape.schedule;
        EXPECT_EQ(ranks[i].tokens, one[i % 2].tokens) << shape.schedule;
      }
    }
  }
}

}  // namespace
}  // namespace trireme::tests
