// SPDX-License-Identifier: Apache-2.0
#include "spec/parallel/pipeline_parallel.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "base/rng.h"
#include "base/text/json.h"
#include "schedule/lives.h"
#include "spec/memory/predict.h"
#include "spec/parallel/stage_cut.h"

namespace trireme::spec {
namespace {

constexpr int64_t width = 64, vocab = 304, seq_len = 32;

ModelSpec model_of(bool tied) {
  return make_model({.family = Family::llama,
                     .layers = 6,
                     .hidden = width,
                     .heads = 8,
                     .kv_heads = 4,
                     .ffn = 128,
                     .vocab = vocab,
                     .max_seq = seq_len,
                     .tied_head = tied});
}

Plan plan_of(const ModelSpec& model, int microbatches, Layout layout) {
  layout.micro_batch = 2;
  layout.accumulation = microbatches;
  layout.head_chunk_rows = 1000;
  return solve_or_throw(model, {.seq_len = seq_len}, layout, {});
}

std::string refusal(const ModelSpec& model, int microbatches, const Layout& layout) {
  try {
    (void)plan_of(model, microbatches, layout);
  } catch (const base::ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(StageCutTest, the_most_expensive_stage_is_as_cheap_as_possible) {
  EXPECT_EQ(balanced_cut(std::vector<double>{0, 1, 1, 1, 1, 4}, 2), (std::vector<int>{0, 5}));
  EXPECT_EQ(balanced_cut(std::vector<double>{1, 1, 1, 1}, 2), (std::vector<int>{0, 2}));
  EXPECT_EQ(balanced_cut(std::vector<double>{1, 1, 1, 1}, 4), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(balanced_cut(std::vector<double>{9, 1, 1, 1}, 3), (std::vector<int>{0, 1, 3}));
}

// By the definition: the smallest cost of a run that suffices as a bound.
std::vector<int> plain_balanced_cut(const std::vector<double>& costs, int stages) {
  constexpr double slack = 1 + 1e-12;
  const auto cut_at = [&](double bound) {
    std::vector<int> cut = {0};
    double sum = 0;
    for (size_t layer = 0; layer < costs.size(); ++layer) {
      if (costs[layer] > bound) return std::vector<int>(costs.size() + 1);
      if (sum + costs[layer] > bound) {
        cut.push_back(static_cast<int>(layer));
        sum = 0;
      }
      sum += costs[layer];
    }
    return cut;
  };
  double best = std::numeric_limits<double>::max();
  for (size_t first = 0; first < costs.size(); ++first) {
    double sum = 0;
    for (size_t last = first; last < costs.size(); ++last) {
      sum += costs[last];
      if (sum < best && std::ssize(cut_at(sum * slack)) <= stages) best = sum;
    }
  }
  std::vector<int> cut = {0};
  double sum = 0;
  const auto count = static_cast<int>(costs.size());
  for (int layer = 0; layer < count; ++layer) {
    const double cost = costs[static_cast<size_t>(layer)];
    const int left = stages - static_cast<int>(cut.size());
    if (layer > cut.back() && (sum + cost > best * slack || count - layer == left) && left > 0) {
      cut.push_back(layer);
      sum = 0;
    }
    sum += cost;
  }
  return cut;
}

TEST(StageCutTest, the_balanced_cut_is_that_of_all_runs_of_layers) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    auto draw = [seed, at = uint64_t{0}](uint64_t below) mutable {
      return base::rng_below(seed, at++, below);
    };
    const bool is_model = draw(2) == 0;  // equal blocks between different ends
    const double block = 0.1 * static_cast<double>(1 + draw(30));
    std::vector<double> costs(2 + draw(40));
    for (double& cost : costs) cost = is_model ? block : 0.1 * static_cast<double>(draw(9));
    costs.front() = 0.3 * static_cast<double>(draw(5));
    costs.back() = 0.7 * static_cast<double>(draw(9));
    const int stages = 1 + static_cast<int>(draw(costs.size()));
    EXPECT_EQ(balanced_cut(costs, stages), plain_balanced_cut(costs, stages)) << "seed " << seed;
  }
}

// The time is not quadratic in the number of layers.
TEST(StageCutTest, a_hundred_thousand_layers_are_cut) {
  std::vector<double> costs(100'000, 3.7);
  costs.front() = 0;
  costs.back() = 100;
  for (const int stages : {2, 64, 4096}) {
    const std::vector<int> cut = balanced_cut(costs, stages);
    ASSERT_EQ(std::ssize(cut), stages);
    // No stage except the head's costs more than an equal share and a layer.
    const double share = 3.7 * 100'000 / stages + 100.0 / stages + 3.7;
    EXPECT_LE(3.7 * (cut[1] - cut[0] - 1), std::max(share, 100.0));
  }
}

TEST(PipelineParallelTest, messages_are_counted_by_rank) {
  const ModelSpec model = model_of(false);
  const Plan plan = plan_of(model, 4, {.pp = 3});
  const int64_t message = 2 * seq_len * width * 2;
  EXPECT_EQ(predict_pipe_traffic(model, plan, 0).activations, 4 * message);
  EXPECT_EQ(predict_pipe_traffic(model, plan, 0).gradients, 0);
  EXPECT_EQ(predict_pipe_traffic(model, plan, 1).activations, 4 * message);
  EXPECT_EQ(predict_pipe_traffic(model, plan, 1).gradients, 4 * message);
  EXPECT_EQ(predict_pipe_traffic(model, plan, 2).activations, 0);
  EXPECT_EQ(predict_pipe_traffic(model, plan, 2).gradients, 4 * message);
  EXPECT_FALSE(shared_table(model, plan));
  EXPECT_EQ(pipe_channels(model, plan).size(), 4U);
  EXPECT_EQ(pipe_buffers(model, plan, 0).messages, 2);
  EXPECT_EQ(pipe_buffers(model, plan, 1).messages, 4);
  // Under sequence parallelism a rank sends its rows.
  const Plan rows = plan_of(model, 4, {.tp = 2, .pp = 3, .sequence_parallel = true});
  EXPECT_EQ(predict_pipe_traffic(model, rows, 0).activations, 4 * message / 2);
}

TEST(PipelineParallelTest, a_table_on_two_ranks_is_sent_and_its_gradients_return) {
  const ModelSpec model = model_of(true);
  const Plan plan = plan_of(model, 4, {.pp = 2});
  const auto table = shared_table(model, plan);
  ASSERT_TRUE(table && table->is_split());
  EXPECT_EQ(table->owner, 0);
  EXPECT_EQ(table->reader, 1);
  EXPECT_EQ(table->copy.shape.elements(), vocab * width);
  EXPECT_EQ(table->head_grads.shape.elements(), vocab * width);
  EXPECT_EQ(table->received_grads, table->head_grads);
  EXPECT_EQ(table->staged_grads.size(), 0U);
  EXPECT_EQ(predict_pipe_traffic(model, plan, 0).table, vocab * width * 2);
  EXPECT_EQ(predict_pipe_traffic(model, plan, 1).table, vocab * width * 4);
  // With a leaf for every micro-batch the first rank has begun one more when it ends one.
  const Plan each = plan_of(model, 4, {.pp = 2, .logical_dp = 4});
  EXPECT_EQ(shared_table(model, each)->staged_grads.size(), 1U);
  EXPECT_EQ(predict_pipe_traffic(model, each, 1).table, 4 * vocab * width * 4);
  // Both ends of a V are on one rank.
  const Plan v = plan_of(model, 4, {.pp = 2, .schedule = schedule::Kind::zb_v});
  const auto own = shared_table(model, v);
  ASSERT_TRUE(own);
  EXPECT_FALSE(own->is_split() || own->is_in_one_stage);
  EXPECT_EQ(own->copy.shape.ndim() + own->received_grads.shape.ndim(), 0);
  EXPECT_EQ(predict_pipe_traffic(model, v, 0).table, 0);
}

TEST(PipelineParallelTest, memory_decreases_along_the_pipeline) {
  const ModelSpec model = model_of(false);
  // Two blocks on each rank except the last, whose head is expensive.
  const Plan plan = plan_of(model, 8, {.pp = 4, .first_layers = {0, 3, 5, 7}});
  const std::vector<MemoryTable>& memory = plan.predicted.memory;
  ASSERT_EQ(memory.size(), 4U);
  EXPECT_EQ(memory[0].stash_inputs, 0);
  EXPECT_GT(memory[1].stash_inputs, memory[2].stash_inputs);
  EXPECT_GT(memory[0].stash_f_to_w, memory[1].stash_f_to_w);
  EXPECT_GT(memory[1].stash_f_to_w, memory[2].stash_f_to_w);
  for (const MemoryTable& m : memory) EXPECT_EQ(m.stash_gaps, 0);
  EXPECT_EQ(plan.predicted.largest().total(), memory[0].total());
  EXPECT_EQ(plan_from_json(to_json(plan)), plan);
}

// A frame of a micro-batch: its bytes, and the positions between which it is in use.
struct HeldFrame {
  int64_t begin, end;
  int from, to;
};

std::vector<HeldFrame> frames_of(const StashLayout& layout, const std::vector<StashStage>& stages,
                                 const std::vector<schedule::Passage>& passages, Pool pool) {
  std::vector<HeldFrame> held;
  for (const schedule::Passage& p : passages) {
    size_t stage = 0;
    while (stages[stage].number != p.stage) ++stage;
    const int64_t at = layout.frames[stage][static_cast<size_t>(p.microbatch)].at[index_of(pool)];
    const int64_t bytes = layout.stages[stage].frame_bytes[index_of(pool)];
    const int input_end = layout.stages[stage].input_until_w ? p.w : p.b;
    const int from = pool == Pool::inputs      ? p.begin
                     : pool == Pool::gradients ? p.gradient
                     : pool == Pool::b_to_w    ? p.b
                                               : p.f;
    const int to = pool == Pool::inputs ? input_end : pool == Pool::f_to_b ? p.b : p.w;
    if (bytes > 0) held.push_back({at, at + bytes, from, to});
  }
  return held;
}

// Frames never overlap while they are in use. Sizes, peaks and gaps of pools are those of a walk
// through the program that adds up what is in use at each position.
TEST(StashFramesTest, frames_in_use_do_not_overlap_and_gaps_are_what_they_leave) {
  const ModelSpec model = model_of(false);
  struct Case {
    const char* schedule;
    int chunks;
    std::vector<int> cut;
  };
  int64_t all_gaps = 0;
  for (const Case& c :
       {Case{"1f1b", 0, {0, 1}}, Case{"interleaved", 2, {0, 1, 4, 5}},
        Case{"interleaved", 3, {0, 1, 2, 3, 4, 7}},
        Case{"interleaved", 4, {0, 1, 2, 3, 4, 5, 6, 7}}, Case{"zb-v", 0, {0, 4, 5, 6}},
        Case{"zb-v", 0, {0, 1, 6, 7}}, Case{"dualpipe-v", 0, {0, 1, 2, 7}}}) {
    const Plan plan = plan_of(model, 6,
                              {.pp = 2,
                               .schedule = *schedule::kind_from_name(c.schedule),
                               .chunks = c.chunks,
                               .first_layers = c.cut});
    for (int rank = 0; rank < 2; ++rank) {
      const std::string what = fmt::format("{}, rank {}", c.schedule, rank);
      const std::vector<StashStage> stages = stash_stages(model, plan, rank, {});
      const StashLayout layout = stash_layout_of_rank(plan, rank, stages);
      const auto passages = schedule::passages(plan.schedule, rank);
      const auto positions =
          static_cast<int>(plan.schedule.program[static_cast<size_t>(rank)].size());
      int64_t gaps = 0;
      for (const Pool pool :
           {Pool::inputs, Pool::f_to_b, Pool::f_to_w, Pool::b_to_w, Pool::gradients}) {
        if (pool == Pool::b_to_w && layout.is_merged) continue;
        const std::vector<HeldFrame> held = frames_of(layout, stages, passages, pool);
        int64_t highest = 0, peak = 0;
        for (size_t i = 0; i < held.size(); ++i) {
          highest = std::max(highest, held[i].end);
          for (size_t j = 0; j < i; ++j) {
            const bool in_time = held[i].from <= held[j].to && held[j].from <= held[i].to;
            const bool in_space = held[i].begin < held[j].end && held[j].begin < held[i].end;
            EXPECT_FALSE(in_time && in_space) << what;
          }
        }
        for (int position = 0; position < positions; ++position) {
          int64_t live = 0;
          for (const HeldFrame& h : held) {
            if (h.from <= position && position <= h.to) live += h.end - h.begin;
          }
          peak = std::max(peak, live);
        }
        EXPECT_EQ(layout.of(pool).bytes, highest) << what << ", " << name_of(pool);
        EXPECT_EQ(layout.of(pool).peak, peak) << what << ", " << name_of(pool);
        gaps += highest - peak;
      }
      EXPECT_EQ(layout.gap_bytes(), gaps) << what;
      EXPECT_EQ(plan.predicted.memory[static_cast<size_t>(rank)].stash_gaps, gaps) << what;
      all_gaps += gaps;
    }
  }
  EXPECT_GT(all_gaps, 0);  // the cases have some
}

TEST(PipelineParallelTest, illegal_layouts_are_refused_with_legal_values) {
  const ModelSpec model = model_of(true);
  const auto expect = [&](const Layout& layout, const std::string& part) {
    const std::string found = refusal(model, 4, layout);
    EXPECT_NE(found.find(part), std::string::npos) << found;
  };
  expect({.pp = 9},
         "pp = 9: that makes 9 stages (1 on each rank), but the model has 8 layers with embedding "
         "and head; nearest: pp = 8 [pp.stages]");
  expect({.pp = 4, .schedule = schedule::Kind::interleaved, .chunks = 3},
         "nearest: pp = 2 [pp.stages]");
  expect({.pp = 2, .first_layers = {0, 0}},
         "first_layers = [0, 0]: must be the first layers of the 2 stages");
  expect({.pp = 2, .first_layers = {0, 8}},
         "first_layers = [0, 8]: must be the first layers of the 2 stages");
  expect({.pp = 2, .first_layers = {0, 3, 5}},
         "first_layers = [0, 3, 5]: must be the first layers of the 2 stages");
  expect({.pp = 2, .schedule = schedule::Kind::dualpipe}, "nearest: dualpipe-v");
  expect({.pp = 2, .send_buffers = 0}, "send_buffers = 0: at least 1");
  expect({.pp = 2,
          .dp_shard = 2,
          .zero_stage = 3,
          .schedule = schedule::Kind::gpipe,
          .reduce = ReduceWhen::each},
         "nearest: 1f1b, or interleaved, or zero_stage = 1 [zero.order]");
  expect({.pp = 2,
          .dp_shard = 2,
          .zero_stage = 2,
          .schedule = schedule::Kind::zb_h1,
          .reduce = ReduceWhen::each},
         "B and W must be merged (BW)");
  EXPECT_FALSE(plan_of(model, 4, {.pp = 2, .reshard = Reshard::never}).layout.keeps_params());
}

}  // namespace
}  // namespace trireme::spec
